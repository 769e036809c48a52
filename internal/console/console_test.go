package console_test

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth/sso/ssotest"
)

func TestMain(m *testing.M) {
	ssotest.Main()
	os.Exit(m.Run())
}

const origin = "http://" + apitest.ConsoleHost

// browser makes requests to the console as a page of it does, with one cookie.
type browser struct {
	s      *apitest.Server
	cookie *http.Cookie
}

// request returns a request of a page of the console.
func (b *browser) request(method, path string, body any) *http.Request {
	r := b.s.Request(method, path, body)
	r.Host = apitest.ConsoleHost
	r.Header.Del("Authorization")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if b.cookie != nil {
		r.AddCookie(b.cookie)
	}
	return r
}

// do makes a request, expects a status, and keeps the cookie of the answer.
func (b *browser) do(status int, method, path string, body any) *apitest.Answer {
	b.s.T.Helper()
	a := b.s.Send(b.request(method, path, body))
	if a.Status != status {
		b.s.T.Fatalf("%s %s: %d %s, want %d", method, path, a.Status, a.Body, status)
	}
	b.keep(a)
	return a
}

func (b *browser) keep(a *apitest.Answer) {
	for _, c := range (&http.Response{Header: a.Header}).Cookies() {
		if c.Name == "__Host-modbox-session" {
			b.cookie = c
		}
		if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.Path != "/" || c.Domain != "" || c.SameSite == http.SameSiteNoneMode {
			b.s.T.Errorf("the cookie %q is not safe", c.Raw)
		}
	}
}

// password makes a user with a password, and returns its name.
func password(s *apitest.Server) string {
	var made struct{ Code string }
	s.Want(201, "POST", "/v1/users", map[string]any{"name": "ada"}).Into(s.T, &made)
	s.Want(200, "POST", "/v1/auth/accept", map[string]any{"code": made.Code, "password": "correct horse"})
	return "ada"
}

func TestOnlyTheConsolesPagesUseTheCookie(t *testing.T) {
	s := apitest.New(t)
	b := &browser{s: s}
	b.do(204, "POST", "/session/token", map[string]any{"token": s.Token})
	for name, c := range map[string]struct {
		site, from string
		want       int
	}{
		"its page":                           {"same-origin", "", 200},
		"its page, with an origin":           {"same-origin", origin, 200},
		"a WebSocket of its page":            {"", origin, 200},
		"a page of a sandbox, same site":     {"same-site", "http://p3000-abc.console.localhost", 403},
		"a page of a sandbox":                {"cross-site", "http://p3000-abc.localhost", 403},
		"a page without an origin":           {"cross-site", "null", 403},
		"a sandboxed page of this host":      {"same-origin", "null", 403},
		"another port of this host":          {"", origin + ":8080", 403},
		"the same host over another scheme":  {"", "https://" + apitest.ConsoleHost, 403},
		"a request that tells two things":    {"same-origin", "http://evil.test", 403},
		"an address that the user has typed": {"none", "", 403},
		"a program":                          {"", "", 403},
	} {
		for _, path := range []string{"/v1/whoami", "/w/default/v1/whoami", "/v1/auth/providers"} {
			r := b.request("GET", path, nil)
			r.Header.Del("Sec-Fetch-Site")
			if c.site != "" {
				r.Header.Set("Sec-Fetch-Site", c.site)
			}
			if c.from != "" {
				r.Header.Set("Origin", c.from)
			}
			a := s.Send(r)
			if a.Status != c.want {
				t.Errorf("%s: %s answers %d %s, want %d", name, path, a.Status, a.Body, c.want)
			}
			if a.Header.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%s: headers of %s: %v", name, path, a.Header)
			}
		}
	}
	for _, c := range [][2]string{{"POST", "/session"}, {"POST", "/session/token"}, {"POST", "/session/code"}, {"DELETE", "/session"}, {"GET", "/session/providers/acme"}} {
		r := b.request(c[0], c[1], map[string]any{})
		r.Header.Set("Sec-Fetch-Site", "same-site")
		if a := s.Send(r); a.Status != 403 || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s %s of another page = %d, %s", c[0], c[1], a.Status, a.Header.Get("Set-Cookie"))
		}
	}
	r := b.request("GET", "/v1/whoami", nil)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	if a := s.Send(r); a.Status != 403 {
		t.Errorf("a link of the console's page to the API = %d", a.Status)
	}
	b.do(200, "GET", "/v1/whoami", nil)
}

