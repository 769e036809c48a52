package server

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/config"
)

func TestExposure(t *testing.T) {
	public, loopback := &net.TCPAddr{IP: net.IPv4zero, Port: 80}, &net.TCPAddr{IP: net.IPv6loopback, Port: 80}
	for name, c := range map[string]struct {
		addr    net.Addr
		change  func(*config.Config)
		refused bool
		warns   string // "" for no warning
	}{
		"loopback":   {loopback, func(*config.Config) {}, false, ""},
		"public":     {public, func(*config.Config) {}, true, ""},
		"public_tls": {public, func(c *config.Config) { c.TLS.Cert = "cert" }, false, ""},
		"allowed":    {public, func(c *config.Config) { c.HTTP.AllowInsecure = true }, false, "clear text"},
		"sso_paths":  {loopback, func(c *config.Config) { c.OIDC = make(config.Providers, 1) }, false, "http.path_urls"},
		"sso_domain": {loopback, func(c *config.Config) { c.OIDC, c.Domain = make(config.Providers, 1), "box.test" }, false, ""},
		"sso_both": {loopback, func(c *config.Config) {
			c.OIDC, c.Domain, c.HTTP.PathURLs = make(config.Providers, 1), "box.test", "on"
		}, false, "http.path_urls"},
		"sso_paths_off":  {loopback, func(c *config.Config) { c.OIDC, c.HTTP.PathURLs = make(config.Providers, 1), "off" }, false, ""},
		"path_urls_only": {loopback, func(c *config.Config) { c.HTTP.PathURLs = "on" }, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			c.change(&cfg)
			var out bytes.Buffer
			err := checkExposure(cfg, c.addr, slog.New(slog.NewTextHandler(&out, nil)))
			if (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), "http.allow_insecure") {
				t.Errorf("error %v, want one %v", err, c.refused)
			}
			if (out.Len() > 0) != (c.warns != "") || !strings.Contains(out.String(), c.warns) {
				t.Errorf("log %q, want a warning with %q", out.String(), c.warns)
			}
		})
	}
}
