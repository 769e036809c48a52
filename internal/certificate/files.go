package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// checkInterval is the time between two looks at the files.
const checkInterval = time.Second

// Files is a certificate in two files. It reads them again when they change. While they cannot be
// used, because only one of them is renewed yet or because they are broken, the certificate before
// remains. It is safe for concurrent use.
type Files struct {
	cert, key string
	log       *slog.Logger
	metrics   *metrics
	current   atomic.Pointer[tls.Certificate]

	mu      sync.Mutex
	read    stamps    // of the files in use; guarded by mu
	checked time.Time // of the last look at the files; guarded by mu
	// The last failure, which is reported once: it is tried again at each look, because a file that becomes
	// readable does not look different.
	failed stamps // guarded by mu
	reason string // guarded by mu; "" after a success
}

// stamps tell whether the files of a certificate and its key have changed.
type stamps [2]os.FileInfo // nil for a file that is missing

// NewFiles reads a certificate with its chain, and its key, both PEM.
func NewFiles(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	f.metrics = newMetrics(f.expiries)
	f.read, f.checked = f.stat(), time.Now()
	c, err := f.load()
	if err != nil {
		return nil, err
	}
	f.current.Store(c)
	return f, nil
}

// TLS returns the configuration of a listener with this certificate.
func (f *Files) TLS() *tls.Config { return &tls.Config{GetCertificate: f.certificate} }

// Collector returns the metrics.
func (f *Files) Collector() prometheus.Collector { return f.metrics }

// certificate is called for each handshake.
func (f *Files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if f.mu.TryLock() { // others continue with the certificate before
		f.reload()
		f.mu.Unlock()
	}
	return f.current.Load(), nil
}

// reload reads the files if they have changed since they were read last. The caller holds mu.
func (f *Files) reload() {
	now := time.Now()
	if now.Sub(f.checked) < checkInterval {
		return
	}
	f.checked = now
	stat := f.stat() // before they are read: a change after it is noticed the next time
	if stat.same(f.read) {
		return
	}
	c, err := f.load()
	if err == nil && now.After(c.Leaf.NotAfter) && now.Before(f.current.Load().Leaf.NotAfter) {
		err = fmt.Errorf("%s: the certificate expired on %s", f.cert, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err != nil {
		if !stat.same(f.failed) || err.Error() != f.reason {
			f.metrics.failures.Inc()
			f.log.Error("the certificate files changed, but cannot be used; the certificate before remains until they can", "error", err)
		}
		f.failed, f.reason = stat, err.Error()
		return
	}
	f.read, f.reason = stat, ""
	f.current.Store(c)
	f.log.Info("the certificate files changed and are in use", "hosts", c.Leaf.DNSNames, "not_after", c.Leaf.NotAfter.UTC())
}

// load reads both files.
func (f *Files) load() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s with its key %s: %w", f.cert, f.key, err)
	}
	if c.Leaf == nil {
		return nil, errors.New("the certificate has no leaf")
	}
	return &c, nil
}

func (f *Files) stat() (s stamps) {
	for i, path := range []string{f.cert, f.key} {
		if info, err := os.Stat(path); err == nil {
			s[i] = info
		}
	}
	return s
}

// same reports whether no file has changed. A renewed file is usually another file, or a link to
// another, under the same name.
func (s stamps) same(other stamps) bool {
	for i := range s {
		a, b := s[i], other[i]
		if (a == nil) != (b == nil) {
			return false
		}
		if a != nil && (!os.SameFile(a, b) || !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size()) {
			return false
		}
	}
	return true
}

func (f *Files) expiries() map[string]time.Time {
	leaf := f.current.Load().Leaf
	return map[string]time.Time{name(leaf): leaf.NotAfter}
}

// name returns the first name that a certificate is for.
func name(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.IPAddresses) > 0:
		return c.IPAddresses[0].String()
	}
	return c.Subject.CommonName
}
