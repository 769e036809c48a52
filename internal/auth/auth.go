package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// CacheTime is how long a looked-up token is believed without asking the store.
	CacheTime = 5 * time.Second
	// WorkspaceHeader selects one of the user's workspaces.
	WorkspaceHeader = "X-Workspace-Id"

	cacheSize = 10_000
	// touchEvery is how coarse the last use of a token is recorded.
	touchEvery = 5 * time.Minute

	// An address may present failBurst wrong tokens at once and failRate a second
	// for ever. What failed is remembered for failMemory.
	failBurst  = 20
	failRate   = rate.Limit(2)
	failMemory = 10 * time.Minute
	failKeys   = 10_000
)

// Identity is who makes a request, the workspace it acts in, and what it may do there.
type Identity struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID // "" for a user without any
	// Role is the user's in the workspace.
	Role sandbox.Role
	// Administrator is whether the user looks after the installation.
	Administrator bool
	// Scopes are the permissions that the token was narrowed to; none means all of the role's.
	Scopes []sandbox.Permission
	// WorkspaceOnly is whether the token keeps out of the user's other workspaces.
	WorkspaceOnly bool
	// TokenID is the API token that was presented, Session the session whose access
	// token was; one of them is "".
	TokenID, Session string
	// Expires is when that token stops working; zero for never.
	Expires time.Time
	// Address is where the request came from, without the port.
	Address string
}

// group returns the addresses that count as the identity's, as [audit.Client] does.
func (id Identity) group() string {
	_, group := audit.Client(net.JoinHostPort(id.Address, "0"))
	return group
}

// Memberships tells which workspaces a user has.
type Memberships interface {
	// Membership returns the user's place in the workspace with that id, or else that
	// slug, and code NotFound when it has none there, when it is disabled, and when the workspace does not exist
	// or is being deleted.
	Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error)
	// WorkspaceNamed returns the id of the workspace with that id, or else that slug,
	// whoever is in it. Errors: NotFound.
	WorkspaceNamed(ctx context.Context, ref sandbox.WorkspaceID) (sandbox.WorkspaceID, error)
}

// Sessions tells which sessions there are.
type Sessions interface {
	// SessionByAccess returns the session with that access token, also when it has
	// expired, and code NotFound when there is none or its user is disabled.
	SessionByAccess(ctx context.Context, hash sandbox.TokenHash) (sandbox.Session, error)
	// UseSession records that the session's access token is used. Errors: NotFound when
	// it is not its access token any more.
	UseSession(ctx context.Context, id string, access sandbox.TokenHash) error
	// Home returns the workspace that a user acts in when it names none, and code
	// NotFound when it is in none.
	Home(ctx context.Context, user sandbox.UserID) (sandbox.WorkspaceID, error)
	// User returns a user. Errors: NotFound.
	User(ctx context.Context, id sandbox.UserID) (sandbox.User, error)
}

// Store is what an [Authenticator] looks things up in.
type Store interface {
	TokenStore
	Memberships
	Sessions
}

// credential is what a good token stands for: an API token, or a session as one.
type credential struct {
	sandbox.Token
	session string
}

// place is a user in a workspace.
type place struct {
	user      sandbox.UserID
	workspace sandbox.WorkspaceID
}

// Authenticator checks bearer tokens. Safe for concurrent use.
type Authenticator struct {
	store  Store
	cache  *otter.Cache[sandbox.TokenHash, credential]
	byID   *otter.Cache[string, sandbox.Token]
	places *otter.Cache[place, sandbox.Membership]
	fails  *limiter
	keys   *limiter // of wrong keys

	mu      sync.Mutex    // orders what is put into the caches and what is taken out
	changes uint64        // guarded by mu; how often something was taken out
	next    chan struct{} // guarded by mu; closed at the next change
}

