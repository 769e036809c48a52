package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/sandbox"
)

// everything stands for the management routes: it takes every request that it is asked about.
type everything struct{}

func (everything) ServeSandbox(w http.ResponseWriter, _ *http.Request, _ sandbox.Sandbox) bool {
	_, _ = io.WriteString(w, "a shell")
	return true
}

// publish has the sandbox publish port 8080 for these visitors, and returns the port.
func (w *world) publish(access sandbox.PortAccess) sandbox.PublishedPort {
	w.set(func(sb *sandbox.Sandbox) {
		sb.Publish([]uint16{8080}, time.Now())
		sb.Published[0].Access = access
	})
	return w.sb.Published[0]
}

// portRequest is a request to the URL of a published port, in either form.
func (w *world) portRequest(form, method, label, path string, body io.Reader) *http.Request {
	w.t.Helper()
	target, host := w.server.URL+path, label+".box.test"
	if form == "path" {
		target, host = w.server.URL+"/s/"+label+path, ""
	}
	r, err := http.NewRequestWithContext(w.t.Context(), method, target, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	return r
}

func (w *world) link(p sandbox.PublishedPort, expires time.Time) string {
	w.t.Helper()
	token, err := w.links.Sign(preview.Link, w.sb.ID, p, preview.Grant{Maker: maker, Expires: expires})
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

var forms = []string{"host", "path"}

// TestPortURLLeadsToThePortOnly tries every way to the management routes from the URL of a port.
func TestPortURLLeadsToThePortOnly(t *testing.T) {
	w := newWorldWith(t, echo, everything{})
	p := w.publish(sandbox.PortPublic)
	for _, form := range forms {
		for _, path := range []string{"/", "/modbox/api/exec", "/modbox/api/exec/", "//modbox/api/exec", "/%6dodbox/api/exec", "/x/../modbox/api/exec", "/execute", "/modbox/api/files"} {
			for _, method := range []string{"GET", "POST", "DELETE"} {
				resp, body := w.do(w.portRequest(form, method, p.Label, path, nil))
				if resp.StatusCode != 200 || strings.Contains(body, "a shell") || !strings.Contains(body, `"uri"`) {
					t.Errorf("%s form: %s %s = %d %q, want the server on the port", form, method, path, resp.StatusCode, body)
				}
			}
		}
		for _, label := range []string{"8080--" + p.Label, "3000--" + p.Label, p.Label + "--8080"} {
			if resp, body := w.do(w.portRequest(form, "POST", label, "/modbox/api/exec", nil)); resp.StatusCode != 404 {
				t.Errorf("%s form: %s = %d %q, want 404", form, label, resp.StatusCode, body)
			}
		}
	}
	if _, body := w.do(w.request("POST", "/modbox/api/exec", nil)); body != "a shell" {
		t.Errorf("the sandbox's own URL = %q: the test does not test anything", body)
	}
}

// TestPortURLTellsNothing has errors at the URL of a port say nothing of its sandbox.
func TestPortURLTellsNothing(t *testing.T) {
	w := newWorld(t, echo)
	p := w.publish(sandbox.PortPublic)
	w.set(func(sb *sandbox.Sandbox) { sb.Publish([]uint16{8080, 81}, time.Now()) })
	w.set(func(sb *sandbox.Sandbox) { sb.Name = "secret-project" })
	closed := w.sb.Published[1]
	look := func(label string, want int) {
		t.Helper()
		resp, body := w.do(w.portRequest("host", "GET", label, "/", nil))
		if resp.StatusCode != want || strings.Contains(body, "secret-project") || strings.Contains(body, "alice") {
			t.Errorf("%d %s, want %d and no names", resp.StatusCode, body, want)
		}
	}
	look(closed.Label, 502)
	w.set(func(sb *sandbox.Sandbox) { sb.State = sandbox.Provisioning })
	look(p.Label, 503)
	w.set(func(sb *sandbox.Sandbox) {
		sb.State, sb.Cause = sandbox.Destroying, &sandbox.Cause{Code: sandbox.CauseDestroyed, Message: "it was destroyed by alice"}
	})
	look(p.Label, 410)
	look(sandbox.PortLabel(8080), 404)
}

func TestPrivatePort(t *testing.T) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			w := newWorld(t, echo)
			p := w.publish(sandbox.PortPrivate)
			other := w.sb
			other.ID = sandbox.NewID()
			foreign, err := w.links.Sign(preview.Link, other.ID, p, preview.Grant{Maker: maker, Expires: time.Now().Add(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			good := w.link(p, time.Now().Add(time.Hour))
			for _, tc := range []struct {
				name, header, value, query string
				want                       int
			}{
				{"nothing", "", "", "", 401},
				{"api_token", "Authorization", "Bearer " + apiToken, "", 200},
				{"api_token_in_own_header", proxy.TokenHeader, apiToken, "", 200},
				{"unknown_token", proxy.TokenHeader, "mbx_wrong", "", 401},
				{"others_token", proxy.TokenHeader, foreignToken, "", 403},
				{"password_of_the_server_inside", "Authorization", "Basic YTpi", "", 401},
				{"link_as_header", proxy.TokenHeader, good, "", 200},
				{"link_as_bearer", "Authorization", "Bearer " + good, "", 200},
				{"link", "", "", "?modbox_token=" + good, 303},
				{"link_escaped", "", "", "?%6dodbox_token=" + good, 303},
				{"api_token_in_url", "", "", "?modbox_token=" + apiToken, 401},
				{"expired_link", "", "", "?modbox_token=" + w.link(p, time.Now()), 401},
				{"link_of_another_sandbox", "", "", "?modbox_token=" + foreign, 401},
				{"link_as_cookie", "Cookie", "modbox_port=" + good, "", 401},
				{"garbage_in_cookie", "Cookie", "modbox_port=x", "", 401},
			} {
				dials := w.dials.Load()
				r := w.portRequest(form, "GET", p.Label, "/"+tc.query, nil)
				if tc.header != "" {
					r.Header.Set(tc.header, tc.value)
				}
				resp, body := w.do(r)
				if resp.StatusCode != tc.want {
					t.Errorf("%s: %d %s, want %d", tc.name, resp.StatusCode, body, tc.want)
				}
				if resp.StatusCode != 200 && w.dials.Load() != dials {
					t.Errorf("%s: the sandbox was reached, which resumes a paused one", tc.name)
				}
				if strings.Contains(body, "mbx_") || strings.Contains(body, preview.LinkPrefix) || strings.Contains(body, "modbox_token=") {
					t.Errorf("%s: the sandbox got the token: %s", tc.name, body)
				}
			}
			// The label of the sandbox goes around nothing.
			for _, label := range []string{w.label, "8080--" + w.label} {
				if resp, body := w.do(w.portRequest(form, "GET", label, "/", nil)); resp.StatusCode != 401 {
					t.Errorf("%s = %d %s, want 401", label, resp.StatusCode, body)
				}
				r := w.portRequest(form, "GET", label, "/", nil)
				r.Header.Set(proxy.TokenHeader, apiToken)
				if resp, body := w.do(r); resp.StatusCode != 200 {
					t.Errorf("%s with a token = %d %s, want 200", label, resp.StatusCode, body)
				}
			}
		})
	}
}

// TestLinkBecomesCookie follows a browser: the token leaves the address bar, and what
// it gets instead is for this port alone and for no script.
func TestLinkBecomesCookie(t *testing.T) {
	for _, tc := range []struct{ form, public, name, path string }{
		{"host", "https://example.com", "__Host-modbox_port", "/"},
		{"host", "http://example.com", "modbox_port", "/"},
		{"path", "https://example.com", "__Secure-modbox_port", "/s/LABEL/"},
		{"path", "http://example.com", "modbox_port", "/s/LABEL/"},
	} {
		t.Run(tc.form+"_"+tc.public[:5], func(t *testing.T) {
			w := newWorld(t, echo, func(c *proxy.Config) { c.URLs = urls(t, tc.public, "box.test") })
			p := w.publish(sandbox.PortPrivate)
			link := w.link(p, time.Now().Add(time.Hour))
			resp, _ := w.do(w.portRequest(tc.form, "GET", p.Label, "//evil.example/a%2Fb?x=1&modbox_token="+link+"&y=%zz", nil))
			want := "/evil.example/a%2Fb?x=1&y=%zz"
			if tc.form == "path" {
				want = "/s/" + p.Label + want
			}
			if resp.StatusCode != 303 || resp.Header.Get("Location") != want {
				t.Fatalf("%d to %q, want 303 to %q", resp.StatusCode, resp.Header.Get("Location"), want)
			}
			if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
				t.Errorf("header %v", resp.Header)
			}
			cookies := resp.Cookies()
			if len(cookies) != 1 {
				t.Fatalf("cookies %v, want one", cookies)
			}
			c := cookies[0]
			secure := strings.HasPrefix(tc.public, "https")
			if c.Name != tc.name || c.Path != strings.Replace(tc.path, "LABEL", p.Label, 1) || c.Domain != "" || !c.HttpOnly || c.Secure != secure || c.MaxAge <= 0 {
				t.Errorf("cookie %v", c)
			}
			r := w.portRequest(tc.form, "GET", p.Label, "/asset.js", nil)
			r.AddCookie(&http.Cookie{Name: "theirs", Value: "1"})
			r.AddCookie(&http.Cookie{Name: c.Name, Value: "set by a neighbour"})
			r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
			r.Header.Set("Referer", "http://example.com/?modbox_token="+link)
			resp, body := w.do(r)
			if resp.StatusCode != 200 {
				t.Fatalf("with the cookie: %d %s", resp.StatusCode, body)
			}
			got := parseEcho(t, body).Header
			wantCookie := "theirs=1"
			if tc.form == "path" {
				wantCookie = ""
			}
			if got.Get("Cookie") != wantCookie || got.Get("Referer") != "" {
				t.Errorf("the sandbox got the cookies %q and the referer %q", got.Get("Cookie"), got.Get("Referer"))
			}
			// Not a link, not for another label.
			if resp, _ := w.do(w.portRequest(tc.form, "GET", p.Label, "/?modbox_token="+url.QueryEscape(c.Value), nil)); resp.StatusCode != 401 {
				t.Errorf("the cookie as a link: %d", resp.StatusCode)
			}
			w.set(func(sb *sandbox.Sandbox) { sb.Published[0].Label = sandbox.PortLabel(8080) })
			r = w.portRequest(tc.form, "GET", w.sb.Published[0].Label, "/", nil)
			r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
			if resp, _ := w.do(r); resp.StatusCode != 401 {
				t.Errorf("the cookie at the next URL of the port: %d", resp.StatusCode)
			}
		})
	}
}

