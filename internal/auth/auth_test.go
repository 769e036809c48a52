package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

type fixture struct {
	auth  *auth.Authenticator
	store *store.Store
	log   *audit.Log
	owner auth.Identity
	token string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	st := storetest.Open(t, filepath.Join(t.TempDir(), "modbox.db"))
	a, err := auth.New(authStore(st))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	token, created, err := a.Bootstrap(t.Context(), st.Workspaces)
	if err != nil || !created {
		t.Fatalf("Bootstrap = %v, %v", created, err)
	}
	f := &fixture{auth: a, store: st, token: token, log: audit.Open(st.Audit, audit.Config{}, slog.New(slog.DiscardHandler))}
	t.Cleanup(f.log.Close)
	if f.owner, err = a.Authenticate(request("Bearer " + token)); err != nil {
		t.Fatal(err)
	}
	return f
}

// authStore returns what an authenticator reads of a store.
func authStore(st *store.Store) auth.Store {
	return auth.Store{Tokens: st.Tokens, Memberships: st.Workspaces, Sessions: st.Sessions, Users: st.Users}
}

// accountStore returns what accounts keep in a store.
func accountStore(st *store.Store) auth.AccountStore {
	return auth.AccountStore{
		Users: st.Users, Workspaces: st.Workspaces, Members: st.Members,
		SignIns: st.Sessions, Invitations: st.Invitations, Identities: st.Users,
	}
}

