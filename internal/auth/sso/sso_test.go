package sso_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth/sso"
)

// issuer is a small OpenID Connect issuer, and a GitHub, over real HTTP.
type issuer struct {
	*httptest.Server

	mu     sync.Mutex
	key    *rsa.PrivateKey       // what it signs with; guarded by mu
	grants map[string]url.Values // the authorization request of each code; guarded by mu
	// change spoils the claims of the next tokens; guarded by mu.
	change func(claims map[string]any)
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, grants: map[string]url.Values{}}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	for _, path := range []string{"GET /authorize", "GET /login/oauth/authorize"} {
		mux.HandleFunc(path, i.authorize)
	}
	for _, path := range []string{"POST /token", "POST /login/oauth/access_token"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			token, ok := i.token(t, r)
			if !ok {
				http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
				return
			}
			answer(w, map[string]any{"access_token": "at", "token_type": "Bearer", "id_token": token})
		})
	}
	mux.HandleFunc("GET /api/v3/user", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"id": 42, "login": "octo"}) })
	mux.HandleFunc("GET /api/v3/user/emails", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, []map[string]any{
			{"email": "other@example.com", "primary": false, "verified": true},
			{"email": "octo@example.com", "primary": true, "verified": true},
		})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	code := rand.Text()
	i.grants[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// token returns the identity token for a code, when client and verifier are right.
func (i *issuer) token(t *testing.T, r *http.Request) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	grant, ok := i.grants[r.FormValue("code")]
	delete(i.grants, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	if !ok || id != "modbox" || secret != "s3cret" || base64.RawURLEncoding.EncodeToString(sum[:]) != grant.Get("code_challenge") {
		return "", false
	}
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": "modbox", "sub": "subject-1", "nonce": grant.Get("nonce"), "iat": now.Unix(),
		"exp": now.Add(time.Minute).Unix(), "email": "Ada@Example.com", "email_verified": true,
	}
	if i.change != nil {
		i.change(claims)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: i.key}, (&jose.SignerOptions{}).WithHeader("kid", "k"))
	if err != nil {
		t.Error(err)
		return "", false
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Error(err)
	}
	return text, err == nil
}

func (i *issuer) spoil(change func(map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.change = change
}

// browser follows redirects, with cookies, until a page that the test looks at.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.Path, "/app") {
			return http.ErrUseLastResponse
		}
		return nil
	}}
}

// visit returns the status of where the browser ended up, and where it was sent last.
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

func start(t *testing.T, domains ...string) (*apitest.Server, *issuer) {
	t.Helper()
	i := newIssuer(t)
	s := apitest.NewWith(t, nil,
		sso.Provider{Name: "acme", Issuer: i.URL, ClientID: "modbox", ClientSecret: "s3cret", Domains: domains},
		sso.Provider{Name: "github", Type: "github", Issuer: i.URL, ClientID: "modbox", ClientSecret: "s3cret", Domains: domains})
	return s, i
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
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		want   int
		change func(claims map[string]any)
	}{
		"good":            {302, nil},
		"wrong_nonce":     {401, func(c map[string]any) { c["nonce"] = "another" }},
		"no_nonce":        {401, func(c map[string]any) { delete(c, "nonce") }},
		"wrong_audience":  {401, func(c map[string]any) { c["aud"] = "another" }},
		"wrong_issuer":    {401, func(c map[string]any) { c["iss"] = "https://accounts.example.com" }},
		"expired":         {401, func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }},
		"email_unproven":  {403, func(c map[string]any) { c["email_verified"] = false }},
		"email_is_silent": {403, func(c map[string]any) { delete(c, "email_verified") }},
		"not_invited": {403, func(c map[string]any) {
			c["sub"], c["email"] = "subject-2", "stranger@example.com"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			i.spoil(tc.change)
			status, at := visit(t, browser(t), s.URL+"/auth/sso/acme?redirect=/app")
			if status != tc.want || (at.Fragment != "") != (tc.want == 302) {
				t.Errorf("sign-in ended with %d at %s, want %d", status, at, tc.want)
			}
		})
	}
	t.Run("wrong_key", func(t *testing.T) {
		i.spoil(nil)
		i.mu.Lock()
		i.key = other // the last of these tests: the issuer still shows the first one
		i.mu.Unlock()
		if status, at := visit(t, browser(t), s.URL+"/auth/sso/acme?redirect=/app"); status != 401 || at.Fragment != "" {
			t.Errorf("signed by somebody else: %d at %s", status, at)
		}
	})
}

func TestStateWorksOnceAndInOneBrowser(t *testing.T) {
	s, _ := start(t, "example.com")
	// The way back is followed by hand.
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
		"/app": 302, "http://127.0.0.1:1234/app": 302, "http://[::1]:1234/app": 302,
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