// TestOursNeverReachesTheSandbox checks that every form of our credentials is removed, also for a
// public port.
func TestOursNeverReachesTheSandbox(t *testing.T) {
	w := newWorld(t, echo)
	p := w.publish(sandbox.PortPublic)
	r := w.portRequest("host", "POST", p.Label, "/a?b=1&modbox_token=mbl_x&%6dodbox%5ftoken=mbl_y&c;d", nil)
	r.Header["Authorization"] = []string{"Basic YTpi", "Bearer mbx_1", "bearer  mbs_2", "Bearer mbl_3"}
	r.Header.Set(proxy.TokenHeader, "mbx_4")
	r.Header["Cookie"] = []string{"a=1; modbox_port=v; b=2", "__Host-modbox_port=v", " __Secure-modbox_port = v;c=3"}
	_, body := w.do(r)
	got := parseEcho(t, body)
	if got.URI != "/a?b=1&c;d" {
		t.Errorf("the sandbox was asked for %s", got.URI)
	}
	if a := got.Header.Values("Authorization"); len(a) != 1 || a[0] != "Basic YTpi" {
		t.Errorf("Authorization %q", a)
	}
	if c := got.Header.Get("Cookie"); c != "a=1; b=2; c=3" {
		t.Errorf("Cookie %q", c)
	}
	if strings.Contains(body, "mbx_") || strings.Contains(body, "mbl_") || strings.Contains(body, "mbs_") || strings.Contains(body, "modbox_port") {
		t.Errorf("the sandbox got %s", body)
	}
}

