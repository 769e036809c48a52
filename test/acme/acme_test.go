package acme_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/certificate"
)

const (
	host = "api.modbox.test"
	long = 24 * time.Hour
)

// site is a listener with certificates from Pebble.
type site struct {
	t      *testing.T
	listen net.Listener
	*certificate.ACME
	server *http.Server
}

// listen takes a port.
func listen(t *testing.T) (net.Listener, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // closed already when it was served
	tcp, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("not a TCP address")
	}
	return l, tcp.Port
}

// serve serves with the certificates of a configuration, to which it adds the listener and the log.
func serve(t *testing.T, l net.Listener, c certificate.Config) *site {
	t.Helper()
	c.Listening, c.Log = l.Addr(), slog.New(slog.NewTextHandler(t.Output(), nil))
	a, err := certificate.NewACME(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, listen: l, ACME: a}
	s.server = &http.Server{TLSConfig: a.TLS(), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go func() { _ = s.server.ServeTLS(l, "", "") }() // ends with Close
	t.Cleanup(s.End)
	return s
}

// End ends the work in the background and the listener.
func (s *site) End() {
	if s.ACME != nil {
		_ = s.server.Close()
		s.Close()
		s.ACME = nil
	}
}

// certificateOf returns the certificate that the listener shows for a host.
func (s *site) certificateOf(host string) (*x509.Certificate, error) {
	return shown(s.listen.Addr().String(), host)
}

func shown(address, host string) (*x509.Certificate, error) {
	c, err := tls.Dial("tcp", address, &tls.Config{ServerName: host, InsecureSkipVerify: true}) // Pebble makes its CA anew at each start
	if err != nil {
		return nil, err
	}
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	return leaf, leaf.VerifyHostname(host)
}

// obtained waits until there is a certificate for a host.
func (s *site) obtained(host string) (leaf *x509.Certificate) {
	s.t.Helper()
	eventually(s.t, "a certificate for "+host, func() bool {
		var err error
		leaf, err = s.certificateOf(host)
		return err == nil
	})
	return leaf
}

// TestStoredCertificate obtains a certificate by TLS-ALPN-01. A server that starts while the ACME
// server is away shows the stored one, at once.
func TestStoredCertificate(t *testing.T) {
	l, port := listen(t)
	p := newPebble(t, newNameServer(t).Address, ports{tls: port, http: closedPort}, long)
	p.Start()
	c := certificate.Config{Hosts: []string{host}, Directory: p.Directory, Email: "admin@modbox.test", Roots: p.Roots, Dir: filepath.Join(t.TempDir(), "certificates")}
	s := serve(t, l, c)
	first := s.obtained(host)
	if values := gathered(t, s.Collector()); values["modbox_tls_certificate_expiry_timestamp_seconds"] != float64(first.NotAfter.Unix()) || values["modbox_tls_certificate_failures_total"] != 0 {
		t.Errorf("metrics = %v, want the end of the certificate, %v, and no failure", values, first.NotAfter)
	}
	checkModes(t, c.Dir)
	s.End()
	p.Stop()

	again, _ := listen(t)
	s = serve(t, again, c)
	leaf, err := s.certificateOf(host)
	if err != nil {
		t.Fatalf("the first handshake after a start without the ACME server: %v", err)
	}
	if leaf.SerialNumber.Cmp(first.SerialNumber) != 0 {
		t.Errorf("the certificate after a restart has number %v, want the stored one, %v", leaf.SerialNumber, first.SerialNumber)
	}
}

// TestKilledInARenewal has a certificate without its key, as a server leaves that is killed between the two files of a
// renewal: it gets another.
func TestKilledInARenewal(t *testing.T) {
	l, port := listen(t)
	p := newPebble(t, newNameServer(t).Address, ports{tls: port, http: closedPort}, long)
	p.Start()
	c := certificate.Config{Hosts: []string{host}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir()}
	s := serve(t, l, c)
	first := s.obtained(host)
	address := l.Addr().String()
	s.End()
	keys, err := filepath.Glob(filepath.Join(c.Dir, "certificates", "*", host, host+".key"))
	if err != nil || len(keys) != 1 {
		t.Fatalf("keys %q, %v, want one", keys, err)
	}
	other := filepath.Join(t.TempDir(), "key.pem")
	selfSigned(t, filepath.Join(t.TempDir(), "cert.pem"), other, 1)
	key, err := os.ReadFile(other)
	if err == nil {
		err = os.WriteFile(keys[0], key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s = serve(t, again, c)
	if leaf := s.obtained(host); leaf.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Error("the certificate whose key is gone is in use")
	}
}

// closedPort is a port that nothing listens on: it is not for listening.
const closedPort = 1

// checkModes checks that only the owner can read the files, and that there is a key among them.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	keys := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) { // a lock that is given up
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, want it closed to others", path, info.Mode())
		}
		if strings.HasSuffix(path, ".key") {
			keys++
		}
		return nil
	})
	if err != nil || keys < 2 {
		t.Errorf("%d keys (%v), want the key of the account and the key of the certificate", keys, err)
	}
}

