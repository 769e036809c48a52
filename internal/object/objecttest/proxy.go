package objecttest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Proxy is a proxy before a server, which lets reads of objects wait.
type Proxy struct {
	server *httptest.Server

	mu      sync.Mutex
	blocked []string      // parts of the paths of the objects whose reads wait; guarded by mu
	opened  chan struct{} // closed when the reads may go on; guarded by mu
	waiting int           // guarded by mu
}

// Proxy returns a proxy before the server, which lets everything pass. It ends with the test.
func (s *Server) Proxy(t *testing.T) *Proxy {
	p := &Proxy{opened: make(chan struct{})}
	to := &url.URL{Scheme: "http", Host: s.address}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.pass(r) {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.server.Close)
	t.Cleanup(func() { p.Block() })
	return p
}

// pass waits until a request may go on, and reports false if its client has left before.
func (p *Proxy) pass(r *http.Request) bool {
	p.mu.Lock()
	opened := p.opened
	if r.Method != http.MethodGet || !slices.ContainsFunc(p.blocked, func(part string) bool { return strings.Contains(r.URL.Path, part) }) {
		p.mu.Unlock()
		return true
	}
	p.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting--
	}()
	select {
	case <-opened:
		return true
	case <-r.Context().Done():
		return false
	}
}

// URL returns the URL of a prefix of the bucket behind the proxy.
func (p *Proxy) URL(prefix string) string {
	return "s3://bucket/" + prefix + "?region=us-east-1&use_path_style=true&endpoint=" + p.server.URL
}

// Block lets reads of objects whose path contains one of the parts wait from now on, and the reads that waited before go on.
func (p *Proxy) Block(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.opened)
	p.blocked, p.opened = parts, make(chan struct{})
}

// Waiting returns the number of reads that wait.
func (p *Proxy) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}
