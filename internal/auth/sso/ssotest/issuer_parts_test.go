package ssotest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth/sso/ssotest"
)

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSignInAtSeveralServers: a sign-in begins, comes back and ends at any of several servers.
func TestSignInAtSeveralServers(t *testing.T) {
	parts := apitest.NewParts(t, 2, ssotest.New(t).Providers("example.com")...)
	host := func(s *apitest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	for begin := range parts {
		for end := range parts {
			b, first := browser(t), true
			b.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
				if !first && (r.URL.Host == host(parts[0]) || r.URL.Host == host(parts[1])) {
					r = r.Clone(r.Context())
					r.URL.Host = host(parts[end]) // the way back
				}
				first = false
				return http.DefaultTransport.RoundTrip(r)
			})
			status, at := visit(t, b, anonymous(t, parts[begin]).Account.SignInURL("acme", "http://127.0.0.1:1234/app", "mine", verifier))
			code := at.Query().Get("code")
			if status != http.StatusFound || code == "" {
				t.Fatalf("the sign-in that began at %d and came back to %d ended with %d at %s", begin, end, status, at)
			}
			session, err := anonymous(t, parts[1-end]).Account.Exchange(t.Context(), code, verifier)
			if err != nil {
				t.Fatalf("the code of %d at %d: %v", end, 1-end, err)
			}
			user, err := client.New(parts[begin].URL, session.AccessToken)
			if err != nil {
				t.Fatal(err)
			}
			if who, err := user.WhoAmI(t.Context()); err != nil || who.Email != "ada@example.com" {
				t.Errorf("who = %+v, %v", who, err)
			}
			if _, err := anonymous(t, parts[end]).Account.Exchange(t.Context(), code, verifier); !client.IsCode(err, client.Unauthenticated) {
				t.Errorf("a code that was used = %v", err)
			}
		}
	}
}
