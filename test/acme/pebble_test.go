package acme_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// pebble is an ACME server of the tests.
type pebble struct {
	t *testing.T
	// Directory is the URL of its directory, CAFile and Roots check its own certificate.
	Directory, CAFile string
	Roots             *x509.CertPool

	address, config, dns string
	cmd                  *exec.Cmd
}

// ports are the ports at which Pebble looks for the answers to challenges.
type ports struct{ http, tls int }

// buildPebble returns the path of the program, built from its module once.
var buildPebble = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "tool", "-modfile=tools/go.mod", "-n", "pebble")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// newPebble starts a server whose certificates are valid for a time. It resolves names by dns.
func newPebble(t *testing.T, dns string, at ports, validity time.Duration) *pebble {
	t.Helper()
	dir := t.TempDir()
	p := &pebble{t: t, address: net.JoinHostPort("127.0.0.1", freePort(t)), dns: dns, config: filepath.Join(dir, "config.json"), CAFile: filepath.Join(dir, "cert.pem"), Roots: x509.NewCertPool()}
	p.Directory = "https://" + p.address + "/dir"
	key := filepath.Join(dir, "key.pem")
	selfSigned(t, p.CAFile, key, 1)
	ca, err := os.ReadFile(p.CAFile)
	if err != nil || !p.Roots.AppendCertsFromPEM(ca) {
		t.Fatalf("the server's own certificate: %v", err)
	}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": p.address, "certificate": p.CAFile, "privateKey": key, "httpPort": at.http, "tlsPort": at.tls,
		"keyAlgorithm": "ecdsa", "retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles": map[string]any{"default": map[string]any{"description": "of the test", "validityPeriod": int(validity.Seconds())}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, config, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// Start starts it, and returns when it answers.
func (p *pebble) Start() {
	p.t.Helper()
	program, err := buildPebble()
	if err != nil {
		p.t.Fatalf("build Pebble from its module: %v", err)
	}
	log, err := os.CreateTemp(p.t.TempDir(), "pebble-*.log")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); p.t.Failed() && err == nil {
			p.t.Logf("log of Pebble:\n%s", text)
		}
	})
	p.cmd = exec.Command(program, "-config", p.config, "-dnsserver", p.dns)
	p.cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	eventually(p.t, "Pebble answers", func() bool {
		c, err := tls.Dial("tcp", p.address, &tls.Config{RootCAs: p.Roots})
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

// Stop ends it, with all accounts and certificates that it knows.
func (p *pebble) Stop() {
	if p.cmd != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// selfSigned writes a certificate for 127.0.0.1 and its key.
func selfSigned(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: privateDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// freePort returns a port of 127.0.0.1 that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}