func TestSession(t *testing.T) {
	s := apitest.New(t)
	name := password(s)
	b := &browser{s: s}
	b.do(401, "GET", "/v1/whoami", nil)
	b.do(401, "POST", "/session", map[string]any{"username": name, "password": "a guess"})
	b.do(422, "POST", "/session", map[string]any{"username": name, "passwort": "x"})
	if b.cookie != nil {
		t.Fatalf("a sign-in that was refused sets %s", b.cookie)
	}
	b.do(204, "POST", "/session", map[string]any{"username": name, "password": "correct horse"})
	if b.cookie.MaxAge != 12*3600 || b.cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie = %s", b.cookie)
	}
	var who struct{ Name string }
	if b.do(200, "GET", "/v1/whoami", nil).Into(t, &who); who.Name != name {
		t.Errorf("whoami = %+v", who)
	}

	// The header of a request does not count, here or against the cookie.
	r := b.request("GET", "/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer "+s.Token)
	if s.Send(r).Into(t, &who); who.Name != name {
		t.Errorf("whoami with a header = %+v", who)
	}
	r = (&browser{s: s}).request("GET", "/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer "+s.Token)
	if a := s.Send(r); a.Status != 401 {
		t.Errorf("a request without the cookie = %d", a.Status)
	}

	// The end of the session.
	was := *b.cookie
	b.do(204, "DELETE", "/session", nil)
	if b.cookie.MaxAge >= 0 || b.cookie.Value != "" {
		t.Errorf("cookie after the sign-out = %s", b.cookie)
	}
	b.cookie = &was
	b.do(401, "GET", "/v1/whoami", nil)
	b.do(204, "DELETE", "/session", nil) // again, as from another tab

	b.do(204, "POST", "/session", map[string]any{"username": name, "password": "correct horse"})
	b.do(204, "DELETE", "/v1/account/sessions", nil) // everywhere
	b.do(401, "GET", "/v1/whoami", nil)
}

func TestSignInByCode(t *testing.T) {
	s := apitest.New(t)
	var made struct{ Code string }
	s.Want(201, "POST", "/v1/users", map[string]any{"name": "bob"}).Into(t, &made)
	b := &browser{s: s}
	b.do(401, "POST", "/session/code", map[string]any{"code": "mbi_wrong", "password": "correct horse"})
	b.do(204, "POST", "/session/code", map[string]any{"code": made.Code, "password": "correct horse"})
	b.do(200, "GET", "/v1/whoami", nil)
}

func TestSignInByToken(t *testing.T) {
	s := apitest.New(t)
	b := &browser{s: s}
	for token, want := range map[string]int{"": 422, "mbs_x": 422, "mbx_" + strings.Repeat("a", 43): 401} {
		b.do(want, "POST", "/session/token", map[string]any{"token": token})
	}
	var made struct{ ID, Token string }
	s.Want(201, "POST", "/v1/tokens", map[string]any{"description": "reader", "scopes": []string{"sandboxes:read"}}).Into(t, &made)
	b.do(204, "POST", "/session/token", map[string]any{"token": " " + made.Token + "\n"})
	b.do(200, "GET", "/v1/sandboxes", nil)
	b.do(403, "POST", "/v1/sandboxes", map[string]any{})
	was := *b.cookie
	b.do(204, "DELETE", "/session", nil)
	b.cookie = &was
	b.do(200, "GET", "/v1/sandboxes", nil) // the token goes on
	s.Want(204, "DELETE", "/v1/tokens/"+made.ID, nil)
	b.do(401, "GET", "/v1/sandboxes", nil)
}

