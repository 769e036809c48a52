package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/cache"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// CacheTime is how long the result of a token lookup is cached.
	CacheTime = 5 * time.Second
	// WorkspaceHeader selects one of the user's workspaces.
	WorkspaceHeader = "X-Workspace-Id"

	cacheSize = 10_000
	// touchEvery is the resolution at which the last use of a token is recorded.
	touchEvery = 5 * time.Minute

	// An address may present failBurst wrong tokens at once, and then failRate a second. Failures
	// are remembered for failMemory.
	failBurst  = 20
	failRate   = rate.Limit(2)
	failMemory = 10 * time.Minute
	failKeys   = 10_000
)

// Identity says who makes a request, in which workspace, and with which permissions.
type Identity struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID // "" for a user without any
	// Role is the role of the user in the workspace.
	Role account.Role
	// Administrator is whether the user administers the installation.
	Administrator bool
	// Scopes are the permissions that the token is limited to; empty means all permissions of the
	// role.
	Scopes []account.Permission
	// WorkspaceOnly is whether the token is limited to its workspace.
	WorkspaceOnly bool
	// TokenID is the ID of the API token that was presented, Session the ID of the session whose
	// access token was presented; one of the two is empty.
	TokenID, Session string
	// Expires is when that token expires; zero means never.
	Expires time.Time
	// Address is the client's address, without the port.
	Address string
}

// group returns the block of addresses that the identity's address belongs to, as [audit.Client]
// does.
func (id Identity) group() string {
	_, group := audit.Client(net.JoinHostPort(id.Address, "0"))
	return group
}

// Memberships looks up workspaces and their members.
type Memberships interface {
	// Membership returns the user's membership of the workspace with that ID, or else with that
	// slug. Errors: NotFound when the user is not a member or is disabled, and when the workspace
	// does not exist or is being deleted.
	Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error)
	// WorkspaceNamed returns the ID of the workspace with that ID, or else with that slug,
	// regardless of its members. Errors: NotFound.
	WorkspaceNamed(ctx context.Context, ref sandbox.WorkspaceID) (sandbox.WorkspaceID, error)
	// Home returns the workspace that a user acts in when the request names none. Errors: NotFound
	// when the user is a member of none.
	Home(ctx context.Context, user sandbox.UserID) (sandbox.WorkspaceID, error)
}

// Sessions looks up sessions.
type Sessions interface {
	// SessionByAccess returns the session with that access token, even when it has expired. Errors:
	// NotFound when there is none, or its user is disabled.
	SessionByAccess(ctx context.Context, hash account.TokenHash) (account.Session, error)
	// UseSession records that the session's access token is used. Errors: NotFound when the session
	// has another access token now.
	UseSession(ctx context.Context, id string, access account.TokenHash) error
}

// Owners looks up the users that tokens and sessions belong to.
type Owners interface {
	// User returns a user. Errors: NotFound.
	User(ctx context.Context, id sandbox.UserID) (account.User, error)
}

// Store has the queries of an [Authenticator] to the database, by noun. All fields must be set.
type Store struct {
	Tokens      TokenStore
	Memberships Memberships
	Sessions    Sessions
	Users       Owners
}

// credential is a valid API token, or a session represented in the same form.
type credential struct {
	account.Token
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
	tokens *cache.Cache[account.TokenHash, credential]
	byID   *cache.Cache[string, account.Token]
	places *cache.Cache[place, account.Membership]
	fails  *limiter
	keys   *limiter // of wrong keys

	mu      sync.Mutex    // orders additions to the caches and removals
	changes uint64        // guarded by mu; how often something was taken out
	next    chan struct{} // guarded by mu; closed at the next change
}

