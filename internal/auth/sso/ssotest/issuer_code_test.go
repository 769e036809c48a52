package ssotest_test

import (
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
)

const verifier = "a-secret-of-the-program-which-nobody-else-knows"

func anonymous(t *testing.T, s *apitest.Server) *client.Client {
	t.Helper()
	c, err := client.New(s.URL, "", client.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// grant signs a browser in for a program and returns the code it gets.
func grant(t *testing.T, c *client.Client, provider string) string {
	t.Helper()
	status, at := visit(t, browser(t), c.Account.SignInURL(provider, "http://127.0.0.1:1234/app", "mine", verifier))
	q := at.Query()
	if status != 302 || at.Host != "127.0.0.1:1234" || q.Get("state") != "mine" || q.Get("code") == "" || at.Fragment != "" {
		t.Fatalf("the sign-in ended with %d at %s, want a code and no tokens", status, at)
	}
	return q.Get("code")
}

func TestProgramGetsASessionForItsCode(t *testing.T) {
	s, _ := start(t, "example.com")
	c := anonymous(t, s)
	for provider, email := range map[string]string{"acme": "ada@example.com", "github": "octo@example.com"} {
		session, err := c.Account.Exchange(t.Context(), grant(t, c, provider), verifier)
		if err != nil {
			t.Fatalf("%s: %v", provider, err)
		}
		if month := int(30 * 24 * time.Hour / time.Second); session.RefreshExpiresIn != month || session.ExpiresIn != 300 {
			t.Errorf("%s: the tokens work %d s and %d s", provider, session.ExpiresIn, session.RefreshExpiresIn)
		}
		next, err := c.Account.Refresh(t.Context(), session.RefreshToken)
		if err != nil || next.RefreshExpiresIn < session.RefreshExpiresIn-1 {
			t.Fatalf("%s: refresh = %+v, %v", provider, next, err)
		}
		user, err := client.New(s.URL, next.AccessToken)
		if err != nil {
			t.Fatal(err)
		}
		if who, err := user.WhoAmI(t.Context()); err != nil || who.Email != email || who.Name == "" {
			t.Errorf("%s: who = %+v, %v", provider, who, err)
		}
		if _, err := c.Account.Refresh(t.Context(), session.RefreshToken); !client.IsCode(err, client.Unauthenticated) {
			t.Errorf("%s: a refresh token that was used = %v", provider, err)
		}
		if _, err := user.WhoAmI(t.Context()); !client.IsCode(err, client.Unauthenticated) {
			t.Errorf("%s: the session goes on after its refresh token was used twice: %v", provider, err)
		}
	}
}

func TestCodeWorksOnceAndForWhoBegan(t *testing.T) {
	s, _ := start(t, "example.com")
	c := anonymous(t, s)
	code := grant(t, c, "acme")
	if _, err := c.Account.Exchange(t.Context(), code, strings.Repeat("x", 43)); !client.IsCode(err, client.Unauthenticated) {
		t.Errorf("somebody else's exchange = %v", err)
	}
	if _, err := c.Account.Exchange(t.Context(), code, verifier); !client.IsCode(err, client.Unauthenticated) {
		t.Errorf("the exchange of a code that was tried = %v", err)
	}
	code = grant(t, c, "acme")
	if _, err := c.Account.Exchange(t.Context(), code, verifier); err != nil {
		t.Errorf("exchange = %v", err)
	}
	if _, err := c.Account.Exchange(t.Context(), code, verifier); !client.IsCode(err, client.Unauthenticated) {
		t.Errorf("the second exchange = %v", err)
	}
	if _, err := c.Account.Exchange(t.Context(), code, "short"); !client.IsCode(err, client.Invalid) {
		t.Errorf("a short verifier = %v", err)
	}
	code = grant(t, c, "acme")
	s.Want(200, "PATCH", "/v1/users/ada", map[string]any{"disabled": true})
	if _, err := c.Account.Exchange(t.Context(), code, verifier); !client.IsCode(err, client.Unauthenticated) {
		t.Errorf("the exchange for a user who was disabled meanwhile = %v", err)
	}
}

func TestCodesGoNowhereElse(t *testing.T) {
	s, _ := start(t, "example.com")
	good := "&code_challenge=" + strings.Repeat("A", 43)
	for query, want := range map[string]int{
		"redirect=http://127.0.0.1:1234/app" + good: 302, "redirect=http://[::1]:1234/app" + good: 302,
		"redirect=http://127.0.0.1:1234/app" + good + "&code_challenge_method=S256":  302,
		"redirect=http://127.0.0.1:1234/app" + good + "&code_challenge_method=plain": 422,
		"redirect=http://127.0.0.1:1234/app&code_challenge=short":                    422,
		"redirect=http://127.0.0.1/app" + good:                                       422,
		"redirect=https://evil.example/app" + good:                                   422,
		"redirect=http://evil.example:1/app" + good:                                  422,
		"redirect=http://10.0.0.1:1234/app" + good:                                   422,
		"redirect=http://localhost:1234/app" + good:                                  422,
		"redirect=http://127.0.0.1@evil.example:80/app" + good:                       422,
		"redirect=//evil.example/app" + good:                                         422,
		"redirect=/app" + good:                                                       422,
		// The web console.
		"redirect=http://console.localhost/session/callback" + good:     302,
		"redirect=http://console.localhost/session/callback":            422,
		"redirect=http://console.localhost/session/callback/x" + good:   422,
		"redirect=https://console.localhost/session/callback" + good:    422,
		"redirect=http://console.localhost:81/session/callback" + good:  422,
		"redirect=http://console.localhost/" + good:                     422,
		"redirect=http://a@console.localhost/session/callback" + good:   422,
		"redirect=http://console.localhost/session/callback%3Fa" + good: 422,
	} {
		if status, at := visit(t, browser(t), s.URL+"/auth/sso/acme?"+query); status != want {
			t.Errorf("%s: %d at %s, want %d", query, status, at, want)
		}
	}
}

func TestCodeIsShownToBeCarriedOver(t *testing.T) {
	s, _ := start(t, "example.com")
	c := anonymous(t, s)
	resp, err := browser(t).Get(c.Account.SignInURL("acme", "", "", verifier))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`<code>([\w-]+)</code>`).FindSubmatch(page)
	if resp.StatusCode != http.StatusOK || code == nil || resp.Header.Get("Cache-Control") != "no-store" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Fatalf("page = %d %v %s", resp.StatusCode, resp.Header, page)
	}
	if _, err := c.Account.Exchange(t.Context(), string(code[1]), verifier); err != nil {
		t.Errorf("exchange = %v", err)
	}
}

func TestProgramIsToldOfARefusal(t *testing.T) {
	s, i := start(t)
	c := anonymous(t, s)
	status, at := visit(t, browser(t), c.Account.SignInURL("acme", "http://127.0.0.1:1234/app?x=1", "mine", verifier))
	want := url.Values{"x": {"1"}, "state": {"mine"}, "error": {"forbidden"}, "error_description": {"there is no account for ada@example.com; ask to be invited"}}
	if status != 302 || at.Query().Encode() != want.Encode() {
		t.Errorf("a stranger's sign-in ended with %d at %s, want %v", status, at, want)
	}
	i.Spoil(with("nonce", "another"))
	if status, at = visit(t, browser(t), c.Account.SignInURL("acme", "http://127.0.0.1:1234/app", "mine", verifier)); status != 302 || at.Query().Get("error") != "unauthenticated" {
		t.Errorf("a spoilt sign-in ended with %d at %s", status, at)
	}
}
