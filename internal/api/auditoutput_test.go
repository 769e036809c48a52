package api_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
)

// TestAuditOutput sets whether a workspace has outputs in its audit log, and runs a command before and after.
func TestAuditOutput(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "x")
	var list wire.Page[wire.Workspace]
	s.Want(200, "GET", "/v1/workspaces", nil).Into(t, &list)
	if list.Items[0].AuditOutput {
		t.Error("a new workspace has outputs in its audit log")
	}
	workspace := "/v1/workspaces/" + list.Items[0].ID
	if p := problem(t, s.Want(422, "PATCH", workspace, map[string]any{"audit_output": "yes"})); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Location, "audit_output") {
		t.Errorf("audit_output yes: %+v", p)
	}
	set := func(body map[string]any, want bool) {
		t.Helper()
		var w wire.Workspace
		s.Want(200, "PATCH", workspace, body).Into(t, &w)
		if w.AuditOutput != want {
			t.Errorf("after %v: audit_output %t, want %t", body, w.AuditOutput, want)
		}
	}
	set(map[string]any{"audit_output": true}, true)
	set(map[string]any{"description": "d"}, true)
	set(map[string]any{"audit_output": false}, false)
}