// gathered returns the values of metrics, by their names.
func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	list, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range list {
		for _, m := range f.GetMetric() {
			values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}

// TestPlainChallenge obtains a certificate where only HTTP-01 works; other requests to that port are
// redirected.
func TestPlainChallenge(t *testing.T) {
	l, _ := listen(t)
	plain, port := listen(t)
	p := newPebble(t, newNameServer(t).Address, ports{tls: closedPort, http: port}, long)
	p.Start()
	s := serve(t, l, certificate.Config{Hosts: []string{host}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir(), Plain: plain.Addr()})
	redirects := &http.Server{Handler: s.Challenges(certificate.Redirect("7443")), ReadHeaderTimeout: time.Minute}
	go func() { _ = redirects.Serve(plain) }() // ends with Close
	t.Cleanup(func() { _ = redirects.Close() })
	s.obtained(host)

	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	url := "http://" + plain.Addr().String() + "/v1/sandboxes?limit=1"
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got, want := resp.Header.Get("Location"), "https://127.0.0.1:7443/v1/sandboxes?limit=1"; resp.StatusCode != http.StatusPermanentRedirect || got != want {
		t.Errorf("GET = %s to %q, want a redirect to %q", resp.Status, got, want)
	}
	refused := func(name, method string, header string, body io.Reader) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, body)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set(header, "secret")
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "https") {
			t.Errorf("%s = %s %q, want it refused", name, resp.Status, text)
		}
	}
	refused("POST", "POST", "", nil)
	refused("GET with a body", "GET", "", strings.NewReader("{}"))
	for _, header := range []string{"Authorization", "X-API-Key", "X-Access-Token", "X-Modbox-Token"} {
		refused("GET with "+header, "GET", header, nil)
	}
}

// TestWildcard obtains certificates for a wildcard and the host above it by DNS-01, with the program
// of the documentation. Afterwards no record remains.
func TestWildcard(t *testing.T) {
	names := newNameServer(t)
	p := newPebble(t, names.Address, ports{tls: closedPort, http: closedPort}, long)
	p.Start()
	l, _ := listen(t)
	s := serve(t, l, certificate.Config{
		Hosts: []string{"*.box.modbox.test", "box.modbox.test"}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir(), DNSProgram: documentedProgram(t, names.Address),
	})
	leaf := s.obtained("8080-some-label.box.modbox.test")
	if got := fmt.Sprint(leaf.DNSNames); got != "[*.box.modbox.test]" {
		t.Errorf("the certificate is for %s, want the wildcard", got)
	}
	s.obtained("box.modbox.test")
	if _, err := s.certificateOf("other.modbox.test"); err == nil {
		t.Error("there is a certificate for a host that is not in the settings")
	}
	eventually(t, "the records of the challenges are removed", func() bool {
		now, added := names.Texts()
		return now == 0 && added == 2
	})
}

// documentedProgram returns the program in docs/operate/tls.md, for the zone of the tests.
func documentedProgram(t *testing.T, dns string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "tls.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "<!-- the program for DNS-01, which test/acme runs -->\n\n```sh\n")
	text, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("docs/operate/tls.md has no program for DNS-01")
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "modbox.key")
	secret := fmt.Sprintf("key \"modbox\" { algorithm hmac-sha256; secret %q; };\n", keySecret)
	address, port, err := net.SplitHostPort(dns)
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"/etc/modbox/dns.key": key, "server ns1.example.com": "server " + address + " " + port, "zone example.com": "zone " + zone} {
		if !strings.Contains(text, from) {
			t.Fatalf("the program in docs/operate/tls.md has no %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	path := filepath.Join(dir, "dns")
	if err := errors.Join(os.WriteFile(key, []byte(secret), 0o600), os.WriteFile(path, []byte(text), 0o700)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRenewal: a certificate is renewed before it ends.
func TestRenewal(t *testing.T) {
	l, port := listen(t)
	p := newPebble(t, newNameServer(t).Address, ports{tls: port, http: closedPort}, 20*time.Second)
	p.Start()
	s := serve(t, l, certificate.Config{Hosts: []string{host}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir(), CheckInterval: 200 * time.Millisecond})
	first := s.obtained(host)
	eventually(t, "another certificate", func() bool {
		leaf, err := s.certificateOf(host)
		return err == nil && leaf.SerialNumber.Cmp(first.SerialNumber) != 0
	})
}

// TestUnreachable: without the ACME server and without a stored certificate a listener starts, and
// says why handshakes fail.
func TestUnreachable(t *testing.T) {
	l, port := listen(t)
	p := newPebble(t, newNameServer(t).Address, ports{tls: port, http: closedPort}, long)
	s := serve(t, l, certificate.Config{Hosts: []string{host}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir()})
	if _, err := s.certificateOf(host); err == nil {
		t.Error("a handshake succeeds without a certificate")
	}
	eventually(t, "the failure is counted", func() bool { return gathered(t, s.Collector())["modbox_tls_certificate_failures_total"] > 0 })
}

// TestProgramFails: the output of the program for DNS-01 is in the log.
func TestProgramFails(t *testing.T) {
	p := newPebble(t, newNameServer(t).Address, ports{tls: closedPort, http: closedPort}, long)
	p.Start()
	path := filepath.Join(t.TempDir(), "dns")
	if err := os.WriteFile(path, []byte("#!/bin/sh\nhead -c 100000 /dev/zero | tr '\\0' x\necho no such zone: $2 $SECRET_OF_THE_SERVER >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_OF_THE_SERVER", "in-the-environment")
	l, _ := listen(t)
	log := &lines{}
	a, err := certificate.NewACME(t.Context(), certificate.Config{
		Hosts: []string{"*.box.modbox.test"}, Directory: p.Directory, Roots: p.Roots, Dir: t.TempDir(), DNSProgram: path, Listening: l.Addr(), Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	eventually(t, "the failure is in the log", func() bool { return strings.Contains(log.String(), "no such zone: _acme-challenge.box.modbox.test") })
	if text := log.String(); strings.Contains(text, "in-the-environment") || len(text) > 20_000 {
		t.Errorf("the log has %d bytes, or the environment of the server:\n%.2000s", len(text), text)
	}
}
