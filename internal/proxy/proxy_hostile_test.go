package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/proxy"
)

func TestOtherUpgradesAreRefused(t *testing.T) {
	reached := make(chan struct{}, 10)
	w := newWorld(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- struct{}{} }))
	for _, upgrades := range [][]string{{"h2c"}, {"websocket, h2c"}, {"websocket", "h2c"}, {"TLS/1.2"}} {
		r := w.request("GET", "/", nil)
		r.Header.Set("Connection", "Upgrade, HTTP2-Settings")
		r.Header.Set("HTTP2-Settings", "AAMAAABkAAQAAP__")
		r.Header["Upgrade"] = upgrades
		resp, body := w.do(r)
		if resp.StatusCode != 501 || !strings.Contains(body, "unsupported") {
			t.Errorf("Upgrade %q = %d %s", upgrades, resp.StatusCode, body)
		}
	}
	if len(reached) != 0 {
		t.Errorf("%d refused upgrades reached the sandbox", len(reached))
	}
}

func TestHalfClose(t *testing.T) {
	// A server that answers only when the request is whole and then closes.
	w := newWorld(t, nil)
	w.listen(8080, func(c net.Conn) {
		buf := make([]byte, 4096)
		var got []byte
		for !bytes.Contains(got, []byte("END")) {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			got = append(got, buf[:n]...)
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
	})
	if resp, body := w.do(w.request("POST", "/", strings.NewReader("data END"))); resp.StatusCode != 200 || body != "until the end" {
		t.Errorf("answer %d %q", resp.StatusCode, body)
	}
}

func TestHostileServers(t *testing.T) {
	w := newWorld(t, nil)
	drain := func(c net.Conn) { go func() { _, _ = io.Copy(io.Discard, c) }() }
	for port, serve := range map[uint16]func(net.Conn){
		1001: func(c net.Conn) { drain(c); fmt.Fprint(c, "SSH-2.0-garbage\r\n\r\n\x00\xff") },
		1003: func(c net.Conn) {
			drain(c)
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n")
			for range 10_000 {
				if _, err := fmt.Fprintf(c, "X-Endless: %s\r\n", strings.Repeat("a", 1000)); err != nil {
					return
				}
			}
		},
		1005: func(net.Conn) {},
		1006: func(c net.Conn) {
			drain(c)
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
		},
		1007: func(c net.Conn) { drain(c); fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n") },
	} {
		w.listen(port, serve)
	}
	for _, port := range []int{1001, 1003, 1005, 1006, 1007} {
		t.Run(fmt.Sprint(port), func(t *testing.T) {
			r := w.request("GET", "/", nil)
			r.Host = fmt.Sprintf("%d--%s.box.test", port, w.label)
			if resp, body := w.do(r); resp.StatusCode != 502 || resp.Header.Get(proxy.ErrorHeader) == "" {
				t.Errorf("answer %d %s, want 502", resp.StatusCode, body)
			}
		})
	}
	own := w.request("GET", "/healthz", nil)
	own.Host = "example.com"
	if _, body := w.do(own); body != "the server's own" {
		t.Errorf("after all that the server answers %q", body)
	}
}

func TestServersThatNeverAnswer(t *testing.T) {
	hold := make(chan struct{})
	t.Cleanup(func() { close(hold) })
	for name, serve := range map[string]func(net.Conn){
		"silent": func(net.Conn) { <-hold },
		"hints": func(c net.Conn) {
			for {
				if _, err := fmt.Fprint(c, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"); err != nil {
					return
				}
				<-time.After(time.Millisecond) // so many that the time is over first
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, func(c *proxy.Config) { c.ResponseTimeout = 200 * time.Millisecond })
			w.listen(8080, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1)) // a connection that fails before the request is another test
				serve(c)
			})
			if resp, body := w.do(w.request("GET", "/", nil)); resp.StatusCode != 504 || resp.Header.Get(proxy.ErrorHeader) == "" {
				t.Errorf("answer %d %s, want 504", resp.StatusCode, body)
			}
		})
	}
}

func TestConnectionLimit(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- struct{}{}
		<-release
	}), func(c *proxy.Config) { c.MaxConnections = 2 })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { w.do(w.request("GET", "/", nil)) })
		<-inside
	}
	resp, body := w.do(w.request("GET", "/", nil))
	if resp.StatusCode != 503 || !strings.Contains(body, "maximum") {
		t.Errorf("third request: %d %s", resp.StatusCode, body)
	}
	close(release)
	wg.Wait()
	go func() { <-inside }()
	// Their places are given back a moment after their answers.
	for deadline := time.Now().Add(time.Minute); ; {
		resp, _ := w.do(w.request("GET", "/", nil))
		if resp.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the others ended: %d", resp.StatusCode)
		}
	}
}
