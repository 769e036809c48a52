package agent_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
)

// certificate returns a certificate for a name, as PEM.
func certificate(t *testing.T, name string) string {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (e *env) put(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(e.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (e *env) get(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(e.root, name))
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

// variable returns the value of an environment variable in a command.
func (e *env) variable(t *testing.T, name string) string {
	t.Helper()
	s, err := e.Exec(t.Context(), agentapi.Command{Argv: []string{"sh", "-c", "echo $" + name}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(collect(t, s).stdout)
}

func TestNameserver(t *testing.T) {
	e := start(t)
	resolv := filepath.Join(e.root, "etc/resolv.conf")
	e.put(t, "etc/resolv.conf", "nameserver 192.0.2.1\n")
	configure := func() {
		t.Helper()
		if err := e.Configure(t.Context(), agentapi.Config{Network: &agentapi.Network{Nameserver: "10.0.0.1"}}); err != nil {
			t.Fatal(err)
		}
	}
	configure()
	if got := e.get(t, "etc/resolv.conf"); got != "nameserver 10.0.0.1\n" {
		t.Errorf("resolv.conf is %q", got)
	}
	e.put(t, "etc/resolv.conf", "search example\nnameserver 10.0.0.1\n")
	configure()
	if got := e.get(t, "etc/resolv.conf"); !strings.HasPrefix(got, "search") {
		t.Errorf("what was added to resolv.conf is gone: %q", got)
	}
	// Other things may be at the path: a dangling link, or a file that blocks when it is opened.
	for what, make := range map[string]func() error{
		"link": func() error { return os.Symlink("/run/nowhere/resolv.conf", resolv) },
		"fifo": func() error { return unix.Mkfifo(resolv, 0o600) },
	} {
		if err := os.Remove(resolv); err != nil {
			t.Fatal(err)
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		configure()
		if got := e.get(t, "etc/resolv.conf"); got != "nameserver 10.0.0.1\n" {
			t.Errorf("resolv.conf in the place of a %s is %q", what, got)
		}
	}
}

func TestOperatorCertificates(t *testing.T) {
	ours, image := certificate(t, "ours"), certificate(t, "image")
	const bundle, copied = "etc/ssl/certs/ca-certificates.crt", "usr/local/share/ca-certificates/modbox.crt"
	network := &agentapi.Network{Nameserver: "10.0.0.1", CA: ours + image}

	t.Run("ImageWithBundle", func(t *testing.T) {
		e := start(t)
		e.put(t, bundle, strings.TrimSuffix(image, "\n"))
		for range 2 {
			if err := e.Configure(t.Context(), agentapi.Config{Network: network, Env: map[string]string{"SSL_CERT_FILE": "/mine"}}); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := e.get(t, bundle), image+ours; got != want {
			t.Errorf("bundle is\n%s\nwant\n%s", got, want)
		}
		if got := e.get(t, copied); got != network.CA {
			t.Errorf("%s is %q", copied, got)
		}
		for name, want := range map[string]string{
			"NODE_EXTRA_CA_CERTS": "/" + copied, "REQUESTS_CA_BUNDLE": "/" + bundle, "SSL_CERT_FILE": "/mine",
		} {
			if got := e.variable(t, name); got != want {
				t.Errorf("%s = %q, want %q", name, got, want)
			}
		}
	})
	t.Run("ImageWithout", func(t *testing.T) {
		e := start(t)
		for range 2 {
			if err := e.Configure(t.Context(), agentapi.Config{Network: network}); err != nil {
				t.Fatal(err)
			}
		}
		if got := e.get(t, bundle); got != network.CA {
			t.Errorf("bundle is %q", got)
		}
		if got := e.variable(t, "SSL_CERT_FILE"); got != "" {
			t.Errorf("SSL_CERT_FILE = %q although the image has no certificates", got)
		}
		if got := e.variable(t, "NODE_EXTRA_CA_CERTS"); got != "/"+copied {
			t.Errorf("NODE_EXTRA_CA_CERTS = %q", got)
		}
	})
	t.Run("BundleThatBlocks", func(t *testing.T) {
		e := start(t)
		e.put(t, bundle, "")
		if err := os.Remove(filepath.Join(e.root, bundle)); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(e.root, bundle), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := e.Configure(t.Context(), agentapi.Config{Network: network}); err != nil {
			t.Fatal(err)
		}
	})
}