// websocketEcho sends back what it gets, until the connection breaks.
var websocketEcho = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		typ, data, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), typ, data) != nil {
			return
		}
	}
})

func (w *world) websocket(form, label, path string, header http.Header) *websocket.Conn {
	w.t.Helper()
	r := w.portRequest(form, "GET", label, path, nil)
	c, _, err := websocket.Dial(w.t.Context(), r.URL.String(), &websocket.DialOptions{Host: r.Host, HTTPHeader: header})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.CloseNow() })
	if err := c.Write(w.t.Context(), websocket.MessageText, []byte("x")); err != nil {
		w.t.Fatal(err)
	}
	if _, data, err := c.Read(w.t.Context()); err != nil || string(data) != "x" {
		w.t.Fatalf("echo %q, %v", data, err)
	}
	return c
}

// TestRevokedPortCutsOff has open connections end with the label, not at the next request.
func TestRevokedPortCutsOff(t *testing.T) {
	for _, form := range forms {
		w := newWorld(t, websocketEcho)
		p := w.publish(sandbox.PortPublic)
		c, own := w.websocket(form, p.Label, "/", nil), w.websocket(form, w.label, "/", nil)
		w.revoke()
		for _, c := range []*websocket.Conn{c, own} {
			if _, _, err := c.Read(t.Context()); err == nil {
				t.Error("a revoked port goes on answering")
			}
		}
	}
}

// TestStreamIsCutOff is the same for an answer that is on its way.
func TestStreamIsCutOff(t *testing.T) {
	begun := make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	}))
	p := w.publish(sandbox.PortPublic)
	resp, err := w.server.Client().Do(w.portRequest("host", "GET", p.Label, "/", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-begun
	w.revoke()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("read %q and its proper end of an answer that was cut off", body)
	}
}

