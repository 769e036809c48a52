// Package sso signs users in through other services: any OpenID Connect issuer, and GitHub, which
// supports plain OAuth 2 only. It uses the authorization code flow with PKCE, a nonce, and a state
// that works once and only in the browser that began. Package auth decides who may sign in.
package sso

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/cache"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// flowTime is how long a person may take to sign in at the provider.
	flowTime = 10 * time.Minute
	// usedMax is how many completed flows are remembered, so that none is used twice.
	usedMax = 10_000
	// talkTime bounds the requests to the provider for a sign-in, all together.
	talkTime   = 20 * time.Second
	cookieName = "modbox_sso"
	basePath   = "/auth/sso/"
	// sandboxesPath is the prefix of pages that sandboxes serve, which are not trusted.
	sandboxesPath = "/s/"
)

// Provider is a service that authenticates users.
type Provider struct {
	Name         string // part of the routes
	Type         string // "oidc", or "github"
	Issuer       string // of oidc: the issuer's URL; of github: the base URL, https://github.com when empty
	ClientID     string
	ClientSecret string
	// Domains are the e-mail domains whose users may sign up, see [auth.Accounts.SignInExternal].
	Domains []string
}

// SignIn runs the flows. Safe for concurrent use.
type SignIn struct {
	accounts *auth.Accounts
	// owner has the shards of the server: of several servers the primary signs in, as key, flows and codes are in memory.
	owner     *sandbox.Ownership
	providers map[string]*provider
	names     []string
	public    *url.URL
	console   string      // where the web console gets its codes; "" for no console
	seal      cipher.AEAD // encrypts flows; the key is never stored
	used      *cache.Cache[string, struct{}]
	codes     *cache.Cache[string, grant]
}

// provider is a Provider with the functions that send its requests.
type provider struct {
	Provider
	// config returns the OAuth settings of the flow.
	config func(ctx context.Context) (*oauth2.Config, error)
	// identity returns the person that the tokens belong to; it checks the nonce if the provider
	// supports it.
	identity func(ctx context.Context, t *oauth2.Token, nonce string) (auth.External, error)
}

// New returns a SignIn through the providers for a server reached at publicURL, whose web console
// gets its codes at the URL console; "" for no console. It does not connect
// to the providers. Errors: a provider without a name, with an unknown type, or with an issuer that is not a
// URL.
func New(providers []Provider, owner *sandbox.Ownership, accounts *auth.Accounts, publicURL, console string) (*SignIn, error) {
	public, err := url.Parse(publicURL)
	if err != nil {
		return nil, fmt.Errorf("sign-in: public URL: %w", err)
	}
	seal, err := newSeal()
	if err != nil {
		return nil, fmt.Errorf("make key of sign-ins: %w", err)
	}
	used, err := cache.New[string](cache.Options[struct{}]{Size: usedMax, AfterWrite: flowTime})
	if err != nil {
		return nil, fmt.Errorf("make cache of sign-ins: %w", err)
	}
	codes, err := cache.New[string](cache.Options[grant]{Size: codesMax, AfterWrite: codeTime})
	if err != nil {
		used.Close()
		return nil, fmt.Errorf("make cache of codes: %w", err)
	}
	s := &SignIn{owner: owner, accounts: accounts, providers: map[string]*provider{}, public: public, console: console, seal: seal, used: used, codes: codes}
	for _, p := range providers {
		made, err := s.provider(p)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.providers[p.Name] = made
		s.names = append(s.names, p.Name)
	}
	return s, nil
}

func (s *SignIn) provider(p Provider) (*provider, error) {
	if p.Name == "" || p.ClientID == "" || s.providers[p.Name] != nil {
		return nil, fmt.Errorf("sign-in provider %q: it needs a unique name and a client_id", p.Name)
	}
	redirect := strings.TrimRight(s.public.String(), "/") + basePath + p.Name + "/callback"
	switch p.Type {
	case "", "oidc":
		if u, err := url.Parse(p.Issuer); err != nil || u.Host == "" {
			return nil, fmt.Errorf("sign-in provider %s: the issuer %q is not a URL", p.Name, p.Issuer)
		}
		return oidcProvider(p, redirect), nil
	case "github":
		return githubProvider(p, redirect), nil
	}
	return nil, fmt.Errorf("sign-in provider %s: the type %q is neither oidc nor github", p.Name, p.Type)
}

// Close stops the background work.
func (s *SignIn) Close() {
	s.used.Close()
	s.codes.Close()
}

// Names returns the providers in the order they were given.
func (s *SignIn) Names() []string { return s.names }

func unguessable() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Begin redirects a browser to the provider. The query's redirect is where the browser goes at the
// end: a path of this server, or a URL of the caller's own machine; state is passed on to it. A
// page of this server gets the session's tokens. A program, which sends a code_challenge, gets a
// code for [SignIn.Exchange]; without a redirect the code is shown to the user, who types it into
// the program.
//
// Errors: NotFound; Invalid, naming redirect, state or code_challenge; Unavailable when the
// provider cannot be reached, or another server signs in.
func (s *SignIn) Begin(w http.ResponseWriter, r *http.Request) error {
	if err := s.owner.CheckPrimary(); err != nil {
		return err
	}
	p := s.providers[r.PathValue("provider")]
	if p == nil {
		return sandbox.Errorf(sandbox.NotFound, "there is no such sign-in provider")
	}
	proof, err := challenge(r.URL.Query())
	if err != nil {
		return err
	}
	redirect, err := s.destination(r.URL.Query().Get("redirect"), proof != "")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), talkTime)
	defer cancel()
	config, err := p.config(ctx)
	if err != nil {
		return sandbox.Wrap(sandbox.Unavailable, err, "%s cannot be reached; try again", p.Name)
	}
	f := flow{
		Provider: p.Name, Key: unguessable(), Nonce: unguessable(), Verifier: oauth2.GenerateVerifier(),
		Redirect: redirect, State: []byte(r.URL.Query().Get("state")), Challenge: proof, Ends: time.Now().Add(flowTime),
	}
	if len(f.State) > 256 {
		return sandbox.InvalidField("state", "must have at most 256 characters")
	}
	sealed, err := s.sealFlow(f)
	if err != nil {
		return fmt.Errorf("begin sign-in: %w", err)
	}
	http.SetCookie(w, s.cookie(sealed, int(flowTime/time.Second)))
	http.Redirect(w, r, config.AuthCodeURL(f.Key, oauth2.S256ChallengeOption(f.Verifier), oauth2.SetAuthURLParam("nonce", f.Nonce)), http.StatusFound)
	return nil
}

