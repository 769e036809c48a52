package auth

import (
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
	// for ever; failMemory is how long an address is remembered.
	failBurst     = 20
	failRate      = rate.Limit(2)
	failMemory    = 10 * time.Minute
	failAddresses = 10_000
)

// Identity is who makes a request, and the workspace it acts in.
type Identity struct {
	User      sandbox.UserID
	Workspace sandbox.WorkspaceID
	// TokenID is the token that was presented.
	TokenID string
}

// Membership tells which workspaces a user has.
type Membership interface {
	// IsMember reports whether the user may act in the workspace; false for a
	// workspace that does not exist.
	IsMember(ctx context.Context, user sandbox.UserID, ws sandbox.WorkspaceID) (bool, error)
}

// Authenticator checks bearer tokens. Safe for concurrent use.
type Authenticator struct {
	tokens  TokenStore
	members Membership
	cache   *otter.Cache[sandbox.TokenHash, sandbox.Token]
	fails   *otter.Cache[string, *rate.Limiter]
}

// New returns an Authenticator over the stores.
func New(tokens TokenStore, members Membership) (*Authenticator, error) {
	cache, err := otter.New(&otter.Options[sandbox.TokenHash, sandbox.Token]{
		MaximumSize:      cacheSize,
		ExpiryCalculator: otter.ExpiryWriting[sandbox.TokenHash, sandbox.Token](CacheTime),
	})
	if err != nil {
		return nil, fmt.Errorf("make token cache: %w", err)
	}
	fails, err := otter.New(&otter.Options[string, *rate.Limiter]{
		MaximumSize:      failAddresses,
		ExpiryCalculator: otter.ExpiryAccessing[string, *rate.Limiter](failMemory),
	})
	if err != nil {
		return nil, fmt.Errorf("make failure limiter: %w", err)
	}
	return &Authenticator{tokens: tokens, members: members, cache: cache, fails: fails}, nil
}

// Close stops the background work of the caches. The Authenticator must not be used afterwards.
func (a *Authenticator) Close() {
	a.cache.StopAllGoroutines()
	a.fails.StopAllGoroutines()
}

// Authenticate says who makes the request.
//
// Errors: Unauthenticated without a good token; NotFound when the workspace
// header names a workspace the user does not have; QuotaExceeded when the
// client's address has presented too many wrong tokens.
func (a *Authenticator) Authenticate(r *http.Request) (Identity, error) {
	secret, err := bearer(r)
	if err != nil {
		return Identity{}, err
	}
	t, err := a.lookup(r.Context(), secret, clientKey(r.RemoteAddr))
	if err != nil {
		return Identity{}, err
	}
	id := Identity{User: t.User, Workspace: t.Workspace, TokenID: t.ID}
	ws := sandbox.WorkspaceID(strings.ToLower(r.Header.Get(WorkspaceHeader)))
	if ws == "" || ws == t.Workspace {
		return id, nil
	}
	ok, err := a.members.IsMember(r.Context(), t.User, ws)
	if err != nil {
		return Identity{}, fmt.Errorf("look up member %s of workspace %s: %w", t.User, ws, err)
	}
	if !ok {
		return Identity{}, &sandbox.Error{Code: sandbox.NotFound, Field: WorkspaceHeader, Message: "there is no such workspace"}
	}
	id.Workspace = ws
	return id, nil
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

// lookup returns the good token with that text. Wrong ones cost the client's address an attempt.
func (a *Authenticator) lookup(ctx context.Context, secret, client string) (sandbox.Token, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the token is unknown, expired or revoked")
	if !wellFormed(secret) {
		return sandbox.Token{}, wrong
	}
	hash := Hash(secret)
	now := time.Now()
	if t, ok := a.cache.GetIfPresent(hash); ok {
		if !good(t, now) {
			return sandbox.Token{}, wrong
		}
		return t, nil
	}
	limiter, _ := a.fails.ComputeIfAbsent(client, func() (*rate.Limiter, bool) {
		return rate.NewLimiter(failRate, failBurst), false
	})
	if limiter.TokensAt(now) < 1 {
		return sandbox.Token{}, sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong tokens from this address; wait a few seconds")
	}
	t, err := a.tokens.TokenByHash(ctx, hash)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		limiter.AllowN(now, 1)
		return sandbox.Token{}, wrong
	case err != nil:
		return sandbox.Token{}, fmt.Errorf("look up token: %w", err)
	case subtle.ConstantTimeCompare(t.Hash[:], hash[:]) != 1 || !good(t, now):
		limiter.AllowN(now, 1)
		return sandbox.Token{}, wrong
	}
	if now.Sub(t.LastUsedAt) > touchEvery {
		// When a token was last used is a courtesy: no request fails over it.
		_ = a.tokens.TouchToken(ctx, t.ID, now.UTC())
		t.LastUsedAt = now
	}
	a.cache.Set(hash, t)
	return t, nil
}

func good(t sandbox.Token, now time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || now.Before(t.ExpiresAt))
}

// clientKey groups addresses for the failure limit: one IPv4 address, or the
// /64 of an IPv6 one, which is the least a single client has.
func clientKey(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := ap.Addr().Unmap()
	if addr.Is6() {
		if p, err := addr.WithZone("").Prefix(64); err == nil {
			return p.String()
		}
	}
	return addr.String()
}

type contextKey struct{}

// FromContext returns the identity that [Authenticator.Middleware] put there.
func FromContext(ctx context.Context) (Identity, bool) {
	id, ok := ctx.Value(contextKey{}).(Identity)
	return id, ok
}

// WithIdentity returns a context that carries id.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// Middleware lets requests with a good token through, their identity in the
// context, and has onError answer the others. It sets WWW-Authenticate for
// Unauthenticated, as HTTP wants it.
func (a *Authenticator) Middleware(onError func(http.ResponseWriter, *http.Request, error), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := a.Authenticate(r)
		if err != nil {
			if sandbox.CodeOf(err) == sandbox.Unauthenticated {
				w.Header().Set("WWW-Authenticate", `Bearer realm="modbox"`)
			}
			onError(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(WithIdentity(r.Context(), id)))
	})
}