// New returns an Authenticator over the store.
func New(store Store) (*Authenticator, error) {
	cache, err := otter.New(&otter.Options[sandbox.TokenHash, credential]{
		MaximumSize:      cacheSize,
		ExpiryCalculator: otter.ExpiryWriting[sandbox.TokenHash, credential](CacheTime),
	})
	if err != nil {
		return nil, fmt.Errorf("make token cache: %w", err)
	}
	byID, err := otter.New(&otter.Options[string, sandbox.Token]{
		MaximumSize:      cacheSize,
		ExpiryCalculator: otter.ExpiryWriting[string, sandbox.Token](CacheTime),
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of tokens by id: %w", err)
	}
	places, err := otter.New(&otter.Options[place, sandbox.Membership]{
		MaximumSize:      cacheSize,
		ExpiryCalculator: otter.ExpiryWriting[place, sandbox.Membership](CacheTime),
	})
	if err != nil {
		return nil, fmt.Errorf("make membership cache: %w", err)
	}
	fails, err := newLimiter(failRate, failBurst)
	if err != nil {
		return nil, err
	}
	keys, err := newLimiter(failRate, failBurst)
	if err != nil {
		return nil, err
	}
	return &Authenticator{store: store, cache: cache, byID: byID, places: places, fails: fails, keys: keys, next: make(chan struct{})}, nil
}

// Close stops the background work of the caches. The Authenticator must not be used afterwards.
func (a *Authenticator) Close() {
	a.cache.StopAllGoroutines()
	a.byID.StopAllGoroutines()
	a.places.StopAllGoroutines()
	a.fails.close()
	a.keys.close()
}

// forget has everything looked up anew, after who may do what has changed.
func (a *Authenticator) forget() {
	a.drop(func() {
		a.cache.InvalidateAll()
		a.byID.InvalidateAll()
		a.places.InvalidateAll()
	})
}

// forgetToken has what a token stands for looked up anew.
func (a *Authenticator) forgetToken(hash sandbox.TokenHash) {
	a.drop(func() {
		a.cache.Invalidate(hash)
		a.byID.InvalidateAll()
	})
}

// drop takes something out of the caches, and keeps out what was looked up before
// and is still on its way.
func (a *Authenticator) drop(invalidate func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	invalidate()
	close(a.next)
	a.next = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of what tokens may do:
// a token is revoked, a session ends, or a user or a member is changed. Asked for
// before a check, it says when to check again.
func (a *Authenticator) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

// changed returns what keep wants to be told: it is asked before the store is.
func (a *Authenticator) changed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

// keep puts something into a cache unless anything was taken out since changed
// answered: it may be what it was before that.
func (a *Authenticator) keep(since uint64, set func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes == since {
		set()
	}
}

// Authenticate says who makes the request.
//
// Errors: Unauthenticated without a good token; NotFound when the workspace
// header names a workspace the user does not have, or not with this token;
// QuotaExceeded instead of Unauthenticated when the client's address has presented too many wrong tokens.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) { return a.authenticate(r, "") }

// authenticate is Authenticate in the workspace ws; "" leaves it to the header and
// the token. With an error the identity says who it is as far as that is known.
func (a *Authenticator) authenticate(r *http.Request, ws string) (Identity, error) {
	secret, err := bearer(r)
	if err != nil {
		return Identity{}, err
	}
	return a.authenticateToken(r, secret, ws)
}

// authenticateToken is authenticate with a token that the request need not have as bearer.
func (a *Authenticator) authenticateToken(r *http.Request, secret, ws string) (Identity, error) {
	address, group := audit.Client(r.RemoteAddr)
	t, err := a.lookup(r.Context(), secret, group)
	if err != nil {
		return Identity{}, err
	}
	asked := sandbox.WorkspaceID(strings.ToLower(cmp.Or(ws, r.Header.Get(WorkspaceHeader), string(t.Workspace))))
	known := Identity{User: t.User, TokenID: t.ID, Session: t.session, Address: address}
	expires := t.ExpiresAt
	if t.session != "" {
		expires = time.Time{} // a session is renewed; what it makes may outlive it
	}
	m, err := a.membership(r.Context(), t.User, asked)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		if err := a.enabled(r.Context(), t.User); err != nil {
			return known, err
		}
		return known, noWorkspace(ws)
	case err == nil && t.WorkspaceOnly && m.Workspace != t.Workspace:
		return known, noWorkspace(ws)
	case err != nil:
		return known, fmt.Errorf("look up member %s of workspace %s: %w", t.User, asked, err)
	}
	return Identity{
		User: t.User, Workspace: m.Workspace, Role: m.Role, Administrator: m.Administrator,
		Scopes: t.Scopes, WorkspaceOnly: t.WorkspaceOnly, TokenID: t.ID, Session: t.session, Expires: expires, Address: address,
	}, nil
}

// enabled returns nil for a user who may use its tokens. Errors: Unauthenticated for one
// that is disabled or gone.
func (a *Authenticator) enabled(ctx context.Context, user sandbox.UserID) error {
	u, err := a.store.User(ctx, user)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return fmt.Errorf("look up user %s: %w", user, err)
	}
	if err != nil || !u.DisabledAt.IsZero() {
		return sandbox.Errorf(sandbox.Unauthenticated, "the token is unknown, expired or revoked, or its user is disabled")
	}
	return nil
}

