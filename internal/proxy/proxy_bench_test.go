package proxy_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
)

// BenchmarkRequests compares requests through the proxy with the same requests
// straight to the server behind it.
func BenchmarkRequests(b *testing.B) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	b.Cleanup(guest.Close)
	w := &world{ports: map[uint16]string{8080: guest.Listener.Addr().String()}}
	w.sb = sandbox.Sandbox{ID: sandbox.NewID(), HostLabel: "demo", State: sandbox.Running}
	p, err := proxy.New(proxy.Config{URLs: urls(b, "http://example.com", "")}, proxy.Deps{Sandboxes: w, Ports: w, Dialer: w, Links: links(b), Tokens: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	front := httptest.NewServer(p.Wrap(http.NotFoundHandler()))
	b.Cleanup(front.Close)
	for _, tc := range []struct{ name, url string }{{"direct", guest.URL}, {"proxy", front.URL + "/s/demo/"}} {
		b.Run(tc.name, func(b *testing.B) {
			for b.Loop() {
				resp, err := front.Client().Get(tc.url)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
