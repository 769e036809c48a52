package auth

import (
	"context"
	"fmt"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// Token returns the identity that an API token gives a client at remote, an address with a port, in
// the workspace ws, an ID or slug; "" is the token's workspace. The identity has permission p. It
// serves protocols other than HTTP. On error the identity has the fields known so far.
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

// User returns the identity of a user whom another credential than a token has proven, for a client at
// remote, an address with a port, in the workspace ws, an ID or slug; "" is the user's default workspace. The
// identity has permission p. On error the identity has the fields known so far.
//
// Errors: Unauthenticated when the user is deleted or disabled; NotFound when the user is not a member of the
// workspace; Forbidden without p.
func (a *Authenticator) User(ctx context.Context, remote string, user sandbox.UserID, ws string, p account.Permission) (Identity, error) {
	address, _ := audit.Client(remote)
	id := Identity{User: user, Address: address}
	asked := sandbox.WorkspaceID(strings.ToLower(ws))
	if asked == "" {
		home, err := a.store.Memberships.Home(ctx, user)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return id, fmt.Errorf("look up the workspace of user %s: %w", user, err)
		}
		asked = home // "" for a user without any
	}
	m, err := a.membership(ctx, user, asked)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		if err := a.enabled(ctx, user); err != nil {
			return id, err
		}
		return id, errWorkspace
	case err != nil:
		return id, fmt.Errorf("look up member %s of workspace %s: %w", user, asked, err)
	}
	id.Workspace, id.Role, id.Administrator = m.Workspace, m.Role, m.Administrator
	return id, id.require(p)
}
