package api_test

import (
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
)

func TestUpdateSandbox(t *testing.T) {
	s := apitest.New(t)
	const field = "checkpoint_interval_seconds"
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "u", "wait_seconds": 60, field: 3600}).Into(t, &sb)
	if sb.CheckpointIntervalSeconds != 3600 || sb.LastCheckpointAt != nil {
		t.Errorf("created with interval %d and a checkpoint at %v, want 3600 and none", sb.CheckpointIntervalSeconds, sb.LastCheckpointAt)
	}
	s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{field: 60}).Into(t, &sb)
	if sb.CheckpointIntervalSeconds != 60 {
		t.Errorf("interval %d after an update, want 60", sb.CheckpointIntervalSeconds)
	}
	s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{}).Into(t, &sb)
	if sb.CheckpointIntervalSeconds != 60 {
		t.Errorf("interval %d after an update without it, want 60", sb.CheckpointIntervalSeconds)
	}
	for _, bad := range []any{59, 86401, -1, "often", 1.5} {
		p := problem(t, s.Want(422, "PATCH", "/v1/sandboxes/u", map[string]any{field: bad}))
		if len(p.Errors) == 0 || p.Errors[0].Location != field && p.Errors[0].Location != "body."+field {
			t.Errorf("interval %v: %+v, want the field named", bad, p)
		}
	}
	problem(t, s.Want(422, "PATCH", "/v1/sandboxes/u", map[string]any{"name": "other"})) // no such setting
	problem(t, s.Want(404, "PATCH", "/v1/sandboxes/none", map[string]any{field: 60}))
	s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{field: 0}).Into(t, &sb)
	if sb.CheckpointIntervalSeconds != 0 {
		t.Errorf("interval %d after it was switched off", sb.CheckpointIntervalSeconds)
	}
	s.Want(200, "DELETE", "/v1/sandboxes/u", nil)
	problem(t, s.Want(apierror.Status("ended"), "PATCH", "/v1/sandboxes/u", map[string]any{field: 60}))
}
