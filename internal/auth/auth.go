package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"

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

// Memberships tells which workspaces a user has.
type Memberships interface {
	// Membership returns the user's place in the workspace, and code NotFound when
	// it has none there, when it is disabled, and when the workspace does not exist
	// or is being deleted.
	Membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error)
}

// Sessions tells which sessions there are.
type Sessions interface {
	// SessionByAccess returns the session with that access token, also when it has
	// expired, and code NotFound when there is none or its user is disabled.
	SessionByAccess(ctx context.Context, hash sandbox.TokenHash) (sandbox.Session, error)
	// Home returns the workspace that a user acts in when it names none, and code
	// NotFound when it is in none.
	Home(ctx context.Context, user sandbox.UserID) (sandbox.WorkspaceID, error)
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
	places *otter.Cache[place, sandbox.Membership]
	fails  *limiter
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
	return &Authenticator{store: store, cache: cache, places: places, fails: fails}, nil
}

// Close stops the background work of the caches. The Authenticator must not be used afterwards.
func (a *Authenticator) Close() {
	a.cache.StopAllGoroutines()
	a.places.StopAllGoroutines()
	a.fails.close()
}

// forget has everything looked up anew, after who may do what has changed.
func (a *Authenticator) forget() {
	a.cache.InvalidateAll()
	a.places.InvalidateAll()
}

// Authenticate says who makes the request.
//
// Errors: Unauthenticated without a good token; NotFound when the workspace
// header names a workspace the user does not have, or not with this token;
// QuotaExceeded when the client's address has presented too many wrong tokens.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) { return a.authenticate(r, "") }

// authenticate is Authenticate in the workspace ws; "" leaves it to the header and the token.
func (a *Authenticator) authenticate(r *http.Request, ws string) (Identity, error) {
	address, group := client(r.RemoteAddr)
	secret, err := bearer(r)
	if err != nil {
		return Identity{}, err
	}
	t, err := a.lookup(r.Context(), secret, group)
	if err != nil {
		return Identity{}, err
	}
	asked := sandbox.WorkspaceID(strings.ToLower(cmp.Or(ws, r.Header.Get(WorkspaceHeader), string(t.Workspace))))
	if t.WorkspaceOnly && asked != t.Workspace {
		return Identity{}, noWorkspace(ws)
	}
	expires := t.ExpiresAt
	if t.session != "" {
		expires = time.Time{} // a session is renewed; what it makes may outlive it
	}
	if asked == "" { // a user who is in no workspace still has an account
		return Identity{User: t.User, Session: t.session, Address: address}, nil
	}
	m, err := a.membership(r.Context(), t.User, asked)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return Identity{}, noWorkspace(ws)
	case err != nil:
		return Identity{}, fmt.Errorf("look up member %s of workspace %s: %w", t.User, asked, err)
	}
	return Identity{
		User: t.User, Workspace: m.Workspace, Role: m.Role, Administrator: m.Administrator,
		Scopes: t.Scopes, WorkspaceOnly: t.WorkspaceOnly, TokenID: t.ID, Session: t.session, Expires: expires, Address: address,
	}, nil
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

// membership looks a user's place in a workspace up, at most every [CacheTime].
func (a *Authenticator) membership(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (sandbox.Membership, error) {
	p := place{user, ws}
	if m, ok := a.places.GetIfPresent(p); ok {
		return m, nil
	}
	m, err := a.store.Membership(ctx, user, ws)
	if err == nil {
		a.places.Set(p, m)
	}
	return m, err
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
	if !a.fails.open(group, now) {
		return credential{}, sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong tokens from this address; wait a few seconds")
	}
	t, err := a.recorded(ctx, secret, hash)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		a.fails.fail(group, now)
		return credential{}, wrong
	case err != nil:
		return credential{}, fmt.Errorf("look up token: %w", err)
	case subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !good(t.Token, now):
		a.fails.fail(group, now)
		return credential{}, wrong
	}
	if t.session == "" && now.Sub(t.LastUsedAt) > touchEvery {
		// When a token was last used is a courtesy: no request fails over it.
		_ = a.store.TouchToken(ctx, t.ID, now.UTC())
		t.LastUsedAt = now
	}
	a.cache.Set(hash, t)
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
	home, err := a.store.Home(ctx, s.User)
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return credential{}, err
	}
	return credential{Token: sandbox.Token{Hash: s.Access, User: s.User, Workspace: home, ExpiresAt: s.AccessExpiresAt}, session: s.ID}, nil
}

func good(t sandbox.Token, now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// client returns the address of a client and the group it is in for the failure
// limit: one IPv4 address, or the /64 of an IPv6 one, which is the least a single
// client has.
func client(remote string) (address, group string) {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote, remote
	}
	addr := ap.Addr().Unmap()
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return addr.String(), p.String()
		}
	}
	return addr.String(), addr.String()
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
