package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/certificate"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/statedir"
)

// encryption has the TLS configuration of the listener. The zero value means no TLS.
type encryption struct {
	config    *tls.Config
	plain     net.Listener // for HTTP-01 and redirects; nil for none
	redirects *http.Server
}

// plainLimits bound the connections to tls.acme.http_listen, and to a worker for probes, which strangers reach: a connection has one request.
var plainLimits = conns.Limits{Max: 256, PerAddress: 16}

// openEncryption reads the certificates, or begins to obtain them, for a listener at an address.
func openEncryption(ctx context.Context, cfg config.Config, listening net.Addr, metrics prometheus.Registerer, log *slog.Logger, cu *cleanup.Cleanup) (*encryption, error) {
	e := &encryption{}
	switch {
	case len(cfg.TLS.ACME.Hosts) > 0:
		return e, e.openACME(ctx, cfg, listening, metrics, log, cu)
	case cfg.TLS.Cert != "":
		files, err := certificate.NewFiles(cfg.TLS.Cert, cfg.TLS.Key, log)
		if err != nil {
			return nil, fmt.Errorf("tls.cert: %w", err)
		}
		e.config = files.TLS()
		metrics.MustRegister(files.Collector())
	}
	return e, nil
}

func (e *encryption) openACME(ctx context.Context, cfg config.Config, listening net.Addr, metrics prometheus.Registerer, log *slog.Logger, cu *cleanup.Cleanup) error {
	settings, err := acmeConfig(cfg)
	if err != nil {
		return err
	}
	settings.Listening, settings.Log = listening, log
	if address := cfg.TLS.ACME.HTTPListen; address != "" {
		if e.plain, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
			return fmt.Errorf("tls.acme.http_listen: %w", err)
		}
		cu.Add(func() { _ = e.plain.Close() }) // closed already when it was served
		settings.Plain = e.plain.Addr()
	}
	for _, host := range uncovered(cfg) {
		log.Warn("tls.acme.hosts has no certificate for a host that the server hands out", "host", host)
	}
	certificates, err := certificate.NewACME(ctx, settings)
	if err != nil {
		return err
	}
	cu.Add(certificates.Close)
	e.config = certificates.TLS()
	metrics.MustRegister(certificates.Collector())
	if e.plain == nil {
		return nil
	}
	port := ""
	if u, err := url.Parse(publicURL(cfg, listening)); err == nil {
		port = u.Port()
	}
	guard := conns.New(plainLimits, nil)
	e.plain = guard.Listen(e.plain)
	e.redirects = &http.Server{
		ConnState: guard.State, ConnContext: guard.Context,
		Handler: certificates.Challenges(certificate.Redirect(port)), ReadTimeout: headerTimeout, WriteTimeout: headerTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	cu.Add(func() { _ = e.redirects.Close() })
	return nil
}

// serve serves plain HTTP until close, if it does at all. It sends its error, which ends the server.
func (e *encryption) serve(failed chan<- error) {
	if e.plain == nil {
		return
	}
	go func() {
		if err := e.redirects.Serve(e.plain); err != nil && err != http.ErrServerClosed {
			failed <- fmt.Errorf("serve http on %s: %w", e.plain.Addr(), err)
		}
	}()
}

// acmeConfig returns the settings for certificates from an ACME server, without addresses.
func acmeConfig(cfg config.Config) (certificate.Config, error) {
	a := cfg.TLS.ACME
	c := certificate.Config{
		Hosts: a.Hosts.Strings(), Directory: a.Directory, Email: a.Email, DNSProgram: a.DNSProgram,
		Dir: filepath.Join(cfg.StateDir, statedir.CertificatesDir),
	}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return c, fmt.Errorf("tls.acme.ca_file: %w", err)
		}
		if c.Roots = x509.NewCertPool(); !c.Roots.AppendCertsFromPEM(pem) {
			return c, fmt.Errorf("tls.acme.ca_file: %s has no certificate in PEM", a.CAFile)
		}
	}
	if a.DNSProgram != "" {
		info, err := os.Stat(a.DNSProgram)
		if err != nil {
			return c, fmt.Errorf("tls.acme.dns_program: %w", err)
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return c, fmt.Errorf("tls.acme.dns_program: %s is not a program", a.DNSProgram)
		}
	}
	return c, nil
}

// uncovered returns the hosts in URLs of the server for which it obtains no certificate.
func uncovered(cfg config.Config) (list []string) {
	var names []string
	for _, text := range []string{cfg.PublicURL, cfg.Console.At(cfg.PublicURL)} {
		if u, err := url.Parse(text); err == nil && u.Scheme == "https" {
			names = append(names, u.Hostname())
		}
	}
	if cfg.Domain != "" {
		names = append(names, "*."+cfg.Domain)
	}
	for _, name := range names {
		if !cfg.TLS.ACME.Hosts.Cover(name) {
			list = append(list, name)
		}
	}
	return list
}