func request(authorization string) *http.Request {
	r := httptest.NewRequest("GET", "/v1/whoami", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func TestBootstrapMakesOneToken(t *testing.T) {
	f := newFixture(t)
	token, created, err := f.auth.Bootstrap(t.Context(), f.store.Workspaces)
	if err != nil || created || token != "" {
		t.Errorf("second Bootstrap = %q, %v, %v; want nothing", token, created, err)
	}
	// A revoked first token has no successor at the next start.
	if err := f.auth.RevokeToken(t.Context(), f.owner, f.token); err != nil {
		t.Fatal(err)
	}
	if token, created, err := f.auth.Bootstrap(t.Context(), f.store.Workspaces); err != nil || created || token != "" {
		t.Errorf("Bootstrap after the token was revoked = %q, %v, %v; want nothing", token, created, err)
	}
	if f.owner.User == "" || f.owner.Workspace == "" || f.owner.TokenID == "" {
		t.Errorf("identity of the first token = %+v", f.owner)
	}
	if !strings.HasPrefix(f.token, "mbx_") || len(f.token) != 4+52 {
		t.Errorf("token %q has %d characters", f.token, len(f.token))
	}
}

func TestAuthenticate(t *testing.T) {
	f := newFixture(t)
	expired, et, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "short", Lifetime: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(et.ExpiresAt) { // a nanosecond, or longer on clocks with a lower resolution
	}
	revoked, rt, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.auth.RevokeToken(t.Context(), f.owner, rt.ID); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, authorization string
		want                sandbox.Code
	}{
		{"good", "Bearer " + f.token, ""},
		{"scheme_in_other_case", "bearer  " + f.token, ""},
		{"none", "", sandbox.Unauthenticated},
		{"no_scheme", f.token, sandbox.Unauthenticated},
		{"basic", "Basic " + f.token, sandbox.Unauthenticated},
		{"unknown", "Bearer " + auth.NewSecret(), sandbox.Unauthenticated},
		{"cut", "Bearer " + f.token[:20], sandbox.Unauthenticated},
		{"longer", "Bearer " + f.token + "a", sandbox.Unauthenticated},
		{"other_product", "Bearer sk-ant-1234", sandbox.Unauthenticated},
		{"expired", "Bearer " + expired, sandbox.Unauthenticated},
		{"revoked", "Bearer " + revoked, sandbox.Unauthenticated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := f.auth.Authenticate(request(tc.authorization))
			if sandbox.CodeOf(err) != tc.want {
				t.Fatalf("Authenticate = %+v, %v; want code %q", id, err, tc.want)
			}
			if d := cmp.Diff(f.owner, id); tc.want == "" && d != "" {
				t.Errorf("identity differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestWorkspaceHeader(t *testing.T) {
	f := newFixture(t)
	for header, want := range map[string]sandbox.Code{
		"":                        "",
		string(f.owner.Workspace): "",
		strings.ToUpper(string(f.owner.Workspace)): "",
		string(sandbox.NewWorkspaceID()):           sandbox.NotFound,
		"not a uuid":                               sandbox.NotFound,
	} {
		r := request("Bearer " + f.token)
		r.Header.Set("X-Workspace-Id", header)
		id, err := f.auth.Authenticate(r)
		if sandbox.CodeOf(err) != want {
			t.Errorf("workspace %q: %+v, %v; want code %q", header, id, err, want)
		}
		if want == "" && id.Workspace != f.owner.Workspace {
			t.Errorf("workspace %q: acts in %s", header, id.Workspace)
		}
	}
}

func TestRevokedTokenStopsAtOnce(t *testing.T) {
	f := newFixture(t)
	secret, token, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.auth.Authenticate(request("Bearer " + secret)); err != nil { // now it is cached
		t.Fatal(err)
	}
	if err := f.auth.RevokeToken(t.Context(), f.owner, token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := f.auth.Authenticate(request("Bearer " + secret)); sandbox.CodeOf(err) != sandbox.Unauthenticated {
		t.Errorf("a revoked token: %v", err)
	}
	list, err := f.auth.ListTokens(t.Context(), f.owner)
	if err != nil || len(list) != 1 || list[0].ID != f.owner.TokenID {
		t.Errorf("ListTokens = %+v, %v; want the first token alone", list, err)
	}
}

func TestRevokeIsForTheOwner(t *testing.T) {
	f := newFixture(t)
	other := auth.Identity{User: "somebody", Workspace: f.owner.Workspace}
	if err := f.auth.RevokeToken(t.Context(), other, f.owner.TokenID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("revoking another user's token: %v", err)
	}
	if _, err := f.auth.Authenticate(request("Bearer " + f.token)); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestDescriptionIsChecked(t *testing.T) {
	f := newFixture(t)
	for _, d := range []string{strings.Repeat("ü", 201), "a\nb"} {
		if _, _, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: d}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("description %.5q: %v", d, err)
		}
	}
}

// memory is a token store that counts lookups, and has a fake clock.
type memory struct {
	auth.TokenStore
	auth.Memberships
	tokens  map[account.TokenHash]account.Token
	lookups int
}

func (m *memory) TokenByHash(_ context.Context, h account.TokenHash) (account.Token, error) {
	m.lookups++
	if t, ok := m.tokens[h]; ok {
		return t, nil
	}
	return account.Token{}, sandbox.Errorf(sandbox.NotFound, "no such token")
}

func (m *memory) Membership(_ context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error) {
	return account.Membership{User: user, Workspace: ws, Role: account.RoleMember}, nil
}

func (m *memory) TouchToken(context.Context, string, time.Time) error { return nil }

func TestCacheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := auth.NewSecret()
		m := &memory{tokens: map[account.TokenHash]account.Token{auth.Hash(secret): {ID: "1", Hash: auth.Hash(secret), User: "u", Workspace: "w"}}}
		a, err := auth.New(auth.Store{Tokens: m, Memberships: m})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		ask := func() error {
			_, err := a.Authenticate(request("Bearer " + secret))
			return err
		}
		for range 10 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if m.lookups != 1 {
			t.Errorf("%d lookups for 10 requests, want 1", m.lookups)
		}
		m.tokens = nil // revoked by another server
		changed := a.Changed()
		a.Recheck()
		<-changed
		if err := ask(); sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("after a look at the store again: %v", err)
		}
		m.tokens = map[account.TokenHash]account.Token{auth.Hash(secret): {ID: "1", Hash: auth.Hash(secret), User: "u", Workspace: "w"}}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		m.tokens = nil
		time.Sleep(auth.CacheTime + time.Second)
		if err := ask(); sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("after the cache time: %v", err)
		}
	})
}

func TestWrongTokensAreSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the limit has a rate
		f := newFixture(t)
		second, _, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "not cached yet"})
		if err != nil {
			t.Fatal(err)
		}
		third, _, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "of a colleague"})
		if err != nil {
			t.Fatal(err)
		}
		ask := func(addr, secret string) sandbox.Code {
			r := request("Bearer " + secret)
			r.RemoteAddr = addr
			_, err := f.auth.Authenticate(r)
			return sandbox.CodeOf(err)
		}
		limited := false
		for i := range 100 {
			switch code := ask(fmt.Sprintf("[2001:db8::%x]:1000", i+1), auth.NewSecret()); code {
			case sandbox.Unauthenticated:
			case sandbox.QuotaExceeded:
				limited = true
			default:
				t.Fatalf("attempt %d: code %q", i, code)
			}
		}
		if !limited {
			t.Fatal("100 wrong tokens from one /64 were all answered alike")
		}
		if code := ask("[2001:db8::1]:1000", f.token); code != "" {
			t.Errorf("a good token in use, from the same address: %q", code)
		}
		if code := ask("[2001:db8::2]:1000", third); code != "" {
			t.Errorf("a good token that was not seen before, from the same address: %q", code)
		}
		if code := ask("[2001:db8::2]:1000", auth.NewSecret()); code != sandbox.QuotaExceeded {
			t.Errorf("a wrong token after that: %q, want %q", code, sandbox.QuotaExceeded)
		}
		if code := ask("[2001:db8:0:1::1]:1000", second); code != "" {
			t.Errorf("a good token from another address: %q", code)
		}
	})
}

