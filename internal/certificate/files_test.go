package certificate_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/certificate"
)

// pair writes a certificate and its key to files.
type pair struct {
	t         *testing.T
	cert, key string
}

func newPair(t *testing.T) pair {
	dir := t.TempDir()
	return pair{t, filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// made returns a certificate with a number, and its key, in PEM.
func (p pair) made(serial int64, end time.Time) (cert, key []byte) {
	p.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: end, DNSNames: []string{"modbox.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		p.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		p.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// replace gives a file another content, as a renewal does: by a new file of the same name.
func (p pair) replace(path string, content []byte) {
	p.t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

// shows checks the number of the certificate of a handshake, after the files were looked at.
func shows(t *testing.T, config *tls.Config, want int64) {
	t.Helper()
	time.Sleep(time.Minute) // of the bubble's clock
	c, err := config.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Leaf.SerialNumber.Int64(); got != want {
		t.Errorf("the certificate has number %d, want %d", got, want)
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		end := time.Now().Add(time.Hour)
		cert, key := p.made(1, end)
		p.replace(p.cert, cert)
		p.replace(p.key, key)
		var log bytes.Buffer
		f, err := certificate.NewFiles(p.cert, p.key, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		failures := func(want int) {
			t.Helper()
			if n := strings.Count(log.String(), "level=ERROR"); n != want {
				t.Errorf("%d errors in the log, want %d:\n%s", n, want, log.String())
			}
		}
		shows(t, f.TLS(), 1)

		cert2, key2 := p.made(2, end.Add(time.Hour))
		p.replace(p.cert, cert2) // the key does not fit yet
		shows(t, f.TLS(), 1)
		shows(t, f.TLS(), 1) // reported once
		failures(1)
		p.replace(p.key, key2)
		shows(t, f.TLS(), 2)
		if !strings.Contains(log.String(), "in use") {
			t.Errorf("the log does not say that the certificate changed:\n%s", log.String())
		}

		if err := os.Remove(p.cert); err != nil {
			t.Fatal(err)
		}
		shows(t, f.TLS(), 2)
		failures(2)
		p.replace(p.cert, []byte("not a certificate"))
		shows(t, f.TLS(), 2)
		failures(3)
		cert3, key3 := p.made(3, time.Now().Add(-time.Minute)) // has expired
		p.replace(p.key, key3)
		p.replace(p.cert, cert3)
		shows(t, f.TLS(), 2)
		failures(4)
		registry := prometheus.NewRegistry()
		registry.MustRegister(f.Collector())
		metrics, err := registry.Gather()
		if err != nil || len(metrics) != 2 || metrics[0].Metric[0].GetGauge().GetValue() != float64(end.Add(time.Hour).Unix()) || metrics[1].Metric[0].GetCounter().GetValue() != 4 {
			t.Errorf("metrics = %v, %v, want the end of the second certificate, and 4 failures", metrics, err)
		}

		// A file that could not be read, and then can, as after a change of its owner, looks the same.
		cert5, key5 := p.made(5, end.Add(2*time.Hour))
		at := time.Now()
		inPlace := func(content []byte) {
			t.Helper()
			if err := errors.Join(os.WriteFile(p.key, content, 0o600), os.Chtimes(p.key, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		inPlace(bytes.Repeat([]byte("x"), len(key5)))
		p.replace(p.cert, cert5)
		shows(t, f.TLS(), 2)
		inPlace(key5)
		shows(t, f.TLS(), 5)

		// Files in a directory that a link leads to, as in Kubernetes.
		cert4, key4 := p.made(4, end.Add(2*time.Hour))
		dir := t.TempDir()
		for name, content := range map[string][]byte{"cert.pem": cert4, "key.pem": key4} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for link, target := range map[string]string{p.cert: "cert.pem", p.key: "key.pem"} {
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(dir, target), link); err != nil {
				t.Fatal(err)
			}
		}
		shows(t, f.TLS(), 4)
	})
}

func TestFilesAtStart(t *testing.T) {
	p := newPair(t)
	cert, _ := p.made(1, time.Now().Add(time.Hour))
	_, other := p.made(2, time.Now().Add(time.Hour))
	p.replace(p.cert, cert)
	p.replace(p.key, other)
	for _, key := range []string{p.key, p.key + "-missing"} {
		if _, err := certificate.NewFiles(p.cert, key, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("NewFiles(%s) = %v, want an error with the path", key, err)
		}
	}
}
