package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
)

func TestSnapshotRoutes(t *testing.T) {
	s := apitest.New(t)
	sb := running(t, s, "s")
	var first, second, got wire.Snapshot
	s.Want(201, "POST", "/v1/sandboxes/s/snapshots", map[string]any{"name": "n", "description": "d", "metadata": map[string]string{"k": "v"}}).Into(t, &first)
	if first.Tag != "latest" || first.SandboxID != sb.ID || first.FullName != "@default/n:latest" || first.Metadata["k"] != "v" || first.BaseDigest == "" {
		t.Errorf("snapshot %+v", first)
	}
	s.Want(201, "POST", "/v1/sandboxes/s/snapshots", map[string]any{"name": "n", "public": true}).Into(t, &second)
	for _, ref := range []string{"n", "n:latest", "@default%2Fn:latest", second.ID} {
		s.Want(200, "GET", "/v1/snapshots/"+ref, nil).Into(t, &got)
		if d := cmp.Diff(second, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", ref, d)
		}
	}
	s.Want(200, "PATCH", "/v1/snapshots/"+first.ID, map[string]any{"tag": "v1"}).Into(t, &got)
	if got.Tag != "v1" {
		t.Errorf("tagged: %+v", got)
	}
	got = wire.Snapshot{}
	s.Want(200, "PATCH", "/v1/snapshots/n", map[string]any{"tag": nil}).Into(t, &got)
	if got.ID != second.ID || got.Tag != "" {
		t.Errorf("without tag: %+v", got)
	}
	for query, want := range map[string]int{
		"": 2, "?public=true": 1, "?name=n&tag=v1": 1, "?sandbox_id=" + sb.ID: 2, "?sort=name&order=asc&limit=1": 1, "?sandbox_id=x": 0,
	} {
		var list wire.Page[wire.Snapshot]
		s.Want(200, "GET", "/v1/snapshots"+query, nil).Into(t, &list)
		if len(list.Items) != want {
			t.Errorf("list%s has %d, want %d", query, len(list.Items), want)
		}
	}
	var child wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"snapshot": "n:v1", "name": "child", "wait_seconds": 180}).Into(t, &child)
	if child.SnapshotID != first.ID || child.State != "running" {
		t.Errorf("sandbox made from it: %+v", child)
	}
	var sandboxes wire.Page[wire.Sandbox]
	s.Want(200, "GET", "/v1/sandboxes?snapshot_id="+first.ID, nil).Into(t, &sandboxes)
	if len(sandboxes.Items) != 1 || sandboxes.Items[0].ID != child.ID {
		t.Errorf("sandboxes of the snapshot: %+v", sandboxes)
	}
	s.Want(204, "DELETE", "/v1/snapshots/"+first.ID, nil)
	problem(t, s.Want(404, "DELETE", "/v1/snapshots/"+first.ID, nil))
	var lineage wire.Page[wire.Snapshot]
	s.Want(200, "GET", "/v1/snapshots/"+second.ID+"/lineage", nil).Into(t, &lineage)
	if len(lineage.Items) != 2 || lineage.Items[1].ID != first.ID || lineage.Items[1].DeletedAt == nil {
		t.Errorf("lineage %+v", lineage)
	}
	for path, body := range map[string]map[string]any{
		"/v1/sandboxes/s/snapshots": {"name": "a b"},
		"/v1/sandboxes":             {"snapshot": "none"},
	} {
		problem(t, s.Want(422, "POST", path, body))
	}
	problem(t, s.Want(404, "GET", "/v1/snapshots/none", nil))
	problem(t, s.Want(422, "PATCH", "/v1/snapshots/"+second.ID, map[string]any{"tag": "-"}))
}
