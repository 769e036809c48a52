package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/api/edge"
)

// TestMetricsAccess: by default metrics are for the server's own machine, and what a proxy
// on it passes on is not from there.
func TestMetricsAccess(t *testing.T) {
	for access, want := range map[string]map[string]int{
		"":                  {"local": 200, "ipv6": 200, "proxy": 403, "silent_proxy": 403, "other": 403, "administrator": 403},
		api.MetricsLoopback: {"local": 200, "ipv6": 200, "proxy": 403, "silent_proxy": 403, "other": 403, "administrator": 403},
		api.MetricsToken:    {"local": 401, "ipv6": 401, "proxy": 401, "silent_proxy": 401, "other": 401, "administrator": 200},
		api.MetricsPublic:   {"local": 200, "ipv6": 200, "proxy": 200, "silent_proxy": 200, "other": 200, "administrator": 200},
	} {
		s := apitest.NewWith(t, func(c *api.Config, d *api.Deps) {
			c.MetricsAccess = access
			d.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") })
		})
		served := edge.Wrap(slog.New(slog.DiscardHandler), s.API)
		for name, change := range map[string]func(*http.Request){
			"local":        func(*http.Request) {},
			"ipv6":         func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:9", "localhost:7070" },
			"proxy":        func(r *http.Request) { r.Header.Set("X-Forwarded-For", "203.0.113.7") },
			"silent_proxy": func(r *http.Request) { r.Host = "modbox.example.com" },
			"other":        func(r *http.Request) { r.RemoteAddr = "203.0.113.7:9" },
			"administrator": func(r *http.Request) {
				r.RemoteAddr = "203.0.113.7:9"
				r.Header.Set("Authorization", "Bearer "+s.Token)
			},
		} {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.RemoteAddr, r.Host = "127.0.0.1:9", "127.0.0.1:7070"
			change(r)
			rec := httptest.NewRecorder()
			served.ServeHTTP(rec, r)
			if rec.Code != want[name] {
				t.Errorf("access %q, request %s: %d, want %d", access, name, rec.Code, want[name])
			}
		}
	}
}
