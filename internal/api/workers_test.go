package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
)

// TestWorkers drains and removes workers.
func TestWorkers(t *testing.T) {
	d := apitest.Workers(t, "one", "two")
	s := apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) { deps.Workers = d })
	get := func(ref string) (w wire.Worker) {
		t.Helper()
		s.Want(200, "GET", "/v1/workers/"+ref, nil).Into(t, &w)
		return w
	}
	var list wire.Page[wire.Worker]
	s.Want(200, "GET", "/v1/workers?limit=1", nil).Into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "one" || list.NextCursor == nil {
		t.Fatalf("the first page of the list is %+v", list)
	}
	s.Want(200, "GET", "/v1/workers?cursor="+*list.NextCursor, nil).Into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "two" {
		t.Errorf("the second page of the list is %+v", list)
	}

	var w wire.Worker
	s.Want(200, "PATCH", "/v1/workers/two", map[string]any{"draining": true}).Into(t, &w)
	if !w.Draining || w.State != "connected" || w.ID != "worker-two" {
		t.Errorf("the worker that is being drained is %+v", w)
	}
	s.Want(200, "PATCH", "/v1/workers/two", map[string]any{}).Into(t, &w)
	if !w.Draining {
		t.Error("a change of nothing ends the drain")
	}
	for range 2 {
		if _, on := apitest.NewWorkerBox(t, d); on != "one" {
			t.Errorf("a box is on %q while the other worker is being drained", on)
		}
	}
	w = get("worker-one")
	if w.Sandboxes != 2 || w.MemoryPromisedBytes != 2<<30 || w.MemoryPromisedMaxBytes != apitest.WorkerMemory/2 || w.MemoryBytes != apitest.WorkerMemory ||
		w.Cores != 4 || w.Version != "1.0" || w.Address == "" || w.ConnectedAt == nil || w.ConnectedAt.After(w.SeenAt) || time.Since(w.CreatedAt) > time.Hour {
		t.Errorf("the worker is %+v", w)
	}
	s.Want(200, "PATCH", "/v1/workers/two", map[string]any{"draining": false})
	if _, on := apitest.NewWorkerBox(t, d); on != "two" {
		t.Errorf("a box is on %q", on)
	}

	if b := s.Want(409, "DELETE", "/v1/workers/one", nil).Body; !strings.Contains(string(b), "2 sandboxes") {
		t.Errorf("the removal of a worker with sandboxes: %s", b)
	}
	s.Want(204, "DELETE", "/v1/workers/one?force=true", nil)
	s.Want(404, "GET", "/v1/workers/one", nil)
	s.Want(404, "DELETE", "/v1/workers/one", nil)
	s.Want(404, "PATCH", "/v1/workers/three", map[string]any{"draining": true})

	var log wire.Page[struct{ Record json.RawMessage }]
	s.Want(200, "GET", "/v1/audit/installation?action=update-worker", nil).Into(t, &log)
	if len(log.Items) != 4 {
		t.Fatalf("the audit log has %d changes of workers, want 4", len(log.Items))
	}
	if r := string(log.Items[1].Record); !strings.Contains(r, `"object_id":"worker-two"`) || !strings.Contains(r, `"object_name":"two"`) || !strings.Contains(r, `"draining":"false"`) {
		t.Errorf("the record of a change is %s", r)
	}
	s.Want(200, "GET", "/v1/audit/installation?action=delete-worker&object=worker-one", nil).Into(t, &log)
	if len(log.Items) != 2 || !strings.Contains(string(log.Items[0].Record), `"force":"true"`) {
		t.Errorf("the records of a removal are %v", log.Items)
	}
}

// TestSandboxWorker checks that only administrators of the installation see the worker of a sandbox.
func TestSandboxWorker(t *testing.T) {
	s, _ := apitest.NewOnWorkers(t, "one", "two")
	const in = "/v1/sandboxes/mine"
	s.Want(201, "POST", "/v1/users", object{"name": "tina", "password": "correct horse"})
	var list wire.Page[wire.Workspace]
	s.Want(200, "GET", "/v1/workspaces", nil).Into(t, &list)
	s.Want(201, "POST", "/v1/workspaces/"+list.Items[0].ID+"/members", object{"name": "tina", "role": "owner"})
	var limited struct{ Token string }
	s.Want(201, "POST", "/v1/tokens", object{"description": "limited", "scopes": []string{"sandboxes:read", "sandboxes:write"}}).Into(t, &limited)
	administrator := s.Token
	tina := signIn(t, s, "tina", "correct horse").Access
	// shown returns the workers of the sandbox in all answers of an administrator, and checks that nobody else sees any.
	shown := func(method, path string, body any) (worker string) {
		t.Helper()
		for _, caller := range []struct{ name, token string }{{"tina", tina}, {"a limited token", limited.Token}, {"", administrator}} {
			name := caller.name
			as(s, caller.token)
			r := s.Request(method, path, body)
			r.Header.Set("X-Workspace-Id", list.Items[0].ID)
			a := s.Send(r)
			if a.Status >= 300 {
				t.Fatalf("%s %s of %q = %d %s", method, path, name, a.Status, a.Body)
			}
			found := regexp.MustCompile(`"worker":"([^"]*)"`).FindSubmatch(a.Body)
			switch {
			case name == "" && found != nil:
				worker = string(found[1])
			case name != "" && strings.Contains(string(a.Body), "worker"):
				t.Errorf("%s %s shows %s a worker: %s", method, path, name, a.Body)
			}
		}
		as(s, administrator)
		return worker
	}
	if on := shown("POST", "/v1/sandboxes", object{"name": "mine", "wait_seconds": 60}); on != "one" {
		t.Errorf("a new sandbox is on %q, want one", on)
	}
	for _, path := range []string{in, "/v1/sandboxes", in + "/wait"} {
		if on := shown("GET", path, nil); on != "one" {
			t.Errorf("GET %s shows the worker %q, want one", path, on)
		}
	}
	shown("PATCH", in, object{"ttl_seconds": 600})
	s.Want(200, "PATCH", "/v1/workers/one", object{"draining": true})
	for _, change := range []struct{ path, want string }{{"pause", ""}, {"resume", "two"}} {
		if on := shown("POST", in+"/"+change.path, nil); on != change.want {
			t.Errorf("after %s the sandbox is on %q, want %q", change.path, on, change.want)
		}
	}
	if on := shown("POST", in+"/fork", object{}); on != "two" {
		t.Errorf("a fork is on %q, want two", on)
	}
	if on := shown("DELETE", in, nil); on != "" {
		t.Errorf("the destroyed sandbox is on %q", on)
	}
}

// TestNoWorkers checks the answers of a server whose sandboxes run on its own machine.
func TestNoWorkers(t *testing.T) {
	s := apitest.New(t)
	var list wire.Page[wire.Worker]
	s.Want(200, "GET", "/v1/workers", nil).Into(t, &list)
	if list.Items == nil || len(list.Items) != 0 {
		t.Errorf("workers %+v, want none", list.Items)
	}
	if b := s.Want(404, "DELETE", "/v1/workers/one?force=true", nil).Body; !strings.Contains(string(b), "its own machine") {
		t.Errorf("the answer is %s", b)
	}
}
