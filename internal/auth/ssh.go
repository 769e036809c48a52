package auth

import (
	"context"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

// Token returns the identity that an API token gives a client at remote, an address with a port, in
// the workspace ws, an ID or slug; "" is the token's workspace. The identity has permission p. It
// serves protocols other than HTTP. On error the identity contains what is known so far.
//
// Errors: Unauthenticated, also for the token of a session, which can be renewed over HTTP only;
// NotFound when the token does not extend to the workspace; Forbidden without p; QuotaExceeded as
// in [Authenticator.Authenticate].
func (a *Authenticator) Token(ctx context.Context, remote, token, ws string, p account.Permission) (Identity, error) {
	if !formed(token, Prefix) {
		return Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "the password is not an API token, mbx_…")
	}
	id, err := a.token(ctx, remote, token, ws)
	if err == nil {
		err = id.require(p)
	}
	return id, err
}
