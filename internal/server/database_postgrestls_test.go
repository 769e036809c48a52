package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/store/storetest"
)

// authority issues certificates of a test.
type authority struct {
	*testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{T: t}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.issue(template, time.Hour)
	return a
}

// issue signs a certificate, by itself for the first.
func (a *authority) issue(template *x509.Certificate, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-2*time.Hour), time.Now().Add(life)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		a.Fatal(err)
	}
	return cert, key
}

func pemOf(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) (string, string) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// files writes a certificate and its key, and returns their paths.
func (a *authority) files(cert *x509.Certificate, key *ecdsa.PrivateKey) (string, string) {
	a.Helper()
	dir := a.TempDir()
	text, private := pemOf(a.T, cert, key)
	paths := [2]string{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for i, text := range []string{text, private} {
		if err := os.WriteFile(paths[i], []byte(text), 0o600); err != nil {
			a.Fatal(err)
		}
	}
	return paths[0], paths[1]
}

// postgresTLS is a PostgreSQL server with TLS on 127.0.0.1. Its certificate is for localhost. It demands a password, and a
// client certificate for the database "certified".
type postgresTLS struct {
	*authority
	cluster *storetest.Cluster
	port    int
}

func startPostgresTLS(t *testing.T) *postgresTLS {
	t.Helper()
	p := &postgresTLS{authority: newAuthority(t), cluster: storetest.StartCluster(t)}
	db, err := sql.Open("pgx", p.cluster.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{"ALTER ROLE modbox PASSWORD 'hunter2'", "CREATE DATABASE certified"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	p.port = reservePort(t)
	root, _ := pemOf(t, p.cert, p.key)
	p.cluster.Write("root.crt", root)
	p.cluster.Write("pg_hba.conf", "local all all trust\nhostssl certified all 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 scram-sha-256")
	p.restart("on", time.Hour)
	return p
}

// reservePort returns a port of 127.0.0.1 that the system gives to nobody until the test ends, but on which a process can listen again and again,
// because the socket that has it does not listen.
func reservePort(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return address.(*syscall.SockaddrInet4).Port
}

// restart restarts PostgreSQL with or without TLS, with a certificate that is valid for a time.
func (p *postgresTLS) restart(ssl string, life time.Duration) {
	p.Helper()
	cert, key := p.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "postgres"}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, life)
	text, private := pemOf(p.T, cert, key)
	p.cluster.Write("server.crt", text)
	p.cluster.Write("server.key", private)
	p.cluster.Write("postgresql.auto.conf", fmt.Sprintf("listen_addresses = '127.0.0.1'\nport = %d\nssl = %s\nssl_ca_file = 'root.crt'", p.port, ssl))
	p.cluster.Stop("fast")
	p.cluster.Start()
}

// database returns the settings for a host, a database and parameters of its URL.
func (p *postgresTLS) database(host, name string, parameters ...string) config.Database {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return config.Database{
		URL:            fmt.Sprintf("postgres://modbox@%s:%d/%s?%s", host, p.port, name, query.Encode()),
		MaxConnections: 3, ConnectTimeout: config.Duration(5 * time.Second), StatementTimeout: config.Duration(30 * time.Second),
	}
}

// The server and `modbox doctor` reach PostgreSQL over TLS, and refuse a server that is not the server that the settings mean.
func TestPostgresOverTLS(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test")
	}
	p := startPostgresTLS(t)
	root, _ := p.files(p.cert, p.key)
	stranger, _ := p.files(newAuthority(t).cert, p.key)
	cert, key := p.files(p.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "modbox"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, time.Hour))
	verified := []string{"sslmode", "verify-full", "sslrootcert", root}

	start := func(d config.Database) error {
		it := &installationTest{T: t, cfg: config.Config{StateDir: t.TempDir(), RunDir: t.TempDir(), Database: d}}
		return it.open(true) // the databases are of other state directories
	}
	doctor := func(d config.Database) error {
		_, err := DatabaseWarnings(t.Context(), config.Config{StateDir: t.TempDir(), Database: d})
		return err
	}
	accepted := func(when string, d config.Database) {
		t.Helper()
		if err := start(d); err != nil {
			t.Errorf("%s: the server: %v", when, err)
		}
		if err := doctor(d); err != nil {
			t.Errorf("%s: doctor: %v", when, err)
		}
	}
	refused := func(when string, d config.Database, want ...string) {
		t.Helper()
		for program, use := range map[string]func(config.Database) error{"server": start, "doctor": doctor} {
			err := use(d)
			if err == nil {
				t.Errorf("%s: %s uses the database", when, program)
				continue
			}
			for _, want := range want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %s: %v, want %q", when, program, err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter") {
				t.Errorf("%s: %s: the error has the password: %v", when, program, err)
			}
		}
	}

	t.Setenv(databasePasswordVariable, "hunter2")
	accepted("verified", p.database("localhost", "postgres", verified...))
	accepted("with a certificate of the client", p.database("localhost", "certified", append(verified, "sslcert", cert, "sslkey", key)...))
	refused("without a certificate of the client", p.database("localhost", "certified", verified...), "sslcert and sslkey")
	refused("another host name", p.database("127.0.0.1", "postgres", verified...), "127.0.0.1", "use a name that is in the certificate")
	refused("another authority", p.database("localhost", "postgres", "sslmode", "verify-full", "sslrootcert", stranger), "sslrootcert")
	refused("a file that is missing", p.database("localhost", "postgres", "sslmode", "verify-full", "sslrootcert", "/nowhere/root.pem"), "database URL", "/nowhere/root.pem")
	refused("no such database", p.database("localhost", "none", verified...), "create the database")
	t.Setenv(databasePasswordVariable, "hunter3")
	refused("another password", p.database("localhost", "postgres", verified...), "MODBOX_DATABASE_PASSWORD")
	withPassword := p.database("localhost", "postgres", "sslmode", "verify-full", "sslrootcert", stranger)
	withPassword.URL = strings.Replace(withPassword.URL, "modbox@", "modbox:hunter4@", 1)
	refused("a password in the URL", withPassword, "sslrootcert")
	withPassword.URL = strings.Replace(withPassword.URL, url.QueryEscape(stranger), "/nowhere", 1)
	refused("a password in a wrong URL", withPassword, "/nowhere")

	t.Setenv(databasePasswordVariable, "hunter2")
	p.restart("on", -time.Hour)
	refused("an expired certificate", p.database("localhost", "postgres", verified...), "expired", "renew the certificate")
	p.restart("off", time.Hour)
	refused("no TLS", p.database("localhost", "postgres", verified...), "does not offer TLS", "ssl = on")
	accepted("TLS where it is offered", p.database("localhost", "postgres", "sslmode", "prefer"))
}