// noWorkspace says that there is no such workspace for this caller; ws is "" when
// the header named it.
func noWorkspace(ws string) error {
	e := sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	if ws == "" {
		e.Field = WorkspaceHeader
	}
	return e
}

// membership looks a user's place in a workspace up, at most every [CacheTime]. A
// user who is in none, "", still has an account, and may be an administrator.
func (a *Authenticator) membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error) {
	p := place{user, ws}
	if m, ok := a.places.GetIfPresent(p); ok {
		return m, nil
	}
	since := a.changed()
	m, err := a.recordedMembership(ctx, user, ws)
	if err == nil {
		a.keep(since, func() { a.places.Set(p, m) })
	}
	return m, err
}

func (a *Authenticator) recordedMembership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error) {
	if ws != "" {
		return a.store.Membership(ctx, user, ws)
	}
	u, err := a.store.User(ctx, user)
	if err == nil && !u.DisabledAt.IsZero() {
		err = sandbox.Errorf(sandbox.NotFound, "the user is disabled")
	}
	return sandbox.Membership{User: user, Administrator: u.Administrator}, err
}

// bearer returns the token of the Authorization header.
func bearer(r *http.Request) (string, error) {
	h := r.Header.Get("Authorization")
	if h == "" {
		return "", sandbox.Errorf(sandbox.Unauthenticated, "no token; send the header Authorization: Bearer mbx_…")
	}
	scheme, secret, ok := strings.Cut(h, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", sandbox.Errorf(sandbox.Unauthenticated, "the Authorization header must be: Bearer mbx_…")
	}
	return strings.TrimSpace(secret), nil
}

// lookup returns what the text stands for. Wrong ones cost the client's address an attempt.
func (a *Authenticator) lookup(ctx context.Context, secret, group string) (credential, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the token is unknown, expired or revoked")
	if !formed(secret, Prefix) && !formed(secret, prefixAccess) {
		return credential{}, wrong
	}
	hash := Hash(secret)
	now := time.Now()
	if t, ok := a.cache.GetIfPresent(hash); ok {
		if !good(t.Token, now) {
			return credential{}, wrong
		}
		return t, nil
	}
	since := a.changed()
	var t credential
	err := a.fails.lookUp(ctx, group, func() (err error) {
		t, err = a.recorded(ctx, secret, hash)
		if err == nil && (subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !good(t.Token, now)) {
			err = sandbox.Errorf(sandbox.NotFound, "it is expired or revoked")
		}
		return err
	})
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.NotFound:
		return credential{}, wrong
	default:
		return credential{}, fmt.Errorf("look up token: %w", err)
	}
	if t.session == "" && now.Sub(t.LastUsedAt) > touchEvery {
		// When a token was last used is a courtesy: no request fails over it.
		_ = a.store.TouchToken(ctx, t.ID, now.UTC())
		t.LastUsedAt = now
	}
	a.keep(since, func() { a.cache.Set(hash, t) })
	return t, nil
}

// recorded returns what is stored under a token's hash. Errors: NotFound.
func (a *Authenticator) recorded(ctx context.Context, secret string, hash sandbox.TokenHash) (credential, error) {
	if formed(secret, Prefix) {
		t, err := a.store.TokenByHash(ctx, hash)
		return credential{Token: t}, err
	}
	s, err := a.store.SessionByAccess(ctx, hash)
	if err != nil {
		return credential{}, err
	}
	if !s.Used && time.Now().Before(s.AccessExpiresAt) {
		// From now on the refresh token before ends the session, so that this is no courtesy.
		if err := a.store.UseSession(ctx, s.ID, s.Access); err != nil {
			return credential{}, err
		}
	}
	home, err := a.store.Home(ctx, s.User)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return credential{}, err
	}
	return credential{Token: sandbox.Token{Hash: s.Access, User: s.User, Workspace: home, ExpiresAt: s.AccessExpiresAt}, session: s.ID}, nil
}

func good(t sandbox.Token, now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

type contextKey struct{}

// FromContext returns the identity that a [Mux] put there.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// WithIdentity returns a context that carries id.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}