func TestPagesGetNoTokens(t *testing.T) {
	s := apitest.New(t)
	name := password(s)
	b := &browser{s: s}
	for _, path := range []string{"/v1/auth/login", "/w/default/v1/auth/login", "/w/default/v1/%61uth/login", "/v1/%61uth/login", "/w/default%2Fv1/v1/auth/login"} {
		if a := b.do(404, "POST", path, map[string]any{"username": name, "password": "correct horse"}); strings.Contains(string(a.Body), "access_token") {
			t.Errorf("%s answers %s", path, a.Body)
		}
	}
}

func TestWorkspaceOfAPath(t *testing.T) {
	s := apitest.New(t)
	var other struct{ ID string }
	s.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "Other", "slug": "other"}).Into(t, &other)
	b := &browser{s: s}
	b.do(204, "POST", "/session/token", map[string]any{"token": s.Token})
	var who struct {
		Workspace string `json:"workspace_id"`
	}
	for _, ref := range []string{other.ID, "other"} {
		if b.do(200, "GET", "/w/"+ref+"/v1/whoami", nil).Into(t, &who); who.Workspace != other.ID {
			t.Errorf("in %s: whoami = %+v", ref, who)
		}
	}
	b.do(404, "GET", "/w/nowhere/v1/whoami", nil)
	// Names of sandboxes may have characters that are encoded.
	if a := b.do(404, "GET", "/w/other/v1/sandboxes/a%2Fb", nil); !strings.Contains(string(a.Body), "a/b") {
		t.Errorf("an encoded name = %s", a.Body)
	}
}

func TestPage(t *testing.T) {
	s := apitest.New(t)
	nonce := regexp.MustCompile(`style-src 'self' 'nonce-([A-Z0-9]{26})'`)
	var last string
	for _, path := range []string{"/", "/sandboxes/x/terminal", "/s/abc", "/s/p3000-" + strings.Repeat("a", 20) + "/", "/healthz", "/auth/sso/acme", "/mcp"} {
		r := s.Request("GET", path, nil)
		r.Host = apitest.ConsoleHost + ":7070"
		a := s.Send(r)
		policy := a.Header.Get("Content-Security-Policy")
		found := nonce.FindStringSubmatch(policy)
		if a.Status != 200 || found == nil || found[1] == last || !strings.Contains(string(a.Body), found[1]) || strings.Contains(string(a.Body)+policy, "__NONCE__") {
			t.Errorf("%s = %d, policy %q: %s", path, a.Status, policy, a.Body)
			continue
		}
		last = found[1]
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("the policy of %s lacks %s: %s", path, part, policy)
			}
		}
		// Frames are of the console itself, or desktops of sandboxes.
		rest, frames, _ := strings.Cut(policy, "; frame-src ")
		if !regexp.MustCompile(`^'self' http://\*\.localhost:\d+$`).MatchString(frames) {
			t.Errorf("the policy of %s permits frames of %q", path, frames)
		}
		for _, word := range []string{"unsafe", "http:", "https:", "*"} {
			if strings.Contains(rest, word) {
				t.Errorf("the policy of %s has %s: %s", path, word, policy)
			}
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "Content-Type": "text/html; charset=utf-8",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s = %q, want %q", path, name, got, want)
			}
		}
	}
	r := s.Request("POST", "/", nil)
	r.Host = apitest.ConsoleHost
	if a := s.Send(r); a.Status != 404 {
		t.Errorf("POST / = %d", a.Status)
	}
	// Other hosts have no console.
	if a := s.Do("GET", "/", nil); a.Status != 404 || a.Header.Get("X-Frame-Options") != "" {
		t.Errorf("the server's own host = %d %v", a.Status, a.Header)
	}
}

