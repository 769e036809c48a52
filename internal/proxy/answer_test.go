package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/proxy"
)

const (
	endOfHead = "\r\n\r\n"
	// hostileHead acts on a whole origin, as far as a sandbox's server may try.
	hostileHead = "Set-Cookie: evil=1; Domain=box.test\r\nset-cookie: evil=2; Domain=box.test\r\nSet-Cookie : evil=3\r\n" +
		"Strict-Transport-Security: max-age=9\r\nClear-Site-Data: \"*\"\r\nService-Worker-Allowed: /\r\n" +
		"Alt-Svc: h3=\":1\"\r\nReport-To: {}\r\nReporting-Endpoints: a=\"https://evil.test\"\r\nNEL: {}\r\n" +
		"Accept-CH: DPR\r\nCritical-CH: DPR\r\nSet-Login: logged-in\r\nX-Modbox-Error: ended\r\n" +
		"Content-Security-Policy:\r\n sandbox allow-same-origin\r\nContent-Security-Policy: script-src *\r\n"
)

// exchange sends one raw request for path and host, and returns the heads of all
// answers that come before the connection ends, and the bytes after the last head.
func (w *world) exchange(host, path, extra string) (heads []http.Header, statuses []string, rest string) {
	w.t.Helper()
	c, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	closing := "Connection: close\r\n"
	if strings.Contains(extra, "Upgrade") {
		closing = ""
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s\r\n", path, host, closing, extra)
	raw, err := io.ReadAll(c)
	if err != nil {
		w.t.Fatal(err)
	}
	for in := raw; ; {
		head, after, ok := bytes.Cut(in, []byte(endOfHead))
		if !ok {
			w.t.Fatalf("the answer has no end of its head: %q", raw)
		}
		lines := strings.Split(string(head), "\r\n")
		status := strings.Fields(lines[0])[1]
		h := http.Header{}
		for _, line := range lines[1:] {
			name, value, _ := strings.Cut(line, ":")
			h.Add(name, strings.TrimSpace(value))
		}
		heads, statuses = append(heads, h), append(statuses, status)
		if status[0] != '1' || status == "101" {
			return heads, statuses, string(after)
		}
		in = after
	}
}

// answers serves a port with a raw answer, when a request has come.
func (w *world) answers(port uint16, answer string) {
	w.t.Helper()
	w.listen(port, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			fmt.Fprint(c, answer)
		}
	})
}

