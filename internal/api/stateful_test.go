package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPauseResumeAndWake(t *testing.T) {
	s := apitest.New(t)
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{
		"name": "p", "wait_seconds": 180, "description": "mine", "metadata": map[string]string{"k": "v"},
		"timeouts": map[string]any{"idle_seconds": 600, "on_idle": "pause", "paused_seconds": 3600, "execution_seconds": 7},
	}).Into(t, &sb)
	want := wire.Timeouts{IdleSeconds: 600, OnIdle: "pause", PausedSeconds: 3600, ExecutionSeconds: 7}
	if d := cmp.Diff(want, sb.Timeouts); d != "" {
		t.Errorf("timeouts (-want +got):\n%s", d)
	}
	if sb.IdleDeadline == nil || sb.LastActivity == nil || sb.PausedAt != nil || sb.Description != "mine" || sb.Metadata["k"] != "v" {
		t.Errorf("sandbox %+v", sb)
	}
	sb = wire.Sandbox{} // absent properties keep the value before
	s.Want(200, "POST", "/v1/sandboxes/p/pause", nil).Into(t, &sb)
	if sb.State != "paused" || sb.PausedAt == nil || sb.PausedUntil == nil || sb.IdleDeadline != nil {
		t.Errorf("paused: %+v", sb)
	}
	if p := problem(t, s.Want(409, "GET", "/v1/sandboxes/p/stats", nil)); p.Code != "not_running" {
		t.Errorf("stats of a paused sandbox: %+v", p)
	}
	woke := s.Want(200, "POST", "/v1/sandboxes/p/exec", map[string]any{"command": []string{"true"}})
	again := s.Want(200, "POST", "/v1/sandboxes/p/exec", map[string]any{"command": []string{"true"}})
	if woke.Header.Get("Modbox-Auto-Resumed") != "true" || again.Header.Get("Modbox-Auto-Resumed") != "" {
		t.Errorf("auto-resumed %q, then %q", woke.Header.Get("Modbox-Auto-Resumed"), again.Header.Get("Modbox-Auto-Resumed"))
	}
	s.Want(200, "POST", "/v1/sandboxes/p/pause", nil)
	s.Want(200, "POST", "/v1/sandboxes/p/resume", nil).Into(t, &sb)
	if sb.State != "running" {
		t.Errorf("resumed: %+v", sb)
	}
	problem(t, s.Want(404, "POST", "/v1/sandboxes/none/pause", nil))
	problem(t, s.Want(422, "POST", "/v1/sandboxes", map[string]any{"timeouts": map[string]any{"idle_seconds": 1}}))
	problem(t, s.Want(422, "POST", "/v1/sandboxes", map[string]any{"timeouts": map[string]any{"on_idle": "explode"}}))
}

func TestCheckpointRoutes(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "c")
	var cp wire.Checkpoint
	s.Want(201, "POST", "/v1/sandboxes/c/checkpoints", map[string]any{"name": "a/b c"}).Into(t, &cp)
	if cp.Name != "a/b c" || cp.ID == "" || cp.SizeBytes == 0 {
		t.Errorf("checkpoint %+v", cp)
	}
	if p := problem(t, s.Want(409, "POST", "/v1/sandboxes/c/checkpoints", map[string]any{"name": "a/b c"})); p.Code != "exists" {
		t.Errorf("the same name again: %+v", p)
	}
	var list wire.Page[wire.Checkpoint]
	s.Want(200, "GET", "/v1/sandboxes/c/checkpoints", nil).Into(t, &list)
	if d := cmp.Diff([]wire.Checkpoint{cp}, list.Items); d != "" {
		t.Errorf("list (-want +got):\n%s", d)
	}
	var sb wire.Sandbox
	s.Want(200, "POST", "/v1/sandboxes/c/checkpoints/a%2Fb%20c/restore", nil).Into(t, &sb)
	if sb.State != "running" {
		t.Errorf("restored: %+v", sb)
	}
	var next wire.Checkpoint
	s.Want(201, "POST", "/v1/sandboxes/c/checkpoints", map[string]any{}).Into(t, &next)
	if cp.ParentID != "" || next.ParentID != cp.ID {
		t.Errorf("parents %q and %q, want none and %q", cp.ParentID, next.ParentID, cp.ID)
	}
	s.Want(204, "DELETE", "/v1/sandboxes/c/checkpoints/"+cp.ID, nil)
	problem(t, s.Want(404, "DELETE", "/v1/sandboxes/c/checkpoints/"+cp.ID, nil))
}

func TestForkRoute(t *testing.T) {
	s := apitest.New(t)
	parent := running(t, s, "f")
	running(t, s, "taken")
	var list wire.ForkList
	s.Want(200, "POST", "/v1/sandboxes/f/fork", map[string]any{
		"names": []string{"child", "taken"}, "env": map[string]string{"A": "b"}, "ttl_seconds": 3600,
	}).Into(t, &list)
	if len(list.Forks) != 2 || list.Forks[0].Sandbox == nil || list.Forks[0].Error != nil || list.Forks[1].Error == nil || list.Forks[1].Error.Code != "exists" {
		t.Fatalf("fork: %+v", list)
	}
	if child := list.Forks[0].Sandbox; child.Parent != parent.ID || child.State != "running" || child.TTLSeconds != 3600 || child.URL == parent.URL {
		t.Errorf("child: %+v", child)
	}
	for _, count := range []int{101, 0, -1} {
		p := problem(t, s.Want(422, "POST", "/v1/sandboxes/f/fork", map[string]any{"count": count}))
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Location, "count") {
			t.Errorf("a fork of %d is refused for %+v, want the field count", count, p)
		}
	}
}

func TestVisitorsWakeASandbox(t *testing.T) {
	s := apitest.New(t)
	sb := running(t, s, "v")
	l, err := s.Host.Listen(sandbox.ID(sb.ID), 8080)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("here")) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	s.Want(200, "POST", "/v1/sandboxes/v/pause", nil)
	if a := s.Want(200, "GET", sb.URL, nil); string(a.Body) != "here" {
		t.Errorf("a visitor of a paused sandbox got %q", a.Body)
	}
	s.Want(200, "GET", "/v1/sandboxes/v", nil).Into(t, &sb)
	if sb.State != "running" {
		t.Errorf("visited sandbox is %s", sb.State)
	}
}