// external follows a sign-in through another service up to the console, and returns the path and query
// with which the browser comes back, and its cookie of the sign-in.
func external(t *testing.T, b *browser) (back string, cookie *http.Cookie) {
	t.Helper()
	a := b.do(302, "GET", "/session/providers/acme", nil)
	answer := &http.Response{Header: a.Header}
	begin, err := answer.Location()
	if err != nil || len(answer.Cookies()) != 1 {
		t.Fatalf("begin = %v, %v", a.Header, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host == apitest.ConsoleHost {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	resp, err := c.Get(begin.String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at, err := resp.Location()
	if err != nil || at.Host != apitest.ConsoleHost {
		t.Fatalf("the sign-in ended with %d at %v, %v", resp.StatusCode, at, err)
	}
	return at.RequestURI(), answer.Cookies()[0]
}

// comeBack sends the browser back to the console, as another site does.
func comeBack(b *browser, back string, cookie *http.Cookie) *apitest.Answer {
	r := b.request("GET", back, nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	if cookie != nil {
		r.AddCookie(cookie)
	}
	return b.s.Send(r)
}

// unfollowed keeps the server's own client from following redirects.
func unfollowed(s *apitest.Server) {
	s.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

func TestSignInThroughAnotherService(t *testing.T) {
	testExternal(t, apitest.NewWith(t, nil, ssotest.New(t).Providers("example.com")...))
}

// TestSignInAtAServerOfSeveral signs in at a server whose primary is another.
func TestSignInAtAServerOfSeveral(t *testing.T) {
	testExternal(t, apitest.NewParts(t, 2, ssotest.New(t).Providers("example.com")...)[1])
}

func testExternal(t *testing.T, s *apitest.Server) {
	unfollowed(s)
	b := &browser{s: s}
	back, cookie := external(t, b)
	a := comeBack(b, back, cookie)
	b.keep(a)
	if a.Status != 303 || a.Header.Get("Location") != "/" || b.cookie == nil {
		t.Fatalf("the sign-in = %d %v", a.Status, a.Header)
	}
	var who struct{ Email string }
	if b.do(200, "GET", "/v1/whoami", nil).Into(t, &who); who.Email != "ada@example.com" {
		t.Errorf("whoami = %+v", who)
	}
	var sessions struct {
		Items []struct{ Method string }
	}
	if b.do(200, "GET", "/v1/account/sessions", nil).Into(t, &sessions); len(sessions.Items) != 1 || sessions.Items[0].Method != "acme" {
		t.Errorf("sessions = %+v", sessions)
	}

	// Only the browser that began can end it, once.
	for name, c := range map[string]*http.Cookie{"no cookie": nil, "another state": {Name: cookie.Name, Value: cookie.Value + "x"}, "used": cookie} {
		next := back
		if name != "used" {
			next, _ = external(t, &browser{s: s})
		}
		a := comeBack(&browser{s: s}, next, c)
		if a.Status != 303 || a.Header.Get("Location") != "/?sign_in=unauthenticated" || strings.Contains(a.Header.Get("Set-Cookie"), "session") {
			t.Errorf("%s: %d %v", name, a.Status, a.Header)
		}
	}
	// An error comes with its code alone.
	_, cookie = external(t, b)
	_, state, _ := strings.Cut(cookie.Value, ".")
	q := url.Values{"error": {"forbidden"}, "error_description": {"call 555 1234"}, "state": {state}}
	if a := comeBack(b, "/session/callback?"+q.Encode(), cookie); a.Header.Get("Location") != "/?sign_in=forbidden" {
		t.Errorf("a refusal = %d %v", a.Status, a.Header)
	}
}

func TestSignInsAreRecorded(t *testing.T) {
	s := apitest.New(t)
	name := password(s)
	b := &browser{s: s}
	b.do(204, "POST", "/session", map[string]any{"username": name, "password": "correct horse"})
	b.do(204, "POST", "/session/token", map[string]any{"token": s.Token})
	b.do(204, "DELETE", "/session", nil)
	rows, err := s.Audit.Rows(t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]int{}
	for _, row := range rows.Items {
		var r audit.Record
		if err := json.Unmarshal(row.Record, &r); err != nil {
			t.Fatal(err)
		}
		recorded[r.Action]++
		if strings.Contains(string(row.Record), s.Token) || strings.Contains(string(row.Record), "correct horse") {
			t.Errorf("a record has a secret: %s", row.Record)
		}
	}
	if recorded["login"] != 2 || recorded["logout"] != 1 {
		t.Errorf("the audit log has %v", recorded)
	}
}
