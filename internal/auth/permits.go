package auth

import (
	"net/http"

	"github.com/modbox/modbox/internal/sandbox"
)

// Permits returns who presents the token with a request, when that may do p in the
// workspace. It is for what is not a route of a [Mux].
//
// Errors: Unauthenticated without a good token; Forbidden when it is of nobody in the
// workspace, or may not do p; QuotaExceeded as [Authenticator.Authenticate] has it.
func (a *Authenticator) Permits(r *http.Request, token string, ws sandbox.WorkspaceID, p sandbox.Permission) (Identity, error) {
	id, err := a.authenticateToken(r, token, string(ws))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Errorf(sandbox.Forbidden, "the token does not reach this sandbox")
	}
	if err == nil {
		err = id.require(p)
	}
	return id, err
}
