package modbox

import "github.com/modbox/modbox/internal/auth"

// actions are the audit actions of the routes that change something, named like the operations of
// /v1 that do the same. A route without one keeps the server from starting.
var actions = map[string]string{
	"POST /sandboxes/provision":                     "create-sandbox",
	"POST /sandboxes/wait":                          auth.NotRecorded,
	"POST /sandboxes/destroy":                       "delete-sandbox",
	"POST /sandbox-images":                          "create-sandbox-image",
	"PUT /sandbox-images/{image_id}":                "update-sandbox-image",
	"DELETE /sandbox-images/{image_id}":             "delete-sandbox-image",
	"POST /registries":                              "create-registry",
	"PUT /registries/{registry_id}":                 "update-registry",
	"DELETE /registries/{registry_id}":              "delete-registry",
	"POST /auth/login":                              "login",
	"POST /auth/refresh":                            "refresh-session",
	"POST /auth/logout":                             "logout",
	"POST /api-tokens":                              "create-token",
	"DELETE /api-tokens/{token}":                    "revoke-token",
	"POST /workspaces":                              "create-workspace",
	"PUT /workspaces/{workspace}":                   "update-workspace",
	"DELETE /workspaces/{workspace}":                "delete-workspace",
	"POST /workspaces/{workspace}/members":          "add-member",
	"PUT /workspaces/{workspace}/members/{user}":    "set-member-role",
	"DELETE /workspaces/{workspace}/members/{user}": "delete-member",
}

// planeActions are the actions of a sandbox's own URL; requests that are missing here change
// nothing.
var planeActions = map[string]string{
	"POST /execute":                              "exec",
	"POST /modbox/api/exec":                      "exec",
	"POST /modbox/api/files/upload":              "write-file",
	"DELETE /modbox/api/files/delete/{filename}": "delete-file",
	"DELETE /modbox/api/files/{filename}":        "delete-file",
	"POST /modbox/api/files/delete":              "delete-file",
}
