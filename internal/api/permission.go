package api

import (
	"net/http"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
)

// needs is the permission of each route of /v1. A route without one makes the server refuse to
// start, so that every new route has a permission. A GET that runs something or gives access needs
// the permission to write; so does reading files, among which are the sandbox's own address and
// keys (/proc/PID/environ).
var needs = map[string]account.Permission{
	"GET /v1/events":                                                   account.SandboxesRead,
	"GET /v1/events/stream":                                            account.SandboxesRead,
	"GET /v1/executions/{execution}":                                   account.SandboxesRead,
	"POST /v1/executions/{execution}/cancel":                           account.SandboxesWrite,
	"GET /v1/host":                                                     account.Administer,
	"GET /v1/images":                                                   account.ImagesRead,
	"GET /v1/images/{image}":                                           account.ImagesRead,
	"POST /v1/images/pull":                                             account.SandboxesWrite, // as creating a sandbox does
	"POST /v1/images/build":                                            account.ImagesWrite,
	"POST /v1/images/push":                                             account.ImagesWrite,
	"POST /v1/images/prune":                                            account.ImagesWrite, // of all workspaces: Administer, too
	"DELETE /v1/images/{image}":                                        account.ImagesWrite, // one for all workspaces: Administer, too
	"GET /v1/registries":                                               account.ImagesRead,
	"POST /v1/registries":                                              account.ImagesWrite,
	"GET /v1/registries/{registry}":                                    account.ImagesRead,
	"PATCH /v1/registries/{registry}":                                  account.ImagesWrite,
	"DELETE /v1/registries/{registry}":                                 account.ImagesWrite,
	"GET /v1/sandbox-images":                                           account.ImagesRead,
	"POST /v1/sandbox-images":                                          account.ImagesWrite,
	"GET /v1/sandbox-images/{sandbox_image}":                           account.ImagesRead,
	"PATCH /v1/sandbox-images/{sandbox_image}":                         account.ImagesWrite, // a built-in one: Administer, too
	"DELETE /v1/sandbox-images/{sandbox_image}":                        account.ImagesWrite,
	"GET /v1/sandboxes":                                                account.SandboxesRead,
	"POST /v1/sandboxes":                                               account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}":                                   account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}":                                      account.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/checkpoints":                          account.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/checkpoints":                         account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/checkpoints/{checkpoint}":          account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/checkpoints/{checkpoint}/restore":    account.SandboxesWrite,
	"PATCH /v1/sandboxes/{sandbox}":                                    account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/desktop":                              account.SandboxesWrite,
	"PATCH /v1/sandboxes/{sandbox}/desktop":                            account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/desktop/screenshot":                   account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/desktop/actions":                     account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/desktop/windows":                      account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/desktop/windows/{window}/focus":      account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/desktop/windows/{window}":          account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/desktop/open":                        account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/desktop/recordings":                  account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/desktop/recordings":                   account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/desktop/recordings/{recording}":       account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/desktop/recordings/{recording}":    account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/desktop/recordings/{recording}/stop": account.SandboxesWrite,
	"PATCH /v1/sandboxes/{sandbox}/env":                                account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/code":                                account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/code/stream":                         account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/code/scan":                           account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/contexts":                             account.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/contexts":                            account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/contexts/{context}":                account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/contexts/{context}/interrupt":        account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/contexts/{context}/restart":          account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/events":                               account.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/exec":                                account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/exec/attach":                          account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/exec/stream":                         account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/executions":                           account.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/executions":                          account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/executions/{execution}/attach":        account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/files":                             account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files":                                account.SandboxesWrite,
	"PUT /v1/sandboxes/{sandbox}/files":                                account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/archive":                        account.SandboxesWrite,
	"PUT /v1/sandboxes/{sandbox}/files/archive":                        account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/files/batch":                         account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/list":                           account.SandboxesRead,
	"POST /v1/sandboxes/{sandbox}/files/mkdir":                         account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/files/move":                          account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/files/stat":                           account.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/files/watch":                          account.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/ports":                                account.SandboxesRead,
	"PUT /v1/sandboxes/{sandbox}/ports/{port}":                         account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/ports/{port}/connect":                 account.SandboxesWrite,
	"DELETE /v1/sandboxes/{sandbox}/ports/{port}":                      account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/ports/{port}/rotate":                 account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/ports/{port}/links":                  account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/fork":                                account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/pause":                               account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/archive":                             account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/resume":                              account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/stats":                                account.SandboxesRead,
	"GET /v1/sandboxes/{sandbox}/wait":                                 account.SandboxesRead,
	"GET /v1/runtimes":                                                 account.ImagesRead,
	"GET /v1/sandboxes/{sandbox}/usage":                                account.SandboxesRead,
	"PATCH /v1/sandboxes/{sandbox}/network":                            account.SandboxesWrite,
	"POST /v1/sandboxes/{sandbox}/snapshots":                           account.SandboxesWrite,
	"GET /v1/sandboxes/{sandbox}/diff":                                 account.SandboxesWrite, // it makes the sandbox stand still
	"GET /v1/sandboxes/{sandbox}/diff/original":                        account.SandboxesWrite, // as reading files
	"GET /v1/snapshots":                                                account.SandboxesRead,
	"GET /v1/snapshots/{snapshot}":                                     account.SandboxesRead,
	"GET /v1/snapshots/{snapshot}/files":                               account.SandboxesRead,
	"GET /v1/snapshots/{snapshot}/archive":                             account.SandboxesWrite,
	"POST /v1/snapshots/{snapshot}/download":                           account.SandboxesWrite,
	"GET /v1/downloads/{key}":                                          auth.Public, // the key is the secret
	"GET /v1/snapshots/{snapshot}/lineage":                             account.SandboxesRead,
	"PATCH /v1/snapshots/{snapshot}":                                   account.SandboxesWrite,
	"DELETE /v1/snapshots/{snapshot}":                                  account.SandboxesWrite,
	"POST /v1/snapshot-builds":                                         account.SandboxesWrite,
	"GET /v1/snapshot-builds/{build}/progress":                         account.SandboxesRead,
	"GET /v1/snapshot-builds/{build}/log":                              account.SandboxesRead,
	"PUT /v1/snapshot-builds/{build}/files":                            account.SandboxesWrite,
	"POST /v1/snapshot-builds/{build}/finish":                          account.SandboxesWrite,
	"POST /v1/streams":                                                 account.SandboxesWrite,
	"GET /v1/tokens":                                                   account.TokensRead,
	"POST /v1/tokens":                                                  account.TokensWrite,
	"DELETE /v1/tokens/{token}":                                        account.TokensWrite,
	"POST /v1/apt-packages/validate":                                   account.SandboxesWrite,
	"GET /v1/audit":                                                    account.AuditRead,
	"GET /v1/audit/installation":                                       account.Administer,
	"GET /v1/audit/verify":                                             account.Administer,
	"POST /v1/auth/login":                                              auth.Public,
	"POST /v1/auth/refresh":                                            auth.Public,
	"POST /v1/auth/accept":                                             auth.Public,
	"POST /v1/auth/exchange":                                           auth.Public,
	"GET /v1/auth/providers":                                           auth.Public,
	"POST /v1/auth/logout":                                             auth.SignedIn,
	"PUT /v1/account/password":                                         account.AccountWrite,
	"GET /v1/account/sessions":                                         account.AccountWrite,
	"DELETE /v1/account/sessions":                                      account.AccountWrite,
	"DELETE /v1/account/sessions/{session}":                            account.AccountWrite,
	"GET /v1/workspaces":                                               auth.SignedIn,
	"POST /v1/workspaces":                                              account.AccountWrite,
	"GET /v1/workspaces/{workspace}":                                   account.WorkspacesRead,
	"PATCH /v1/workspaces/{workspace}":                                 account.WorkspacesWrite,
	"DELETE /v1/workspaces/{workspace}":                                account.WorkspacesDelete,
	"GET /v1/workspaces/{workspace}/quota":                             account.WorkspacesRead,
	"PUT /v1/workspaces/{workspace}/quota":                             account.Administer,
	"GET /v1/workspaces/{workspace}/members":                           account.WorkspacesRead,
	"POST /v1/workspaces/{workspace}/members":                          account.MembersWrite,
	"PUT /v1/workspaces/{workspace}/members/{user}":                    account.MembersWrite,
	"DELETE /v1/workspaces/{workspace}/members/{user}":                 account.WorkspacesRead, // to leave; more to remove others
	"GET /v1/workspaces/{workspace}/invitations":                       account.MembersWrite,
	"DELETE /v1/workspaces/{workspace}/invitations/{invitation}":       account.MembersWrite,
	"GET /v1/users":                                                    account.Administer,
	"POST /v1/users":                                                   account.Administer,
	"PATCH /v1/users/{user}":                                           account.Administer,
	"DELETE /v1/users/{user}":                                          account.Administer,
	"POST /v1/users/{user}/reset":                                      account.Administer,
	"GET /v1/ssh":                                                      auth.SignedIn,
	"GET /v1/ssh-keys":                                                 account.TokensRead,
	"POST /v1/ssh-keys":                                                account.TokensWrite,
	"DELETE /v1/ssh-keys/{ssh_key}":                                    account.TokensWrite,
	"GET /v1/version":                                                  auth.SignedIn,
	"GET /v1/whoami":                                                   auth.SignedIn,
	"GET /v1/webhooks":                                                 account.WebhooksRead,
	"POST /v1/webhooks":                                                account.WebhooksWrite,
	"GET /v1/webhooks/{webhook}":                                       account.WebhooksRead,
	"PATCH /v1/webhooks/{webhook}":                                     account.WebhooksWrite,
	"DELETE /v1/webhooks/{webhook}":                                    account.WebhooksWrite,
	"POST /v1/webhooks/{webhook}/rotate":                               account.WebhooksWrite,
	"POST /v1/webhooks/{webhook}/test":                                 account.WebhooksWrite,
	"GET /v1/webhooks/{webhook}/deliveries":                            account.WebhooksRead,
	"GET /v1/webhooks/{webhook}/deliveries/{delivery}":                 account.WebhooksRead,
	"POST /v1/webhooks/{webhook}/deliveries/{delivery}/redeliver":      account.WebhooksWrite,
}

// administered are the routes by which administrators reach workspaces that they
// are no members of.
var administered = map[string]bool{
	"GET /v1/workspaces/{workspace}/quota": true,
	"PUT /v1/workspaces/{workspace}/quota": true,
}

// ruled is a router that puts every route behind its permission.
type ruled struct{ *auth.Mux }

// HandleFunc adds a route.
func (m ruled) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, auth.Rule{Needs: needs[pattern], Action: recorded[pattern], Administrators: administered[pattern], Fail: edge.Error}, http.HandlerFunc(h))
}
