package modbox

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// Tokens checks API tokens: auth.Authenticator.
type Tokens interface {
	// Permits returns the owner of a token that came with a request, when the owner may
	// do p in the workspace. Errors: Unauthenticated, Forbidden, QuotaExceeded after too many wrong ones.
	Permits(r *http.Request, token string, ws sandbox.WorkspaceID, p sandbox.Permission) (auth.Identity, error)
	// TryKey reports whether the client of a request knows the key of an object, which
	// right says, and counts when it does not. Errors: QuotaExceeded after too many wrong ones.
	TryKey(r *http.Request, object string, right func() bool) (bool, error)
}

// Workspaces knows what workspaces ask for: store.Store.
type Workspaces interface {
	// URLAccess returns the least credential that the workspace demands for the management
	// routes of its sandboxes; "" leaves it to the server. Errors: NotFound.
	URLAccess(ctx context.Context, ws sandbox.WorkspaceID) (sandbox.URLAccess, error)
}

// Access checks the callers of the management routes on the URLs of sandboxes.
type Access struct {
	// Server is the least credential on this server; "" is [sandbox.URLOpen].
	Server     sandbox.URLAccess
	Workspaces Workspaces
	Tokens     Tokens
}

// admit finds out for whom a request to a management route acts. It is let in with
// the sandbox's key, with an API token that may use the sandbox, and with nothing when
// the sandbox has no key, and neither it nor its workspace nor the server asks for one.
//
// Errors: Unauthenticated; Forbidden for the token of somebody else; QuotaExceeded
// after too many wrong tokens, or keys of this sandbox.
func (a *Access) admit(r *http.Request, sb *sandbox.Sandbox) (sandbox.Caller, error) {
	owner := sandbox.Caller{User: sb.CreatedBy, Workspace: sb.Workspace}
	key := sb.Env[keyVariable]
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if key != "" && token != "" {
		known, err := a.knows(r, sb, token, key)
		if known || err != nil {
			return owner, err
		}
	}
	closed, err := a.closed(r.Context(), sb)
	if err != nil {
		return owner, err
	}
	if !closed && key == "" {
		return owner, nil
	}
	if !auth.IsBearer(token) {
		return owner, noKey(key != "")
	}
	id, err := a.Tokens.Permits(r, token, sb.Workspace, sandbox.SandboxesWrite)
	if err != nil {
		return owner, err
	}
	audit.FromContext(r.Context()).By(audit.Who{
		User: id.User, Workspace: id.Workspace, Token: id.TokenID, Session: id.Session, Role: id.Role, Administrator: id.Administrator,
	})
	return sandbox.Caller{User: id.User, Workspace: sb.Workspace}, nil
}

// knows reports whether a token is the sandbox's key. Only guesses at keys that people
// may have chosen are counted. Errors: QuotaExceeded.
func (a *Access) knows(r *http.Request, sb *sandbox.Sandbox, token, key string) (bool, error) {
	right := func() bool { return authorized(r, key) }
	if auth.IsBearer(token) {
		return right(), nil
	}
	return a.Tokens.TryKey(r, string(sb.ID), right)
}

// closed reports whether somebody asks for more than the URL.
func (a *Access) closed(ctx context.Context, sb *sandbox.Sandbox) (bool, error) {
	if a.Server == sandbox.URLKey || sb.URLAccess == sandbox.URLKey {
		return true, nil
	}
	ws, err := a.Workspaces.URLAccess(ctx, sb.Workspace)
	if err != nil {
		return true, fmt.Errorf("settings of workspace %s: %w", sb.Workspace, err)
	}
	return ws == sandbox.URLKey, nil
}

// noKey is the error of a request without what is asked for; keyed is whether the
// sandbox has a key.
func noKey(keyed bool) error {
	if keyed {
		return sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants its %s, or an API token that may use it, as bearer token", keyVariable)
	}
	return sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants an API token that may use it as bearer token; its %s is not set", keyVariable)
}
