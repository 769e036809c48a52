package auth_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/modbox/modbox/internal/auth"
)

func TestForwarded(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("fd00::/8")}
	for name, c := range map[string]struct {
		trusted      []netip.Prefix
		peer         string
		lines        []string
		want, scheme string
	}{
		"one_proxy":        {trusted, "10.0.0.1:99", []string{"203.0.113.7"}, "203.0.113.7:0", "https"},
		"two_proxies":      {trusted, "127.0.0.1:99", []string{"203.0.113.7, 10.0.0.2"}, "203.0.113.7:0", "https"},
		"several_lines":    {trusted, "127.0.0.1:99", []string{"6.6.6.6", "203.0.113.7", "10.0.0.2,10.0.0.3"}, "203.0.113.7:0", "https"},
		"written_by_other": {trusted, "10.0.0.1:99", []string{"6.6.6.6, 127.0.0.1, 203.0.113.7"}, "203.0.113.7:0", "https"},
		"client_inside":    {trusted, "10.0.0.1:99", []string{"10.9.9.9"}, "10.9.9.9:0", "https"},
		"with_port":        {trusted, "10.0.0.1:99", []string{"203.0.113.7:1234"}, "203.0.113.7:0", "https"},
		"ipv6":             {trusted, "[fd00::1%eth0]:99", []string{"[2001:db8::7]:1234, [fd00::2], fd00::3"}, "[2001:db8::7]:0", "https"},
		"mapped":           {trusted, "[::ffff:10.0.0.1]:99", []string{"::ffff:203.0.113.7"}, "203.0.113.7:0", "https"},
		"nonsense":         {trusted, "10.0.0.1:99", []string{"203.0.113.7, unknown, 10.0.0.2"}, "10.0.0.2:0", "https"},
		"only_nonsense":    {trusted, "10.0.0.1:99", []string{"<script>"}, "10.0.0.1:99", "https"},
		"empty":            {trusted, "10.0.0.1:99", []string{""}, "10.0.0.1:99", "https"},
		"no_header":        {trusted, "10.0.0.1:99", nil, "10.0.0.1:99", "https"},
		"not_trusted":      {trusted, "203.0.113.9:99", []string{"203.0.113.7"}, "203.0.113.9:99", ""},
		"loopback":         {nil, "127.0.0.1:99", []string{"203.0.113.7"}, "127.0.0.1:99", ""},
		"no_address":       {trusted, "@", []string{"203.0.113.7"}, "@", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = c.peer
			r.Header["X-Forwarded-For"] = c.lines
			r.Header.Set("X-Forwarded-Proto", "https")
			auth.Forwarded(c.trusted, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got := auth.ForwardedScheme(r.Context()); r.RemoteAddr != c.want || got != c.scheme {
					t.Errorf("the request comes from %s by %q, want %s by %q", r.RemoteAddr, got, c.want, c.scheme)
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
		})
	}
}
