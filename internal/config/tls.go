package config

import (
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// TLS configures the encryption of the listener.
type TLS struct {
	Cert string `yaml:"cert" doc:"Certificate file (PEM, with its chain). The server reads it again when it changes. Empty: plain HTTP, for loopback or behind a TLS proxy, unless tls.acme.hosts names hosts."`
	Key  string `yaml:"key" doc:"Private key file of the certificate (PEM)."`
	ACME ACME   `yaml:"acme"`
}

// On reports whether the listener is encrypted.
func (t *TLS) On() bool { return t.Cert != "" || len(t.ACME.Hosts) > 0 }

// ACME configures certificates from an ACME server, such as Let's Encrypt.
type ACME struct {
	Hosts      Hosts  `yaml:"hosts" doc:"Hosts for which the server obtains and renews certificates from an ACME server, separated by commas: modbox.example.com,*.sandbox.example.com (docs/operate/tls.md). To set it is to accept the terms of that server. Empty: none."`
	Email      string `yaml:"email" doc:"Address of the account at the ACME server, for its notices. Empty: none."`
	Directory  string `yaml:"directory" doc:"Directory URL of the ACME server."`
	CAFile     string `yaml:"ca_file" doc:"Certificates (PEM) that the server trusts when it calls the ACME server, instead of the system's, for an ACME server with a private CA. Empty: the system's."`
	HTTPListen string `yaml:"http_listen" doc:"Address and port on which the server answers the challenge HTTP-01 and redirects other requests to https, e.g. 0.0.0.0:80; port 80 of the hosts must lead there. Empty: only TLS-ALPN-01, for which port 443 of the hosts must lead to listen."`
	DNSProgram string `yaml:"dns_program" doc:"Program that sets and removes DNS records for the challenge DNS-01, which wildcards need; the server then uses no other challenge (docs/operate/tls.md). Empty: none."`
}

// Host is the name of a host, such as modbox.example.com or *.sandbox.example.com.
type Host string

// String returns the name.
func (h Host) String() string { return string(h) }

// Hosts are names of hosts, written as modbox.example.com,*.sandbox.example.com.
type Hosts []Host

// String returns the names separated by commas.
func (h Hosts) String() string { return joined(h) }

// MarshalText is the inverse of UnmarshalText.
func (h Hosts) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// hostName matches a DNS name with at least two labels. The first label may be *.
var hostName = regexp.MustCompile(`^(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]*[a-z]$`)

// UnmarshalText reads names separated by commas.
func (h *Hosts) UnmarshalText(text []byte) (err error) {
	*h, err = split(text, func(s string) (Host, error) {
		name := strings.ToLower(s)
		if len(name) > 253 || !hostName.MatchString(name) {
			return "", fmt.Errorf("%q is not the name of a host, such as modbox.example.com or *.sandbox.example.com", s)
		}
		return Host(name), nil
	})
	return err
}

// UnmarshalYAML reads a list, or the format of UnmarshalText.
func (h *Hosts) UnmarshalYAML(n *yaml.Node) error { return h.UnmarshalText(words(n)) }

// Strings returns the names as strings.
func (h Hosts) Strings() []string {
	list := make([]string, len(h))
	for i, host := range h {
		list[i] = string(host)
	}
	return list
}

// Cover reports whether a certificate for one of the hosts is valid for a name.
func (h Hosts) Cover(name string) bool {
	name = strings.ToLower(name)
	wildcard := ""
	if _, parent, ok := strings.Cut(name, "."); ok {
		wildcard = "*." + parent
	}
	return slices.Contains(h, Host(name)) || slices.Contains(h, Host(wildcard))
}

func (t *TLS) validate(bad func(name, format string, args ...any)) {
	if (t.Cert == "") != (t.Key == "") {
		bad("tls", "cert and key must be set together")
	}
	a := t.ACME
	wildcard := slices.ContainsFunc(a.Hosts, func(h Host) bool { return strings.HasPrefix(string(h), "*.") })
	switch {
	case len(a.Hosts) > 0 && t.Cert != "":
		bad("tls.acme.hosts", "tls.cert is set as well; the server takes its certificate from one of them")
	case wildcard && a.DNSProgram == "":
		bad("tls.acme.hosts", "certificates for a wildcard need the challenge DNS-01: set tls.acme.dns_program")
	case a.HTTPListen != "" && a.DNSProgram != "":
		bad("tls.acme.http_listen", "tls.acme.dns_program is set as well, and the server then uses the challenge DNS-01 only")
	}
	for name, value := range map[string]string{"tls.acme.http_listen": a.HTTPListen, "tls.acme.dns_program": a.DNSProgram} {
		if value != "" && len(a.Hosts) == 0 {
			bad(name, "it has no effect without tls.acme.hosts")
		}
	}
	if u, err := url.Parse(a.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
		bad("tls.acme.directory", "%q is not an https URL", a.Directory)
	}
	if address, err := mail.ParseAddress(a.Email); a.Email != "" && (err != nil || address.Address != a.Email) {
		bad("tls.acme.email", "%q is not an address such as admin@example.com", a.Email)
	}
	if a.HTTPListen != "" {
		_, port, err := net.SplitHostPort(a.HTTPListen)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
			bad("tls.acme.http_listen", "%q is not ADDRESS:PORT", a.HTTPListen)
		}
	}
	if a.DNSProgram != "" && !filepath.IsAbs(a.DNSProgram) {
		bad("tls.acme.dns_program", "%q is not an absolute path", a.DNSProgram)
	}
}
