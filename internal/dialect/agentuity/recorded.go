package agentuity

import "github.com/modbox/modbox/internal/auth"

// actions are the audit actions of the routes that change something, named like the operations of
// /v1 that do the same. A route without one keeps the server from starting.
var actions = map[string]string{
	"POST /sandbox":                                      "create-sandbox",
	"DELETE /sandbox/{id}":                               "delete-sandbox",
	"POST /sandbox/{id}/pause":                           "pause-sandbox",
	"POST /sandbox/{id}/resume":                          "resume-sandbox",
	"PATCH /sandbox/env/{id}":                            "update-env",
	"POST /sandbox/sandboxes/{id}/jobs":                  "start-execution",
	"DELETE /sandbox/sandboxes/{id}/jobs/{job}":          "cancel-execution",
	"POST /fs/{id}":                                      "write-files",
	"POST /fs/mkdir/{id}":                                "make-directory",
	"POST /fs/rmdir/{id}":                                "delete-file",
	"POST /fs/rm/{id}":                                   "delete-file",
	"POST /fs/upload/{id}":                               "upload-archive",
	"POST /sandbox/{id}/checkpoint":                      "create-checkpoint",
	"POST /sandbox/{id}/checkpoint/{checkpoint}/restore": "restore-checkpoint",
	"DELETE /sandbox/{id}/checkpoint/{checkpoint}":       "delete-checkpoint",
	"POST /sandbox/{id}/snapshot":                        "create-snapshot",
	"PATCH /sandbox/snapshots/{snapshot}":                "tag-snapshot",
	"DELETE /sandbox/snapshots/{snapshot}":               "delete-snapshot",
	"POST /sandbox/snapshots/build":                      "begin-snapshot-build",
	"PUT /sandbox/snapshots/{snapshot}/upload":           "upload-snapshot-build",
	"POST /sandbox/snapshots/{snapshot}/finalize":        "finish-snapshot-build",
	"POST /sandbox/{id}/execute":                         "start-execution",
	"POST /streams":                                      "create-stream",
	"PUT /streams/{stream}":                              "write-stream",
	"POST /cli/validate/apt-dependencies":                auth.NotRecorded,
}