// TestEveryAnswerIsIsolated checks that a page in path form has an opaque origin, whatever a
// sandbox's server sends, and that no header that affects the whole origin passes.
func TestEveryAnswerIsIsolated(t *testing.T) {
	hostile := hostileHead
	early := func(status string) string { return "HTTP/1.1 " + status + " Early\r\n" + hostile + "\r\n" }
	page := "Content-Type: text/html\r\nContent-Length: 4\r\n\r\npage"
	for name, c := range map[string]struct {
		answer, status string
	}{
		"200":            {"HTTP/1.1 200 OK\r\n" + hostile + page, "200"},
		"100_first":      {early("100") + "HTTP/1.1 200 OK\r\n" + hostile + page, "200"},
		"102_first":      {early("102") + "HTTP/1.1 200 OK\r\n" + hostile + page, "200"},
		"103_first":      {early("103") + "HTTP/1.1 200 OK\r\n" + hostile + page, "200"},
		"103_many":       {strings.Repeat(early("103"), 20) + "HTTP/1.1 200 OK\r\n" + page, "200"},
		"199_first":      {early("199") + "HTTP/1.1 200 OK\r\n" + page, "200"},
		"103_then_404":   {early("103") + "HTTP/1.1 404 Not Found\r\n" + hostile + page, "404"},
		"103_then_error": {early("103") + "garbage\r\n\r\n", "502"},
		"103_then_end":   {early("103"), "502"},
		"206":            {"HTTP/1.1 206 Partial\r\n" + hostile + page, "206"},
		"204":            {"HTTP/1.1 204 No Content\r\n" + hostile + "\r\n", "204"},
		"302":            {"HTTP/1.1 302 Found\r\nLocation: /x\r\n" + hostile + page, "302"},
		"304":            {"HTTP/1.1 304 Not Modified\r\n" + hostile + "\r\n", "304"},
		"401":            {"HTTP/1.1 401 Unauthorized\r\n" + hostile + page, "401"},
		"500":            {"HTTP/1.1 500 Oops\r\n" + hostile + page, "500"},
		"999":            {"HTTP/1.1 999 Oops\r\n" + hostile + page, "999"},
		"099":            {"HTTP/1.1 099 Oops\r\n" + hostile + page, "502"},
		"000":            {"HTTP/1.1 000 Oops\r\n" + hostile + page, "502"},
		"http_1.0":       {"HTTP/1.0 200 OK\r\n" + hostile + "Content-Type: text/html\r\n\r\npage", "200"},
		"no_type":        {"HTTP/1.1 200 OK\r\n" + hostile + "\r\n<html>", "200"},
		"refresh":        {"HTTP/1.1 200 OK\r\nRefresh: 0; url=/\r\n" + hostile + page, "200"},
		"named_by_connection": {
			"HTTP/1.1 200 OK\r\nConnection: Content-Security-Policy, Set-Cookie\r\n" + hostile + page, "200",
		},
		"bare_cr":       {"HTTP/1.1 200 OK\r\nX-A: a\rSet-Cookie: evil=4\r\n" + hostile + page, "502"},
		"control":       {"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\n" + hostile + page, "502"},
		"folded_cookie": {"HTTP/1.1 200 OK\r\nX-A: a\r\n Set-Cookie: evil=5\r\nSet-Cookie:\r\n\tevil=6\r\n" + hostile + page, "200"},
		"trailers": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Set-Cookie, X-Sum, Content-Security-Policy\r\n" + hostile +
				"\r\n4\r\npage\r\n0\r\nX-Sum: 7\r\n" + hostile + "\r\n", "200",
		},
		"trailers_unannounced": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n" + hostile + "\r\n", "200",
		},
		"refused_upgrade": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + hostile + "\r\n", "502"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.answers(8080, c.answer)
			heads, statuses, rest := w.exchange("example.com", "/s/"+w.label+"/", "")
			if want := []string{c.status}; !slices.Equal(statuses, want) {
				t.Errorf("statuses %v, want %v", statuses, want)
			}
			for i, h := range heads {
				checkIsolated(t, statuses[i], h)
			}
			if strings.Contains(rest, "evil") || strings.Contains(rest, "Strict-Transport") {
				t.Errorf("after the head came %q", rest)
			}
		})
	}
}

// checkIsolated fails when an answer in path form can act on its whole origin.
func checkIsolated(t *testing.T, status string, h http.Header) {
	t.Helper()
	policies := h.Values("Content-Security-Policy")
	if len(policies) == 0 || !strings.HasPrefix(policies[0], "sandbox ") || strings.Contains(policies[0], "allow-same-origin") {
		t.Errorf("%s: Content-Security-Policy = %q", status, policies)
	}
	for name, values := range h {
		switch http.CanonicalHeaderKey(strings.TrimSpace(name)) {
		case "Set-Cookie", "Strict-Transport-Security", "Clear-Site-Data", "Service-Worker-Allowed", "Alt-Svc", "Report-To",
			"Reporting-Endpoints", "Nel", "Accept-Ch", "Critical-Ch", "Set-Login":
			t.Errorf("%s: %s: %q passes", status, name, values)
		case proxy.ErrorHeader:
			if values[0] == "ended" {
				t.Errorf("%s: a sandbox's own %s passes", status, name)
			}
		}
		if strings.ContainsAny(strings.Join(values, ""), "\r\x00") {
			t.Errorf("%s: %s: %q has control characters", status, name, values)
		}
	}
}