// New returns an Authenticator over the store.
func New(store Store) (*Authenticator, error) {
	tokens, err := cache.New[account.TokenHash](cache.Options[credential]{Size: cacheSize, AfterWrite: CacheTime})
	if err != nil {
		return nil, fmt.Errorf("make token cache: %w", err)
	}
	byID, err := cache.New[string](cache.Options[account.Token]{Size: cacheSize, AfterWrite: CacheTime})
	if err != nil {
		return nil, fmt.Errorf("make cache of tokens by id: %w", err)
	}
	places, err := cache.New[place](cache.Options[account.Membership]{Size: cacheSize, AfterWrite: CacheTime})
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
	return &Authenticator{store: store, tokens: tokens, byID: byID, places: places, fails: fails, keys: keys, next: make(chan struct{})}, nil
}

// Close stops the background work of the caches. The Authenticator must not be used afterwards.
func (a *Authenticator) Close() {
	a.tokens.Close()
	a.byID.Close()
	a.places.Close()
	a.fails.close()
	a.keys.close()
}

// forget empties the caches, after a change of users, members or roles.
func (a *Authenticator) forget() {
	a.drop(func() {
		a.tokens.Clear()
		a.byID.Clear()
		a.places.Clear()
	})
}

// Recheck makes the Authenticator look into the store again, after a change that it may not have made itself.
func (a *Authenticator) Recheck() { a.forget() }

// forgetToken removes a token from the cache.
func (a *Authenticator) forgetToken(hash account.TokenHash) {
	a.drop(func() {
		a.tokens.Remove(hash)
		a.byID.Clear()
	})
}

// drop invalidates cache entries, and keeps lookups that began before it from adding stale entries.
func (a *Authenticator) drop(invalidate func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changes++
	invalidate()
	close(a.next)
	a.next = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of permissions: a token is revoked, a
// session ends, or a user or a member is changed. A caller that gets the channel before it checks a
// permission knows when to check again.
func (a *Authenticator) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next
}

// changed returns the number of invalidations so far. Callers read it before they query the store,
// and pass it to keep.
func (a *Authenticator) changed() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changes
}

// keep caches a value, unless an invalidation happened since changed returned since: then the value
// may be stale.
func (a *Authenticator) keep(since uint64, set func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changes == since {
		set()
	}
}

// Authenticate returns the identity that makes the request.
//
// Errors: Unauthenticated without a valid token; NotFound when the workspace header names a
// workspace that the user is not a member of, or that the token does not extend to; QuotaExceeded
// instead of Unauthenticated when the client's address has presented too many wrong tokens.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) { return a.authenticate(r, "") }

// authenticate is Authenticate for the workspace ws; when ws is empty, the header or the token
// selects the workspace. On error the identity has the fields known so far.
func (a *Authenticator) authenticate(r *http.Request, ws string) (Identity, error) {
	secret, err := bearer(r)
	if err != nil {
		return Identity{}, err
	}
	return a.authenticateToken(r, secret, ws)
}

// authenticateToken is authenticate with a token that need not be the request's bearer token.
func (a *Authenticator) authenticateToken(r *http.Request, secret, ws string) (Identity, error) {
	id, err := a.token(r.Context(), r.RemoteAddr, secret, cmp.Or(ws, r.Header.Get(WorkspaceHeader)))
	if errors.Is(err, errWorkspace) {
		err = noWorkspace(ws)
	}
	return id, err
}

// errWorkspace is the error for a workspace that the caller cannot use.
var errWorkspace = sandbox.Errorf(sandbox.NotFound, "there is no such workspace")

// token returns the identity that the client at remote has with a token, in the workspace ws or, if
// that is empty, in the token's own. On error the identity has the fields known so far.
func (a *Authenticator) token(ctx context.Context, remote, secret, ws string) (Identity, error) {
	address, group := audit.Client(remote)
	t, err := a.lookup(ctx, secret, group)
	if err != nil {
		return Identity{}, err
	}
	asked := sandbox.WorkspaceID(strings.ToLower(cmp.Or(ws, string(t.Workspace))))
	known := Identity{User: t.User, TokenID: t.ID, Session: t.session, Address: address}
	expires := t.ExpiresAt
	if t.session != "" {
		expires = time.Time{} // a session is renewed; tokens made with it may outlive it
	}
	m, err := a.membership(ctx, t.User, asked)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		if err := a.enabled(ctx, t.User); err != nil {
			return known, err
		}
		return known, errWorkspace
	case err == nil && t.WorkspaceOnly && m.Workspace != t.Workspace:
		return known, errWorkspace
	case err != nil:
		return known, fmt.Errorf("look up member %s of workspace %s: %w", t.User, asked, err)
	}
	return Identity{
		User: t.User, Workspace: m.Workspace, Role: m.Role, Administrator: m.Administrator,
		Scopes: t.Scopes, WorkspaceOnly: t.WorkspaceOnly, TokenID: t.ID, Session: t.session, Expires: expires, Address: address,
	}, nil
}

