package api

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/auth"
)

// recorded are the routes of /v1 whose presence in the audit log does not follow from their method:
// all methods but GET are recorded. A record has the operation's id.
var recorded = map[string]string{
	"GET /v1/sandboxes/{sandbox}/exec/attach":                   auth.Recorded,
	"GET /v1/sandboxes/{sandbox}/executions/{execution}/attach": auth.Recorded,
	"GET /v1/sandboxes/{sandbox}/ports/{port}/connect":          auth.Recorded,
	"POST /v1/apt-packages/validate":                            auth.NotRecorded,
}

// publicActions are as what routes beside /v1 are recorded.
var publicActions = map[string]string{
	"PUT /v1/streams/{stream}":          "write-stream",
	"GET /auth/sso/{provider}/callback": "login",
}

// operationIDs returns the ids of the operations by pattern.
func operationIDs(document *huma.OpenAPI) map[string]string {
	ids := map[string]string{}
	for path, item := range document.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				ids[op.Method+" "+path] = op.OperationID
			}
		}
	}
	return ids
}
