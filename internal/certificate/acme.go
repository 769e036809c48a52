package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/cenkalti/backoff/v5"
	"github.com/mholt/acmez/v3"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

const (
	// retryMin and retryMax bound the pauses after work that failed before the ACME server was asked;
	// certmagic has its own pauses after failures there, from a minute to six hours.
	retryMin = time.Minute
	retryMax = time.Hour
)

// Config configures [ACME].
type Config struct {
	// Hosts are the names for which there shall be certificates, at least one. Names with a wildcard
	// need DNSProgram.
	Hosts []string
	// Directory is the URL of the ACME server, Email the address of the account there, or "".
	Directory, Email string
	// Roots check the ACME server's own certificate; nil for the system's.
	Roots *x509.CertPool
	// Dir is the directory of the account, the certificates and the keys. Only its owner can read it.
	Dir string
	// Listening is the address of the listener, which answers the challenge TLS-ALPN-01.
	Listening net.Addr
	// Plain is the address of a listener that serves [ACME.Challenges]; nil for none, and no HTTP-01.
	Plain net.Addr
	// DNSProgram is the path of a program for the challenge DNS-01, which is then the only one; "" for none.
	DNSProgram string
	// CheckInterval is the time between two looks for certificates to renew. 0: ten minutes.
	CheckInterval time.Duration
	Log           *slog.Logger
}

// ACME obtains certificates from an ACME server, stores them in a directory, and renews each in the last
// third of its time. It needs the ACME server for new certificates only, and otherwise uses the stored
// certificates. It is safe for concurrent use.
type ACME struct {
	c       Config
	cache   *certmagic.Cache
	magic   *certmagic.Config
	issuer  *certmagic.ACMEIssuer
	metrics *metrics
	end     context.CancelFunc
	running sync.WaitGroup
}

// NewACME loads the stored certificates. Until Close, it obtains missing certificates and renews stored
// certificates in the background.
func NewACME(ctx context.Context, c Config) (*ACME, error) {
	a := &ACME{c: c}
	a.metrics = newMetrics(a.expiries)
	silent := zap.NewNop() // onEvent logs
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return a.magic, nil },
		RenewCheckInterval: c.CheckInterval,
		Logger:             silent,
	})
	a.magic = certmagic.New(a.cache, certmagic.Config{
		Storage: &storage{FileStorage: certmagic.FileStorage{Path: c.Dir}, failed: a.storeFailed},
		OnEvent: a.onEvent,
		// Clients that name no host, or another, get a certificate as well, and see that it is not valid for them.
		DefaultServerName: c.Hosts[0], FallbackServerName: c.Hosts[0],
		OCSP:   certmagic.OCSPConfig{DisableStapling: true}, // public servers have none any more
		Logger: silent,
	})
	template := certmagic.ACMEIssuer{
		CA: c.Directory, Email: c.Email, Agreed: true, TrustedRoots: c.Roots, Logger: silent,
		DisableHTTPChallenge: c.Plain == nil,
	}
	var err error
	if template.ListenHost, template.AltTLSALPNPort, err = hostPort(c.Listening); err != nil {
		return nil, err
	}
	if c.Plain != nil {
		if _, template.AltHTTPPort, err = hostPort(c.Plain); err != nil {
			return nil, err
		}
	}
	if c.DNSProgram != "" {
		template.DNS01Solver = program{path: c.DNSProgram}
	}
	a.issuer = certmagic.NewACMEIssuer(a.magic, template)
	a.magic.Issuers = []certmagic.Issuer{a.issuer}
	ctx, a.end = context.WithCancel(context.WithoutCancel(ctx))
	a.begin(ctx)
	return a, nil
}

// begin loads the stored certificates and starts the work in the background.
func (a *ACME) begin(ctx context.Context) {
	for _, host := range a.c.Hosts {
		if _, err := a.magic.CacheManagedCertificate(ctx, host); err != nil {
			a.running.Go(func() { a.obtain(ctx, host) })
		}
	}
	a.running.Go(func() {
		if err := a.cache.RenewManagedCertificates(ctx); err != nil && ctx.Err() == nil {
			a.c.Log.Error("certificates cannot be renewed", "error", err)
		}
	})
}

