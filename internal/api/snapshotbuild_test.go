package api_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestBuildRoutes(t *testing.T) {
	s := apitest.New(t)
	begin := func(more map[string]any) wire.SnapshotBuild {
		t.Helper()
		body := map[string]any{"runtime": "modbox/code-exec", "name": "b", "content_hash": "h"}
		for k, v := range more {
			body[k] = v
		}
		var b wire.SnapshotBuild
		a := s.Do("POST", "/v1/snapshot-builds", body)
		a.Into(t, &b)
		if a.Status != 201 && !b.Unchanged {
			t.Fatalf("begin: %d %s", a.Status, a.Body)
		}
		return b
	}
	b := begin(nil)
	var at wire.SnapshotBuildProgress
	s.Want(200, "GET", "/v1/snapshot-builds/"+b.ID+"/progress", nil).Into(t, &at)
	if at.ID != b.ID || at.Phase != "begun" || at.Detail == "" {
		t.Errorf("what a build that waits is at: %+v", at)
	}
	var sn wire.Snapshot
	s.Want(201, "POST", "/v1/snapshot-builds/"+b.ID+"/finish", map[string]any{"env": map[string]string{"A": "b"}}).Into(t, &sn)
	if sn.ID != b.ID || sn.Name != "b" || sn.Tag != "latest" || sn.ContentHash != "h" || sn.SandboxID != "" {
		t.Errorf("built %+v", sn)
	}
	problem(t, s.Want(404, "POST", "/v1/snapshot-builds/"+b.ID+"/finish", map[string]any{}))
	s.Want(200, "GET", "/v1/snapshot-builds/"+b.ID+"/progress", nil).Into(t, &at)
	var log wire.SnapshotBuildLog
	s.Want(200, "GET", "/v1/snapshot-builds/"+b.ID+"/log", nil).Into(t, &log)
	if last := log.Lines[len(log.Lines)-1]; at.Phase != "done" || !log.Ended || last.Phase != "done" || last.Message != at.Detail || log.Lines[0].Phase != "begun" {
		t.Errorf("what a build that is over is at: %+v, its log %+v", at, log)
	}
	problem(t, s.Want(404, "GET", "/v1/snapshot-builds/none/progress", nil))
	problem(t, s.Want(404, "GET", "/v1/snapshot-builds/none/log", nil))
	if again := begin(nil); !again.Unchanged || again.Snapshot == nil || again.Snapshot.ID != sn.ID || again.ID != "" {
		t.Errorf("the same content again: %+v", again)
	}
	var child wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"snapshot": "b", "wait_seconds": 180, "env": map[string]string{"C": "d"}}).Into(t, &child)
	var res wire.ExecResult
	s.Want(200, "POST", "/v1/sandboxes/"+child.ID+"/exec", map[string]any{"shell": "echo $A$C"}).Into(t, &res)
	if res.Stdout != "bd\n" {
		t.Errorf("environment of a sandbox of the build: %q", res.Stdout)
	}
	forced := begin(map[string]any{"force": true})
	for _, p := range []apierror.Problem{
		problem(t, s.Want(422, "PUT", "/v1/snapshot-builds/"+forced.ID+"/files", strings.NewReader("no archive"))),
		problem(t, s.Want(422, "POST", "/v1/snapshot-builds/"+forced.ID+"/finish", map[string]any{})),
	} {
		if p.Code != sandbox.Invalid || len(p.Errors) != 1 || p.Errors[0].Location != "archive" {
			t.Errorf("a build without a good archive: %+v, want invalid and the field archive", p)
		}
	}
	problem(t, s.Want(404, "PUT", "/v1/snapshot-builds/none/files", strings.NewReader("x")))
	unknown := begin(map[string]any{"runtime": "none", "force": true})
	if p := problem(t, s.Want(422, "POST", "/v1/snapshot-builds/"+unknown.ID+"/finish", map[string]any{"env": map[string]string{"A": "b"}})); !strings.Contains(p.Detail, "runtime") {
		t.Errorf("an unknown runtime: %+v", p)
	}
	bad := begin(map[string]any{"force": true})
	problem(t, s.Want(422, "POST", "/v1/snapshot-builds/"+bad.ID+"/finish", map[string]any{"apt_packages": []string{"-x"}}))
	problem(t, s.Want(422, "POST", "/v1/snapshot-builds", map[string]any{"runtime": ""}))
	problem(t, s.Want(422, "POST", "/v1/snapshot-builds", map[string]any{"runtime": "x", "name": "a b"}))
}
