package modbox

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// Tokens checks API tokens: auth.Authenticator.
type Tokens interface {
	// Permits returns the user of a token that came with a request, if that user has permission p
	// in the workspace. Errors: Unauthenticated, Forbidden, QuotaExceeded after too many wrong
	// tokens.
	Permits(r *http.Request, token string, ws sandbox.WorkspaceID, p account.Permission) (auth.Identity, error)
	// TryKey reports whether the request presents the key of an object, which right compares, and
	// counts wrong keys. Errors: QuotaExceeded after too many wrong keys.
	TryKey(r *http.Request, object string, right func() bool) (bool, error)
}

// Workspaces returns settings of workspaces: store.Store.
type Workspaces interface {
	// URLAccess returns the minimum credential that the workspace demands for the management routes
	// of its sandboxes; "" means the server's setting. Errors: NotFound.
	URLAccess(ctx context.Context, ws sandbox.WorkspaceID) (sandbox.URLAccess, error)
}

// Access checks the callers of the management routes on the URLs of sandboxes.
type Access struct {
	// Server is the minimum credential on this server; "" is [sandbox.URLOpen].
	Server     sandbox.URLAccess
	Workspaces Workspaces
	Tokens     Tokens
}

// authorize returns the caller for a request to a management route. It accepts the sandbox's key,
// an API token that may use the sandbox, or nothing if the sandbox has no key and neither the
// sandbox, its workspace nor the server demands one.
//
// Errors: Unauthenticated; Forbidden for a token without access to the sandbox; QuotaExceeded after
// too many wrong tokens, or wrong keys of this sandbox.
func (a *Access) authorize(r *http.Request, sb *sandbox.Sandbox) (sandbox.Caller, error) {
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
	id, err := a.Tokens.Permits(r, token, sb.Workspace, account.SandboxesWrite)
	if err != nil {
		return owner, err
	}
	audit.FromContext(r.Context()).By(audit.Actor{
		User: id.User, Workspace: id.Workspace, Token: id.TokenID, Session: id.Session, Role: id.Role, Administrator: id.Administrator,
	})
	return sandbox.Caller{User: id.User, Workspace: sb.Workspace}, nil
}

// knows reports whether a token is the sandbox's key. It counts only guesses at keys that people
// may have chosen. Errors: QuotaExceeded.
func (a *Access) knows(r *http.Request, sb *sandbox.Sandbox, token, key string) (bool, error) {
	right := func() bool { return authorized(r, key) }
	if auth.IsBearer(token) {
		return right(), nil
	}
	return a.Tokens.TryKey(r, string(sb.ID), right)
}

// closed reports whether more than the URL is demanded.
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

// noKey returns the error of a request without the demanded credential; keyed is whether the
// sandbox has a key.
func noKey(keyed bool) error {
	if keyed {
		return sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants its %s, or an API token that may use it, as bearer token", keyVariable)
	}
	return sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants an API token that may use it as bearer token; its %s is not set", keyVariable)
}