// TestLinkEndsWebSocket has a connection end with the link that let it in.
func TestLinkEndsWebSocket(t *testing.T) {
	t.Parallel() // it takes some seconds
	w := newWorld(t, websocketEcho)
	p := w.publish(sandbox.PortPrivate)
	link := w.link(p, time.Now().Add(5*time.Second))
	for _, c := range []*websocket.Conn{
		w.websocket("host", p.Label, "/?modbox_token="+link, nil),
		w.websocket("path", p.Label, "/", http.Header{proxy.TokenHeader: {link}}),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("after the link has expired: %v", err)
		}
		cancel()
	}
	kept := w.websocket("host", p.Label, "/", http.Header{proxy.TokenHeader: {apiToken}})
	if err := kept.Ping(kept.CloseRead(t.Context())); err != nil {
		t.Errorf("a connection with an API token: %v", err)
	}
}

// TestLinksEndWithTheirMaker checks that a link, its cookie and the connections opened by them end
// when the token that made the link is revoked, as do connections opened by the token itself.
func TestLinksEndWithTheirMaker(t *testing.T) {
	for _, form := range forms {
		t.Run(form, func(t *testing.T) {
			w := newWorld(t, websocketEcho)
			p := w.publish(sandbox.PortPrivate)
			link := w.link(p, time.Now().Add(time.Hour))
			resp, _ := w.do(w.portRequest(form, "GET", p.Label, "/?modbox_token="+link, nil))
			cookies := resp.Cookies()
			if resp.StatusCode != 303 || len(cookies) != 1 {
				t.Fatalf("a good link: %d, %v", resp.StatusCode, cookies)
			}
			open := []*websocket.Conn{
				w.websocket(form, p.Label, "/?modbox_token="+link, nil),
				w.websocket(form, p.Label, "/", http.Header{"Cookie": {cookies[0].String()}}),
				w.websocket(form, p.Label, "/", http.Header{proxy.TokenHeader: {apiToken}}),
			}
			w.changeTokens(func() {}) // of somebody else
			for i, c := range open {
				if err := c.Write(t.Context(), websocket.MessageText, []byte("still")); err != nil {
					t.Errorf("connection %d after a change of another token: %v", i, err)
				}
				if _, _, err := c.Read(t.Context()); err != nil {
					t.Errorf("connection %d after a change of another token: %v", i, err)
				}
			}
			w.changeTokens(func() { w.gone = true })
			for i, c := range open {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
					t.Errorf("connection %d after its token was revoked: %v", i, err)
				}
				cancel()
			}
			for name, r := range map[string]*http.Request{
				"link":   w.portRequest(form, "GET", p.Label, "/?modbox_token="+link, nil),
				"cookie": w.portRequest(form, "GET", p.Label, "/", nil),
			} {
				if name == "cookie" {
					r.AddCookie(cookies[0])
				}
				if resp, body := w.do(r); resp.StatusCode != 401 || !strings.Contains(body, "revoked") {
					t.Errorf("a %s of a revoked token: %d %s, want 401", name, resp.StatusCode, body)
				}
			}
		})
	}
}

// TestTokenEndsWebSocket has a connection end when the token that let it in expires.
func TestTokenEndsWebSocket(t *testing.T) {
	t.Parallel() // it takes some seconds
	w := newWorld(t, websocketEcho)
	p := w.publish(sandbox.PortPrivate)
	w.expires = time.Now().Add(5 * time.Second)
	c := w.websocket("host", p.Label, "/", http.Header{proxy.TokenHeader: {apiToken}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("after the token has expired: %v", err)
	}
}

// TestGuessing checks that many unknown labels are answered without a lookup, and that correct
// labels still work.
func TestGuessing(t *testing.T) {
	w := newWorld(t, echo)
	p := w.publish(sandbox.PortPrivate)
	limited := 0
	for range 300 {
		resp, _ := w.do(w.portRequest("path", "GET", sandbox.HostLabel("guess"), "/", nil))
		switch resp.StatusCode {
		case 404:
		case 429:
			limited++
		default:
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	w.mu.Lock()
	reads := w.reads
	w.mu.Unlock()
	if limited == 0 || reads != 300-limited {
		t.Errorf("%d guesses were refused, %d were looked up on the disk", limited, reads)
	}
	if resp, _ := w.do(w.portRequest("path", "GET", p.Label, "/?modbox_token=mbl_x", nil)); resp.StatusCode != 429 {
		t.Errorf("a wrong link after many guesses: %d, want 429", resp.StatusCode)
	}
	r := w.portRequest("path", "GET", p.Label, "/", nil)
	r.Header.Set(proxy.TokenHeader, w.link(p, time.Now().Add(time.Hour)))
	if resp, _ := w.do(r); resp.StatusCode != 200 {
		t.Errorf("a right link from the same address: %d", resp.StatusCode)
	}
	if resp, _ := w.do(w.request("GET", "/", nil)); resp.StatusCode != 401 {
		t.Errorf("a living sandbox's URL from the same address: %d, want its 401", resp.StatusCode)
	}
}
