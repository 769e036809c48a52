// Command names gives the tests of E2B's clients what an operator has for a server with host names: a certificate
// of a private authority, and a DNS server that answers for the names. It runs in a network namespace of its
// own, whose loopback device it brings up:
//
//	names DIR NAME...
//
// writes ca.pem, cert.pem and key.pem into DIR, and resolv.conf when it answers. A name may begin with "*.". The
// program ends with its standard input.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
)

// resolver is the address of the DNS server, at port 53.
const resolver = "127.0.0.77"

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: names DIR NAME...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "names:", err)
		os.Exit(1)
	}
}

func run(dir string, names []string) error {
	if err := certify(dir, names); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	conn, err := net.ListenPacket("udp", net.JoinHostPort(resolver, "53"))
	if err != nil {
		return err
	}
	server := &dns.Server{PacketConn: conn, Handler: answers(names)}
	failed := make(chan error, 1)
	go func() { failed <- server.ActivateAndServe() }()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until its end, or an error
		failed <- nil
	}()
	if err := os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver "+resolver+"\n"), 0o644); err != nil {
		return err
	}
	return <-failed
}

// answers answers that the names are at 127.0.0.1, and that no others exist.
func answers(names []string) dns.HandlerFunc {
	known := func(name string) bool {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		for _, n := range names {
			parent, wildcard := strings.CutPrefix(n, "*")
			if name == n || wildcard && strings.HasSuffix(name, parent) {
				return true
			}
		}
		return false
	}
	return func(w dns.ResponseWriter, r *dns.Msg) {
		m := new(dns.Msg).SetReply(r)
		if len(r.Question) != 1 || !known(r.Question[0].Name) {
			m.Rcode = dns.RcodeNameError
		} else if q := r.Question[0]; q.Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)}}
		}
		_ = w.WriteMsg(m) // a client that is gone asks again
	}
}

// certify writes a certificate for names, its key, and the certificate of the authority that signed it.
func certify(dir string, names []string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Modbox tests"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, NotBefore: from, NotAfter: to,
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caCert, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name, kind string
		data       []byte
	}{{"ca.pem", "CERTIFICATE", caCert}, {"cert.pem", "CERTIFICATE", cert}, {"key.pem", "PRIVATE KEY", private}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.data}), 0o600); err != nil {
			return err
		}
	}
	return nil
}
