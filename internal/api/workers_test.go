package api_test

import (
	"encoding/json"
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
