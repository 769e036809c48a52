package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// needs is the permission of each route of /v1. One without makes the server
// refuse to start: whoever adds a route decides here who may use it. A GET that
// runs something or lets something in needs the permission to write; so does reading
// files, among which are the sandbox's own address and keys (/proc/PID/environ).
var needs = map[string]sandbox.Permission{
	"GET /v1/executions/{execution}":                                sandbox.SandboxesRead,
	"POST /v1/executions/{execution}/cancel":                        sandbox.SandboxesWrite,
	"GET /v1/images":                                                sandbox.ImagesRead,
	"POST /v1/images/pull":                                          sandbox.SandboxesWrite, // as creating a sandbox does
	"POST /v1/images/build":                                         sandbox.ImagesWrite,
	"POST /v1/images/push":                                          sandbox.ImagesWrite,
	"POST /v1/images/prune":                                         sandbox.ImagesWrite, // of all workspaces: Administer, too
	"DELETE /v1/images/{image}":                                     sandbox.ImagesWrite, // one for all workspaces: Administer, too
	"GET /v1/registries":                                            sandbox.ImagesRead,
	"POST /v1/registries":                                           sandbox.ImagesWrite,
	"GET /v1/registries/{registry}":                                 sandbox.ImagesRead,
	"PATCH /v1/registries/{registry}":                               sandbox.ImagesWrite,
	"DELETE /v1/registries/{registry}":                              sandbox.ImagesWrite,
	"GET /v1/sandbox-images":                                        sandbox.ImagesRead,
	"POST /v1/sandbox-images":                                       sandbox.ImagesWrite,
	"GET /v1/sandbox-images/{sandbox_image}":                        sandbox.ImagesRead,
	"PATCH /v1/sandbox-images/{sandbox_image}":                      sandbox.ImagesWrite, // a built-in one: Administer, too
	"DELETE /v1/sandbox-images/{sandbox_image}":                     sandbox.ImagesWrite,
	"GET /v1/sandboxes":                                             sandbox.SandboxesRead,
	"POST /v1/sandboxes":                                            sandbox.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}":                                sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}":                                   sandbox.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/checkpoints":                       sandbox.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/checkpoints":                      sandbox.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/checkpoints/{checkpoint}":       sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/checkpoints/{checkpoint}/restore": sandbox.SandboxesWrite,
	"PATCH /v1/sandboxes/{sandbox}":                                 sandbox.SandboxesWrite,
	"PATCH /v1/sandboxes/{sandbox}/env":                             sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/events":                            sandbox.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/exec":                             sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/exec/attach":                       sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/exec/stream":                      sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/executions":                        sandbox.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/executions":                       sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/executions/{execution}/attach":     sandbox.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/files":                          sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files":                             sandbox.SandboxesWrite,
	"PUT /v1/sandboxes/{sandbox}/files":                             sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/archive":                     sandbox.SandboxesWrite,
	"PUT /v1/sandboxes/{sandbox}/files/archive":                     sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/files/batch":                      sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/list":                        sandbox.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/files/mkdir":                      sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/files/move":                       sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/stat":                        sandbox.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/files/watch":                       sandbox.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/ports":                             sandbox.SandboxesRead,
	"PUT /v1/sandboxes/{sandbox}/ports/{port}":                      sandbox.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/ports/{port}":                   sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/ports/{port}/rotate":              sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/ports/{port}/links":               sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/fork":                             sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/pause":                            sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/resume":                           sandbox.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/stats":                             sandbox.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/wait":                              sandbox.SandboxesRead,
	"GET /v1/runtimes":                                              sandbox.ImagesRead,
	"GET /v1/sandboxes/{sandbox}/usage":                             sandbox.SandboxesRead,
	"PATCH /v1/sandboxes/{sandbox}/network":                         sandbox.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/snapshots":                        sandbox.SandboxesWrite,
	"GET /v1/snapshots":                                             sandbox.SandboxesRead,
	"GET /v1/snapshots/{snapshot}":                                  sandbox.SandboxesRead,
	"GET /v1/snapshots/{snapshot}/files":                            sandbox.SandboxesRead,
	"GET /v1/snapshots/{snapshot}/archive":                          sandbox.SandboxesWrite,
	"POST /v1/snapshots/{snapshot}/download":                        sandbox.SandboxesWrite,
	"GET /v1/downloads/{key}":                                       auth.Public, // the key is the secret
	"GET /v1/snapshots/{snapshot}/lineage":                          sandbox.SandboxesRead,
	"PATCH /v1/snapshots/{snapshot}":                                sandbox.SandboxesWrite,
	"DELETE /v1/snapshots/{snapshot}":                               sandbox.SandboxesWrite,
	"POST /v1/snapshot-builds":                                      sandbox.SandboxesWrite,
	"GET /v1/snapshot-builds/{build}/progress":                      sandbox.SandboxesRead,
	"GET /v1/snapshot-builds/{build}/log":                           sandbox.SandboxesRead,
	"PUT /v1/snapshot-builds/{build}/files":                         sandbox.SandboxesWrite,
	"POST /v1/snapshot-builds/{build}/finish":                       sandbox.SandboxesWrite,
	"POST /v1/streams":                                              sandbox.SandboxesWrite,
	"GET /v1/tokens":                                                sandbox.TokensRead,
	"POST /v1/tokens":                                               sandbox.TokensWrite,
	"DELETE /v1/tokens/{token}":                                     sandbox.TokensWrite,
	"POST /v1/apt-packages/validate":                                sandbox.SandboxesWrite,
	"GET /v1/audit":                                                 sandbox.AuditRead,
	"GET /v1/audit/installation":                                    sandbox.Administer,
	"GET /v1/audit/verify":                                          sandbox.Administer,
	"POST /v1/auth/login":                                           auth.Public,
	"POST /v1/auth/refresh":                                         auth.Public,
	"POST /v1/auth/accept":                                          auth.Public,
	"POST /v1/auth/exchange":                                        auth.Public,
	"GET /v1/auth/providers":                                        auth.Public,
	"POST /v1/auth/logout":                                          auth.SignedIn,
	"PUT /v1/account/password":                                      sandbox.AccountWrite,
	"GET /v1/account/sessions":                                      sandbox.AccountWrite,
	"DELETE /v1/account/sessions":                                   sandbox.AccountWrite,
	"DELETE /v1/account/sessions/{session}":                         sandbox.AccountWrite,
	"GET /v1/workspaces":                                            auth.SignedIn,
	"POST /v1/workspaces":                                           sandbox.AccountWrite,
	"GET /v1/workspaces/{workspace}":                                sandbox.WorkspacesRead,
	"PATCH /v1/workspaces/{workspace}":                              sandbox.WorkspacesWrite,
	"DELETE /v1/workspaces/{workspace}":                             sandbox.WorkspacesDelete,
	"GET /v1/workspaces/{workspace}/quota":                          sandbox.WorkspacesRead,
	"PUT /v1/workspaces/{workspace}/quota":                          sandbox.Administer,
	"GET /v1/workspaces/{workspace}/members":                        sandbox.WorkspacesRead,
	"POST /v1/workspaces/{workspace}/members":                       sandbox.MembersWrite,
	"PUT /v1/workspaces/{workspace}/members/{user}":                 sandbox.MembersWrite,
	"DELETE /v1/workspaces/{workspace}/members/{user}":              sandbox.WorkspacesRead, // to leave; more to remove others
	"GET /v1/workspaces/{workspace}/invitations":                    sandbox.MembersWrite,
	"DELETE /v1/workspaces/{workspace}/invitations/{invitation}":    sandbox.MembersWrite,
	"GET /v1/users":                                                 sandbox.Administer,
	"POST /v1/users":                                                sandbox.Administer,
	"PATCH /v1/users/{user}":                                        sandbox.Administer,
	"DELETE /v1/users/{user}":                                       sandbox.Administer,
	"POST /v1/users/{user}/reset":                                   sandbox.Administer,
	"GET /v1/version":                                               auth.SignedIn,
	"GET /v1/whoami":                                                auth.SignedIn,
}

// administered are the routes by which administrators reach workspaces that they
// are no members of.
var administered = map[string]bool{
	"GET /v1/workspaces/{workspace}/quota": true,
	"PUT /v1/workspaces/{workspace}/quota": true,
}

// router is where the routes of /v1 are added.
type router interface {
	// HandleFunc adds a route.
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
	// ServeHTTP serves a request by the route that matches it.
	ServeHTTP(w http.ResponseWriter, r *http.Request)
}

// ruled is a router that puts every route behind its permission.
type ruled struct{ *auth.Mux }

// HandleFunc adds a route.
func (m ruled) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, auth.Rule{Needs: needs[pattern], Action: recorded[pattern], Administrators: administered[pattern], Fail: edge.Error}, http.HandlerFunc(h))
}

// open reports whether an operation needs no credentials.
func open(op *huma.Operation) bool { return needs[op.Method+" "+op.Path] == auth.Public }

// scope is what a narrowed token must have for the operation, for the document.
func scope(op *huma.Operation) []string {
	if p := needs[op.Method+" "+op.Path]; p.Valid() {
		return []string{string(p)}
	}
	return []string{}
}