// obtain obtains a certificate, or loads it when another attempt stored it, and tries until it
// succeeds or ctx ends.
func (a *ACME) obtain(ctx context.Context, host string) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = retryMin, retryMax
	for {
		err := a.obtainOnce(ctx, host)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.metrics.failures.Inc()
		a.c.Log.Error("there is no certificate", "host", host, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.NextBackOff()):
		}
	}
}

func (a *ACME) obtainOnce(ctx context.Context, host string) error {
	if err := a.magic.ObtainCertAsync(ctx, host); err != nil {
		return err
	}
	if _, err := a.magic.CacheManagedCertificate(ctx, host); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	// There are files, which ObtainCertAsync does not read, and they cannot be used: a server that was killed between two
	// files of a renewal leaves a key that does not fit the certificate.
	if err := a.magic.RenewCertAsync(ctx, host, true); err != nil {
		return err
	}
	_, err := a.magic.CacheManagedCertificate(ctx, host)
	return err
}

// storage is where certmagic keeps its files. It reports failed writes, which certmagic itself only logs.
type storage struct {
	certmagic.FileStorage
	failed func(key string, err error)
}

// Store implements certmagic.Storage.
func (s *storage) Store(ctx context.Context, key string, value []byte) error {
	err := s.FileStorage.Store(ctx, key, value)
	if err != nil {
		s.failed(key, err)
	}
	return err
}

func (a *ACME) storeFailed(key string, err error) {
	a.metrics.failures.Inc()
	a.c.Log.Error("a file of a certificate cannot be stored", "file", key, "error", err)
}

// onEvent logs and counts what certmagic reports.
func (a *ACME) onEvent(_ context.Context, event string, data map[string]any) error {
	host, renewal := data["identifier"], data["renewal"]
	switch event {
	case "cert_obtained":
		a.c.Log.Info("a certificate was obtained", "host", host, "renewal", renewal)
	case "cert_failed":
		a.metrics.failures.Inc()
		a.c.Log.Error("a certificate was not obtained; there will be other attempts", "host", host, "renewal", renewal, "error", data["error"])
	}
	return nil
}

// TLS returns the configuration of a listener with these certificates.
func (a *ACME) TLS() *tls.Config {
	return &tls.Config{GetCertificate: a.certificate, NextProtos: []string{"h2", "http/1.1", acmez.ACMETLS1Protocol}}
}

// certificate is called for each handshake.
func (a *ACME) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := a.magic.GetCertificate(hello)
	if err != nil {
		return nil, fmt.Errorf("no certificate yet: %w", err)
	}
	return c, nil
}

// Challenges returns the handler of the challenge HTTP-01, which leaves other requests to next.
func (a *ACME) Challenges(next http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(next) }

// Collector returns the metrics.
func (a *ACME) Collector() prometheus.Collector { return a.metrics }

// Close ends the work in the background.
func (a *ACME) Close() {
	a.end()
	a.running.Wait()
	a.cache.Stop()
}

// expiries returns the ends of the certificates that there are.
func (a *ACME) expiries() map[string]time.Time {
	ends := map[string]time.Time{}
	for _, host := range a.c.Hosts {
		for _, c := range a.cache.AllMatchingCertificates(host) {
			if slices.Contains(c.Names, host) && c.Leaf.NotAfter.After(ends[host]) {
				ends[host] = c.Leaf.NotAfter
			}
		}
	}
	return ends
}

// hostPort returns the host of an address, "" for all, and its port.
func hostPort(addr net.Addr) (string, int, error) {
	host, text, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", 0, fmt.Errorf("address of a listener: %w", err)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	port, err := strconv.Atoi(text)
	return host, port, err
}