func (s *SignIn) cookie(value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: basePath, MaxAge: age, HttpOnly: true,
		Secure: s.public.Scheme == "https", SameSite: http.SameSiteLaxMode,
	}
}

// destination returns where a browser may be redirected. With tokens it is only this server,
// outside of sandboxes. With a code for a program it is the machine on which the program runs, or
// "", which shows the code. Tokens are not sent to that machine, because another user of it might
// listen on the port; a code is useless without the verifier. The web console, which has a host of its own, signs in as a program does.
func (s *SignIn) destination(redirect string, program bool) (string, error) {
	if program && s.console != "" && redirect == s.console {
		return redirect, nil
	}
	if redirect == "" && program {
		return "", nil
	} else if redirect == "" {
		return "/", nil
	}
	u, err := url.Parse(redirect)
	if err == nil && len(redirect) <= 1024 && u.Fragment == "" && !strings.ContainsAny(redirect, "\\\t\r\n") {
		// Paths that a browser or the server would normalize are refused: they might lead to a
		// sandbox.
		plain := path.Clean(u.Path) == u.Path || path.Clean(u.Path)+"/" == u.Path
		if !program && u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/") && plain && !strings.HasPrefix(u.Path+"/", sandboxesPath) {
			return redirect, nil
		}
		ip := net.ParseIP(u.Hostname())
		if program && u.Scheme == "http" && u.User == nil && ip != nil && ip.IsLoopback() && u.Port() != "" {
			return redirect, nil
		}
	}
	if program {
		return "", sandbox.InvalidField("redirect", "must be http://127.0.0.1:PORT/… when a code_challenge is given, or empty to have the code shown")
	}
	return "", sandbox.InvalidField("redirect", "must be a path of this server outside of sandboxes; a program on your machine must send a code_challenge")
}

// Callback receives a browser back from the provider and redirects it: to a page, with the
// session's tokens in the fragment of the URL, which browsers send to no server; to a program, with
// a code.
//
// Errors: Unauthenticated when the flow is unknown or was completed before, or the provider's
// answer is invalid; Forbidden when the user may not sign in.
func (s *SignIn) Callback(w http.ResponseWriter, r *http.Request) error {
	if err := s.owner.CheckPrimary(); err != nil {
		return err
	}
	q := r.URL.Query()
	f, err := s.resume(r, q.Get("state"))
	if err != nil {
		return refused(err)
	}
	http.SetCookie(w, s.cookie("", -1))
	p := s.providers[f.Provider]
	who, err := p.identify(r.Context(), q, f)
	if err != nil {
		return refuse(r.Context(), w, f, err)
	}
	if f.Challenge != "" {
		user, err := s.accounts.Recognize(r.Context(), who, p.Domains)
		if err != nil {
			return refuse(r.Context(), w, f, err)
		}
		return s.grantCode(w, f, user)
	}
	tokens, err := s.accounts.SignInExternal(r.Context(), who, p.Domains, r.RemoteAddr)
	if err != nil {
		return err
	}
	fragment := url.Values{
		"access_token": {tokens.Access}, "refresh_token": {tokens.Refresh},
		"expires_in":         {strconv.Itoa(int(tokens.ExpiresIn / time.Second))},
		"refresh_expires_in": {strconv.Itoa(int(tokens.RefreshesIn / time.Second))},
	}
	if len(f.State) > 0 {
		fragment.Set("state", string(f.State))
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", f.Redirect+"#"+fragment.Encode())
	w.WriteHeader(http.StatusFound)
	return nil
}

// identify asks the provider for the identity of the user that it redirected back with q. Errors:
// Unauthenticated when its answer is invalid; Unavailable.
func (p *provider) identify(ctx context.Context, q url.Values, f flow) (auth.External, error) {
	ctx, cancel := context.WithTimeout(ctx, talkTime)
	defer cancel()
	config, err := p.config(ctx)
	if err != nil {
		return auth.External{}, sandbox.Wrap(sandbox.Unavailable, err, "%s cannot be reached; try again", p.Name)
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return auth.External{}, refused(fmt.Errorf("the provider answered %q", q.Get("error")))
	}
	t, err := config.Exchange(bounded(ctx), q.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return auth.External{}, refused(fmt.Errorf("exchange code at %s: %w", p.Name, err))
	}
	who, err := p.identity(ctx, t, f.Nonce)
	if err != nil {
		return auth.External{}, refused(fmt.Errorf("identify user at %s: %w", p.Name, err))
	}
	return who, nil
}

func refused(err error) error {
	return sandbox.Wrap(sandbox.Unauthenticated, err, "the sign-in did not succeed; begin again")
}
