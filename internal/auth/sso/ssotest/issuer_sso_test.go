package ssotest_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth/sso/ssotest"
)

func TestMain(m *testing.M) {
	ssotest.Main()
	os.Exit(m.Run())
}

// browser follows redirects, with cookies, up to a page for the test to look at.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.Path, "/app") || r.URL.Host == apitest.ConsoleHost {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// visit returns the status of the page on which the browser ended, and its last redirect.
func visit(t *testing.T, c *http.Client, target string) (int, *url.URL) {
	t.Helper()
	resp, err := c.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at := resp.Request.URL
	if location, err := resp.Location(); err == nil {
		at = location
	}
	return resp.StatusCode, at
}

func start(t *testing.T, domains ...string) (*apitest.Server, *ssotest.Issuer) {
	t.Helper()
	i := ssotest.New(t)
	return apitest.NewWith(t, nil, i.Providers(domains...)...), i
}

func TestSignIn(t *testing.T) {
	s, _ := start(t, "example.com")
	for provider, email := range map[string]string{"acme": "ada@example.com", "github": "octo@example.com"} {
		var first string
		for range 2 { // the second time it is the same user
			status, at := visit(t, browser(t), s.URL+"/auth/sso/"+provider+"?redirect=/app&state=mine")
			f, err := url.ParseQuery(at.Fragment)
			if err != nil || status != 302 || at.Path != "/app" || f.Get("state") != "mine" || f.Get("expires_in") != "300" {
				t.Fatalf("%s: sign-in ended with %d at %s", provider, status, at)
			}
			s2 := *s
			s2.Token = f.Get("access_token")
			var who struct {
				User string `json:"user_id"`
			}
			s2.Want(200, "GET", "/v1/whoami", nil).Into(t, &who)
			if first != "" && first != who.User {
				t.Errorf("%s: the second sign-in is of another user", provider)
			}
			first = who.User
		}
		if b := string(s.Want(200, "GET", "/v1/users", nil).Body); !strings.Contains(b, first) || !strings.Contains(b, email) {
			t.Errorf("%s: users: %s", provider, b)
		}
	}
	if b := string(s.Want(200, "GET", "/v1/auth/providers", nil).Body); !strings.Contains(b, `["acme","github"]`) {
		t.Errorf("providers: %s", b)
	}
}

func TestRefusals(t *testing.T) {
	s, i := start(t)
	s.Want(201, "POST", "/v1/users", map[string]any{"name": "ada", "email": "ada@example.com"})
	for name, tc := range map[string]struct {
		want  int
		fault ssotest.Fault
	}{
		"good":            {302, ssotest.Fault{}},
		"wrong_nonce":     {401, with("nonce", "another")},
		"no_nonce":        {401, ssotest.Fault{Without: []string{"nonce"}}},
		"wrong_audience":  {401, with("aud", "another")},
		"wrong_issuer":    {401, with("iss", "https://accounts.example.com")},
		"expired":         {401, with("exp", time.Now().Add(-time.Hour).Unix())},
		"wrong_key":       {401, ssotest.Fault{OtherKey: true}},
		"email_unproven":  {403, with("email_verified", false)},
		"email_is_silent": {403, ssotest.Fault{Without: []string{"email_verified"}}},
		"not_invited":     {403, ssotest.Fault{Claims: map[string]any{"sub": "subject-2", "email": "stranger@example.com"}}},
	} {
		t.Run(name, func(t *testing.T) {
			i.Spoil(tc.fault)
			status, at := visit(t, browser(t), s.URL+"/auth/sso/acme?redirect=/app")
			if status != tc.want || (at.Fragment != "") != (tc.want == 302) {
				t.Errorf("sign-in ended with %d at %s, want %d", status, at, tc.want)
			}
		})
	}
}

func with(claim string, value any) ssotest.Fault {
	return ssotest.Fault{Claims: map[string]any{claim: value}}
}

func TestStateWorksOnceAndInOneBrowser(t *testing.T) {
	s, _ := start(t, "example.com")
	// The redirect back is followed by hand.
	stop := browser(t)
	stop.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") || r.URL.Path == "/app" {
			return http.ErrUseLastResponse
		}
		return nil
	}
	back := func() string {
		t.Helper()
		_, at := visit(t, stop, s.URL+"/auth/sso/acme?redirect=/app")
		if !strings.HasSuffix(at.Path, "/callback") {
			t.Fatalf("the provider sent the browser to %s", at)
		}
		return at.String()
	}
	for name, tc := range map[string]struct {
		client *http.Client
		change func(string) string
	}{
		"other_browser":  {browser(t), func(u string) string { return u }},
		"other_state":    {stop, func(u string) string { return strings.Replace(u, "state=", "state=x", 1) }},
		"other_provider": {stop, func(u string) string { return strings.Replace(u, "/sso/acme/", "/sso/github/", 1) }},
		"other_code":     {stop, func(u string) string { return strings.Replace(u, "code=", "code=x", 1) }},
	} {
		if status, at := visit(t, tc.client, tc.change(back())); status != 401 || at.Fragment != "" {
			t.Errorf("%s: %d at %s", name, status, at)
		}
	}
	u := back()
	if status, _ := visit(t, stop, u); status != 302 {
		t.Fatalf("the way back: %d", status)
	}
	if status, _ := visit(t, stop, u); status != 401 {
		t.Errorf("the same way back again: %d", status)
	}
}

func TestTokensGoNowhereElse(t *testing.T) {
	s, _ := start(t, "example.com")
	for redirect, want := range map[string]int{
		"/app": 302, "http://127.0.0.1:1234/app": 422, "http://[::1]:1234/app": 422, // tokens are for pages
		"https://evil.example/app": 422, "//evil.example/app": 422, "/\\evil.example": 422, "http://localhost.evil.example:1/": 422,
		"/app/": 302, "/apps/s/": 302, "/s/label/": 422, "/s": 422, "/%73/label/": 422, "/app/../s/label/": 422,
		"/a%2fb/../s/label/": 422, "/%2e%2e/s/label/": 422, "/.//s/label/": 422, "/app//s/": 422,
		"http://127.0.0.1@evil.example:80/": 422, "javascript:alert(1)": 422, "app": 422,
	} {
		status, at := visit(t, browser(t), s.URL+"/auth/sso/acme?"+url.Values{"redirect": {redirect}}.Encode())
		if status != want {
			t.Errorf("redirect %q: %d at %s, want %d", redirect, status, at, want)
		}
	}
	if status, _ := visit(t, browser(t), s.URL+"/auth/sso/nobody"); status != 404 {
		t.Errorf("a provider that is not there: %d", status)
	}
}