// enabled returns nil for a user that exists and is not disabled. Errors: Unauthenticated.
func (a *Authenticator) enabled(ctx context.Context, user sandbox.UserID) error {
	u, err := a.store.Users.User(ctx, user)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return fmt.Errorf("look up user %s: %w", user, err)
	}
	if err != nil || !u.DisabledAt.IsZero() {
		return sandbox.Errorf(sandbox.Unauthenticated, "the token is unknown, expired or revoked, or its user is disabled")
	}
	return nil
}

// noWorkspace returns the error for a workspace that the caller cannot use; ws is empty when the
// header named it.
func noWorkspace(ws string) error {
	e := sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	if ws == "" {
		e.Field = WorkspaceHeader
	}
	return e
}

// membership looks up a user's membership, at most once every [CacheTime]. A user without any
// workspace (ws is "") still has an account, and may be an administrator.
func (a *Authenticator) membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error) {
	p := place{user, ws}
	if m, ok := a.places.Get(p); ok {
		return m, nil
	}
	since := a.changed()
	m, err := a.recordedMembership(ctx, user, ws)
	if err == nil {
		a.keep(since, func() { a.places.Set(p, m) })
	}
	return m, err
}

func (a *Authenticator) recordedMembership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (account.Membership, error) {
	if ws != "" {
		return a.store.Memberships.Membership(ctx, user, ws)
	}
	u, err := a.store.Users.User(ctx, user)
	if err == nil && !u.DisabledAt.IsZero() {
		err = sandbox.Errorf(sandbox.NotFound, "the user is disabled")
	}
	return account.Membership{User: user, Administrator: u.Administrator}, err
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

// lookup returns the credential for a secret. Wrong secrets count against the client's address.
func (a *Authenticator) lookup(ctx context.Context, secret, group string) (credential, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the token is unknown, expired or revoked")
	if !formed(secret, Prefix) && !formed(secret, prefixAccess) {
		return credential{}, wrong
	}
	hash := Hash(secret)
	now := time.Now()
	if t, ok := a.tokens.Get(hash); ok {
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
		// The time of last use is informational, so no request fails because of it.
		_ = a.store.Tokens.TouchToken(ctx, t.ID, now.UTC())
		t.LastUsedAt = now
	}
	a.keep(since, func() { a.tokens.Set(hash, t) })
	return t, nil
}

// recorded returns the credential stored under a token's hash. Errors: NotFound.
func (a *Authenticator) recorded(ctx context.Context, secret string, hash account.TokenHash) (credential, error) {
	if formed(secret, Prefix) {
		t, err := a.store.Tokens.TokenByHash(ctx, hash)
		return credential{Token: t}, err
	}
	s, err := a.store.Sessions.SessionByAccess(ctx, hash)
	if err != nil {
		return credential{}, err
	}
	if !s.Used && time.Now().Before(s.AccessExpiresAt) {
		// This error counts: UseSession also invalidates the previous refresh token, so that using
		// that again ends the session.
		if err := a.store.Sessions.UseSession(ctx, s.ID, s.Access); err != nil {
			return credential{}, err
		}
	}
	home, err := a.store.Memberships.Home(ctx, s.User)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return credential{}, err
	}
	return credential{Token: account.Token{Hash: s.Access, User: s.User, Workspace: home, ExpiresAt: s.AccessExpiresAt}, session: s.ID}, nil
}

func good(t account.Token, now time.Time) bool {
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