func TestMux(t *testing.T) {
	f := newFixture(t)
	fail := func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, string(sandbox.CodeOf(err)), 400)
	}
	show := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := auth.FromContext(r.Context())
		fmt.Fprint(w, ok, " ", id.User)
	})
	narrowed, _, err := f.auth.CreateToken(t.Context(), f.owner, auth.TokenRequest{Scopes: []account.Permission{account.SandboxesWrite}})
	if err != nil {
		t.Fatal(err)
	}
	m := f.auth.NewMux(f.log)
	m.Handle("GET /open", auth.Rule{Needs: auth.Public}, show)
	m.Handle("GET /signed", auth.Rule{Needs: auth.SignedIn, Fail: fail}, show)
	m.Handle("GET /boxes", auth.Rule{Needs: account.SandboxesRead, Fail: fail}, show)
	m.Handle("GET /tokens", auth.Rule{Needs: account.TokensWrite, Fail: fail}, show)
	m.Handle("GET /in/{workspace}", auth.Rule{Needs: account.SandboxesRead, Fail: fail}, show)
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	foreign := "/in/" + string(sandbox.NewWorkspaceID())
	for _, tc := range []struct{ path, token, want string }{
		{"/open", "", "false "},
		{"/signed", "", "unauthenticated\n"},
		{"/signed", narrowed, "true owner"},
		{"/boxes", f.token, "true owner"},
		{"/boxes", narrowed, "true owner"},
		{"/tokens", f.token, "true owner"},
		{"/tokens", narrowed, "forbidden\n"},
		{"/in/" + string(f.owner.Workspace), f.token, "true owner"},
		{foreign, f.token, "not_found\n"},
	} {
		authorization := ""
		if tc.token != "" {
			authorization = "Bearer " + tc.token
		}
		r := request(authorization)
		r.URL.Path = tc.path
		rec := httptest.NewRecorder()
		m.ServeHTTP(rec, r)
		if rec.Body.String() != tc.want {
			t.Errorf("GET %s with %.8q: %q, want %q", tc.path, tc.token, rec.Body, tc.want)
		}
		if challenge := rec.Header().Get("WWW-Authenticate"); (challenge != "") != (tc.want == "unauthenticated\n") {
			t.Errorf("GET %s with %.8q: WWW-Authenticate %q", tc.path, tc.token, challenge)
		}
	}
	for _, rule := range []auth.Rule{{}, {Needs: "boxes:read", Fail: fail}, {Needs: account.SandboxesRead}} {
		m := f.auth.NewMux(f.log)
		m.Handle("GET /x", rule, show)
		if err := m.Err(); err == nil || !strings.Contains(err.Error(), "GET /x") {
			t.Errorf("a route with the rule %+v: %v", rule, err)
		}
	}
	m = f.auth.NewMux(f.log)
	m.Handle("POST /x", auth.Rule{Needs: account.SandboxesRead, Fail: fail}, show)
	if err := m.Err(); err == nil || !strings.Contains(err.Error(), "POST /x") {
		t.Errorf("a route that changes something and is not recorded: %v", err)
	}
	m.Name(map[string]string{"POST /x": "change-x"})
	if err := m.Err(); err != nil {
		t.Errorf("after it was named: %v", err)
	}
}

