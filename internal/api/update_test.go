package api_test

import (
	"testing"
	"time"

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

func TestUpdateTTL(t *testing.T) {
	s := apitest.New(t)
	const field = "ttl_seconds"
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "u", "wait_seconds": 60, field: 3600}).Into(t, &sb)
	for _, ttl := range []int{60, 86400} { // shorter than before, and longer
		before := time.Now()
		s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{field: ttl}).Into(t, &sb)
		want := time.Duration(ttl) * time.Second
		if sb.TTLSeconds != int64(ttl) || sb.Deadline == nil || sb.Deadline.Before(before.Add(want)) || sb.Deadline.After(time.Now().Add(want)) {
			t.Errorf("ttl_seconds %d, deadline %v after an update at %s, want %d and that long after it", sb.TTLSeconds, sb.Deadline, before, ttl)
		}
	}
	deadline := *sb.Deadline
	s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{"checkpoint_interval_seconds": 60}).Into(t, &sb)
	if sb.Deadline == nil || !sb.Deadline.Equal(deadline) {
		t.Errorf("deadline %v after an update of another setting, want %s", sb.Deadline, deadline)
	}
	for _, bad := range []any{59, 86401, -1, "long", 1.5} {
		p := problem(t, s.Want(422, "PATCH", "/v1/sandboxes/u", map[string]any{field: bad}))
		if len(p.Errors) == 0 || p.Errors[0].Location != field && p.Errors[0].Location != "body."+field {
			t.Errorf("ttl %v: %+v, want the field named", bad, p)
		}
	}
	if s.Want(200, "GET", "/v1/sandboxes/u", nil).Into(t, &sb); !sb.Deadline.Equal(deadline) {
		t.Errorf("deadline %v after refused updates, want %s", sb.Deadline, deadline)
	}
	var none wire.Sandbox
	s.Want(200, "PATCH", "/v1/sandboxes/u", map[string]any{field: 0}).Into(t, &none)
	if none.TTLSeconds != 0 || none.Deadline != nil {
		t.Errorf("ttl_seconds %d, deadline %v after it was removed", none.TTLSeconds, none.Deadline)
	}
	var events wire.Page[wire.Event]
	s.Want(200, "GET", "/v1/sandboxes/u/events?order=desc", nil).Into(t, &events)
	types := map[string]int{}
	for _, ev := range events.Items {
		types[ev.Type]++
	}
	if types["ttl"] != 3 {
		t.Errorf("%d events of type ttl, want one for each of 3 changes: %v", types["ttl"], types)
	}
	s.Want(200, "DELETE", "/v1/sandboxes/u", nil)
	problem(t, s.Want(apierror.Status("ended"), "PATCH", "/v1/sandboxes/u", map[string]any{field: 60}))
	problem(t, s.Want(404, "PATCH", "/v1/sandboxes/none", map[string]any{field: 60}))
}