// TestTrailersPass checks that harmless trailers arrive, announced or not.
func TestTrailersPass(t *testing.T) {
	for name, announce := range map[string]string{"announced": "Trailer: X-Sum\r\n", "unannounced": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.answers(8080, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announce+"\r\n4\r\npage\r\n0\r\nX-Sum: 7\r\n\r\n")
			for _, path := range []string{"/", "/s/" + w.label + "/"} {
				if resp, body := w.do(w.request("GET", path, nil)); body != "page" || resp.Trailer.Get("X-Sum") != "7" {
					t.Errorf("GET %s: body %q, trailers %v", path, body, resp.Trailer)
				}
			}
		})
	}
}

// TestUpgradesAreFiltered: a switch to WebSocket passes no more than any answer.
func TestUpgradesAreFiltered(t *testing.T) {
	hostile := hostileHead
	w := newWorld(t, nil)
	w.answers(8080, "HTTP/1.1 103 Early\r\n"+hostile+"\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+hostile+"\r\nbye")
	heads, statuses, rest := w.exchange("example.com", "/s/"+w.label+"/", "Connection: Upgrade\r\nUpgrade: websocket\r\n")
	if !slices.Equal(statuses, []string{"101"}) || rest != "bye" {
		t.Fatalf("statuses %v, then %q", statuses, rest)
	}
	heads[0].Set("Content-Security-Policy", "sandbox ") // no document: it needs none
	checkIsolated(t, "101", heads[0])
	if v := heads[0].Get("Upgrade"); v != "websocket" {
		t.Errorf("Upgrade = %q", v)
	}
}

// TestHostFormKeepsToItsHost: in host form a sandbox acts on its own host, and not on its neighbours.
func TestHostFormKeepsToItsHost(t *testing.T) {
	w := newWorld(t, nil)
	w.answers(8080, "HTTP/1.1 103 Early\r\nSet-Cookie: a=1; Domain=box.test\r\n\r\nHTTP/1.1 200 OK\r\n"+
		"Set-Cookie: a=2; dOmAiN=box.test; Path=/\r\nSet-Cookie:\r\n b=3;\r\n Domain=.box.test\r\nClear-Site-Data: \"cache\", \"cookies\"\r\nContent-Length: 0\r\n\r\n")
	heads, statuses, _ := w.exchange(w.label+".box.test", "/", "")
	if !slices.Equal(statuses, []string{"200"}) {
		t.Fatalf("statuses %v", statuses)
	}
	if got, want := heads[0].Values("Set-Cookie"), []string{"a=2; Path=/", "b=3"}; !slices.Equal(got, want) {
		t.Errorf("Set-Cookie = %q, want %q", got, want)
	}
	if v := heads[0].Values("Clear-Site-Data"); len(v) > 0 {
		t.Errorf("Clear-Site-Data = %q: it clears the cookies of the whole domain", v)
	}
	if v := heads[0].Values("Content-Security-Policy"); len(v) > 0 {
		t.Errorf("Content-Security-Policy = %q", v)
	}
}

// TestPathFormCanBeOff: no sandbox answers below the server's own address then, and no route of the server does.
func TestPathFormCanBeOff(t *testing.T) {
	w := newWorld(t, echo, func(c *proxy.Config) { c.RefusePaths = true })
	for _, path := range []string{"/s/" + w.label + "/", "/s/" + w.label, "/s/3000--" + w.label + "/x", "/s/" + w.label + "/modbox/api/files"} {
		resp, body := w.do(w.request("GET", path, nil))
		if resp.StatusCode != 404 || resp.Header.Get(proxy.ErrorHeader) == "" || !strings.Contains(body, "path form") {
			t.Errorf("GET %s = %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, _ := w.do(w.request("GET", "/", nil)); resp.StatusCode != 200 {
		t.Errorf("host form = %d", resp.StatusCode)
	}
}