func TestTokensAreNarrowed(t *testing.T) {
	f := newFixture(t)
	make := func(id auth.Identity, req auth.TokenRequest) (auth.Identity, error) {
		t.Helper()
		secret, _, err := f.auth.CreateToken(t.Context(), id, req)
		if err != nil {
			return auth.Identity{}, err
		}
		return f.auth.Authenticate(request("Bearer " + secret))
	}
	parent, err := make(f.owner, auth.TokenRequest{
		Scopes:   []account.Permission{account.TokensWrite, account.SandboxesWrite, account.TokensWrite},
		Lifetime: time.Hour, WorkspaceOnly: true,
	})
	if err != nil || !parent.May(account.SandboxesRead) || !parent.May(account.TokensWrite) || parent.May(account.ImagesRead) || parent.May(account.Administer) {
		t.Fatalf("a narrowed token: %+v, %v", parent, err)
	}
	kept, err := make(f.owner, auth.TokenRequest{WorkspaceOnly: true})
	if err != nil || !kept.May(account.SandboxesWrite) || kept.May(account.Administer) || kept.May(account.AccountWrite) {
		t.Errorf("a token kept to its workspace: %+v, %v", kept, err)
	}
	child, err := make(parent, auth.TokenRequest{Lifetime: time.Minute})
	if d := cmp.Diff(parent.Scopes, child.Scopes); err != nil || d != "" || !child.WorkspaceOnly {
		t.Errorf("its child: %+v, %v", child, err)
	}
	for _, tc := range []struct {
		req   auth.TokenRequest
		want  sandbox.Code
		field string
	}{
		{auth.TokenRequest{Lifetime: time.Minute, Scopes: []account.Permission{account.SandboxesRead}}, "", ""},
		{auth.TokenRequest{Lifetime: time.Minute, Scopes: []account.Permission{account.SandboxesRead, account.ImagesRead}}, sandbox.Forbidden, "scopes.1"},
		{auth.TokenRequest{Lifetime: time.Minute, Scopes: []account.Permission{"boxes"}}, sandbox.Invalid, "scopes.0"},
		{auth.TokenRequest{}, sandbox.Forbidden, "expires_in_seconds"},
		{auth.TokenRequest{Lifetime: 2 * time.Hour}, sandbox.Forbidden, "expires_in_seconds"},
	} {
		_, err := make(parent, tc.req)
		var e *sandbox.Error
		if sandbox.CodeOf(err) != tc.want || errors.As(err, &e) && e.Field != tc.field {
			t.Errorf("child %+v: %v, want code %q of %q", tc.req, err, tc.want, tc.field)
		}
	}
}

func TestRoles(t *testing.T) {
	for p, want := range map[account.Permission]string{
		account.SandboxesRead: "owner admin member viewer", account.ImagesRead: "owner admin member viewer",
		account.WorkspacesRead: "owner admin member viewer", account.TokensRead: "owner admin member viewer",
		account.TokensWrite: "owner admin member viewer", account.AccountWrite: "owner admin member viewer",
		account.SandboxesWrite: "owner admin member", account.ImagesWrite: "owner admin", account.MembersWrite: "owner admin", account.WebhooksRead: "owner admin", account.WebhooksWrite: "owner admin",
		account.WorkspacesWrite: "owner admin", account.WorkspacesDelete: "owner", account.Administer: "",
	} {
		var got []string
		for _, role := range account.Roles {
			if (auth.Identity{Role: role}).May(p) {
				got = append(got, string(role))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is for %v, want %s", p, got, want)
		}
	}
	for _, p := range account.Permissions {
		if (auth.Identity{Role: "boss"}).May(p) != (p == account.AccountWrite) {
			t.Errorf("an unknown role and %s", p)
		}
	}
}

// slowStore delays the answer of a lookup after reading it.
type slowStore struct {
	auth.TokenStore
	read, answer chan struct{}
}

func (s slowStore) TokenByHash(ctx context.Context, hash account.TokenHash) (account.Token, error) {
	t, err := s.TokenStore.TokenByHash(ctx, hash)
	s.read <- struct{}{}
	<-s.answer
	return t, err
}

// The result of a lookup during which the token is revoked must not be cached.
func TestRevokedWhileItIsLookedUp(t *testing.T) {
	f := newFixture(t)
	slow := slowStore{f.store.Tokens, make(chan struct{}), make(chan struct{})}
	st := authStore(f.store)
	st.Tokens = slow
	a, err := auth.New(st)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	secret, token, err := a.CreateToken(t.Context(), f.owner, auth.TokenRequest{Description: "short-lived"})
	if err != nil {
		t.Fatal(err)
	}
	authenticate := func() <-chan error {
		answered := make(chan error, 1)
		go func() {
			_, err := a.Authenticate(request("Bearer " + secret))
			answered <- err
		}()
		return answered
	}
	first := authenticate()
	<-slow.read
	if err := a.RevokeToken(t.Context(), f.owner, token.ID); err != nil {
		t.Fatal(err)
	}
	slow.answer <- struct{}{}
	if err := <-first; err != nil {
		t.Errorf("what was let in before: %v", err)
	}
	second := authenticate()
	select {
	case <-slow.read:
		slow.answer <- struct{}{}
		err = <-second
	case err = <-second: // from the cache
	}
	if sandbox.CodeOf(err) != sandbox.Unauthenticated {
		t.Errorf("after it was revoked: %v, want code unauthenticated", err)
	}
}
