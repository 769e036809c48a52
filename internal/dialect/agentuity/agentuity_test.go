package agentuity_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// test/agentuity tests with real sandboxes what the published client needs. These tests cover the
// rest.

func server(t *testing.T) *apitest.Server {
	t.Helper()
	return apitest.New(t)
}

// answer is an answer of the dialect.
type answer struct {
	Success bool
	Code    string
	Message string
	Data    map[string]any
}

func call(t *testing.T, s *apitest.Server, method, path string, body any) (int, answer) {
	t.Helper()
	a := s.Do(method, path, body)
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s has Content-Type %q, want application/json", method, path, got)
	}
	var out answer
	a.Into(t, &out)
	return a.Status, out
}

func create(t *testing.T, s *apitest.Server, body map[string]any) string {
	t.Helper()
	status, a := call(t, s, "POST", "/sandbox", body)
	id, _ := a.Data["sandboxId"].(string)
	if status != http.StatusCreated || !a.Success || !regexp.MustCompile(`^sbx_[0-9a-f]{32}$`).MatchString(id) {
		t.Fatalf("create = %d %+v, want 201 with an id", status, a)
	}
	return id
}

// TestSandboxOfOtherServer: each of several servers answers requests about the sandboxes, executions and builds of the others.
func TestSandboxOfOtherServer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	for n, s := range parts {
		id := create(t, parts[1-n], map[string]any{})
		if _, a := call(t, s, "GET", "/sandbox/"+id, nil); !a.Success {
			t.Errorf("the sandbox: %+v", a)
		}
		_, a := call(t, s, "POST", "/sandbox/"+id+"/execute", map[string]any{"command": []string{"sh", "-c", "echo out"}})
		execution, _ := a.Data["executionId"].(string)
		if !a.Success || execution == "" {
			t.Fatalf("execute: %+v", a)
		}
		if _, a := call(t, s, "GET", "/sandbox/execution/"+execution+"?wait=60s", nil); a.Data["status"] != "completed" {
			t.Errorf("the execution: %+v", a)
		}
		if _, a := call(t, s, "POST", "/sandbox/snapshots/build", map[string]any{"runtime": "modbox/code-exec", "name": fmt.Sprint("b", n)}); !a.Success {
			t.Fatalf("build: %+v", a)
		} else if build, _ := a.Data["snapshotId"].(string); build == "" {
			t.Errorf("build: %+v", a)
		} else if _, a := call(t, parts[1-n], "POST", "/sandbox/snapshots/"+build+"/finalize", map[string]any{"fileCount": 0, "env": map[string]string{"A": "b"}}); a.Code == "SNAPSHOT_NOT_FOUND" {
			t.Errorf("the other server does not know the build: %+v", a)
		}
		if a := s.Do("DELETE", "/sandbox/"+id, nil); a.Status != http.StatusOK && a.Status != http.StatusNoContent {
			t.Errorf("delete: %d %s", a.Status, a.Body)
		}
	}
}

func TestErrorsHaveTheStatusTheClientNeeds(t *testing.T) {
	s := server(t)
	none := "sbx_" + strings.Repeat("0", 32)
	execute := map[string]any{"command": []string{"true"}}
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		code         string
	}{
		{"GET", "/sandbox/" + none, nil, 200, "SANDBOX_NOT_FOUND"},
		{"GET", "/sandbox/status/" + none, nil, 200, "SANDBOX_NOT_FOUND"},
		{"GET", "/sandbox/status", nil, 200, "SANDBOX_NOT_FOUND"}, // a word in place of an ID
		{"DELETE", "/sandbox/" + none, nil, 200, "SANDBOX_NOT_FOUND"},
		{"GET", "/sandbox/execution/exec_x", nil, 200, "EXECUTION_NOT_FOUND"},
		{"POST", "/sandbox/" + none + "/execute", execute, 404, "SANDBOX_NOT_FOUND"},
		{"GET", "/fs/" + none + "?path=x", nil, 404, "SANDBOX_NOT_FOUND"},
		{"GET", "/cli/sandbox/" + none, nil, 200, "NOT_FOUND"},
		{"GET", "/sandbox/snapshots/snp_x", nil, 200, "SNAPSHOT_NOT_FOUND"},
		{"GET", "/sandbox/snapshots/public/snp_x", nil, 200, "SNAPSHOT_NOT_FOUND"},
		{"DELETE", "/sandbox/snapshots/snp_x", nil, 200, "SNAPSHOT_NOT_FOUND"},
		{"POST", "/sandbox", map[string]any{"snapshot": "none"}, 200, "SNAPSHOT_NOT_FOUND"},
		{"POST", "/sandbox", map[string]any{"network": map[string]any{"enabled": true}}, 200, "UNSUPPORTED"},
		{"POST", "/sandbox", map[string]any{"network": map[string]any{"port": 80}}, 422, "INVALID"},
		{"POST", "/sandbox", map[string]any{"resources": map[string]any{"memory": "much"}}, 422, "INVALID"},
		{"POST", "/sandbox", map[string]any{"runtime": "none:such"}, 422, "INVALID"},
		{"POST", "/sandbox", map[string]any{"command": map[string]any{"exec": []string{"true"}, "mode": "x"}}, 422, "INVALID"},
		{"POST", "/sandbox", map[string]any{"name": strings.Repeat("n", 5000)}, 422, "INVALID"},
		{"POST", "/sandbox", map[string]any{"files": []any{map[string]any{"path": "a", "content": "%"}}}, 422, "INVALID"},
		{"POST", "/sandbox", "no JSON", 422, "INVALID"},
		{"GET", "/sandbox?status=none", nil, 422, "INVALID"},
		{"GET", "/sandbox?orgId=org_other", nil, 404, "NOT_FOUND"},
		{"GET", "/sandbox?orgId=" + string(sandbox.NewWorkspaceID()), nil, 404, "NOT_FOUND"},
	} {
		status, a := call(t, s, c.method, c.path, c.body)
		if status != c.status || a.Code != c.code || a.Success || a.Message == "" {
			t.Errorf("%s %s = %d %+v, want %d with code %s", c.method, c.path, status, a, c.status, c.code)
		}
	}
}

func TestMissingFilesHaveTheCodeOfTheDialect(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	if status, a := call(t, s, "GET", "/sandbox/"+id+"?waitForStatus=idle&waitMs=60000", nil); status != 200 || a.Data["status"] != "idle" {
		t.Fatalf("wait = %d %+v", status, a)
	}
	status, a := call(t, s, "GET", "/fs/list/"+id+"?path=/no/such/directory", nil)
	if status != 404 || a.Code != "NOT_FOUND" || a.Success {
		t.Errorf("list = %d %+v, want 404 with code NOT_FOUND", status, a)
	}
}

// TestListsAreComplete lists a directory of 10,000 files with long names, which the agent answers in parts, and one of more.
func TestListsAreComplete(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	if status, a := call(t, s, "GET", "/sandbox/"+id+"?waitForStatus=idle&waitMs=60000", nil); status != 200 {
		t.Fatalf("wait = %d %+v", status, a)
	}
	upload := func(from, to int) {
		t.Helper()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := from; i < to; i++ {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%05d%s", i, strings.Repeat("x", 245)), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if status, a := call(t, s, "POST", "/fs/upload/"+id+"?path=/many", &b); status != 200 {
			t.Fatalf("upload = %d %+v", status, a)
		}
	}
	upload(0, 10_000)
	_, a := call(t, s, "GET", "/fs/list/"+id+"?path=/many", nil)
	if files, _ := a.Data["files"].([]any); len(files) != 10_000 {
		t.Errorf("list = %d files, %s", len(files), a.Message)
	}
	upload(10_000, 10_001)
	if _, a := call(t, s, "GET", "/fs/list/"+id+"?path=/many", nil); a.Success || !strings.Contains(a.Message, "more than 10000 entries") {
		t.Errorf("list of more = %t, %s", a.Success, a.Message)
	}
}

// TestErrorsNameFieldsOfTheDialect: /v1 has other names for the lists of packages.
func TestErrorsNameFieldsOfTheDialect(t *testing.T) {
	s := server(t)
	type object = map[string]any
	list := []string{"no such;"}
	files := []object{{"path": "a", "content": ""}, {"path": "b", "content": "no base64"}}
	for _, body := range []object{{"idle": "9s"}, {"paused": "9s"}, {"execution": "100ms"}} {
		for name := range body {
			status, a := call(t, s, "POST", "/sandbox", object{"timeout": body})
			if status != 422 || !strings.HasPrefix(a.Message, "timeout."+name+": must be ") {
				t.Errorf("a short timeout %v = %d %+v, want 422 and a message that begins with the field", body, status, a)
			}
		}
	}
	create(t, s, object{"timeout": object{"execution": "1s"}}) // names no other limit
	for field, body := range map[string]object{
		"dependencies[0]":          {"dependencies": list},
		"packages[0]":              {"packages": list},
		"timeout.idle":             {"timeout": object{"idle": "3000h"}},
		"timeout.paused":           {"timeout": object{"paused": "3000h"}},
		"timeout.execution":        {"timeout": object{"execution": "3000h"}},
		"files[1].content":         {"files": files},
		"command.files[1].content": {"command": object{"exec": []string{"true"}, "files": files}},
	} {
		status, a := call(t, s, "POST", "/sandbox", body)
		if status != 422 || !strings.HasPrefix(a.Message, field+": ") {
			t.Errorf("%s = %d %+v, want 422 and a message that begins with the field", field, status, a)
		}
	}
	id := create(t, s, object{})
	status, a := call(t, s, "POST", "/sandbox/"+id+"/execute", object{"command": []string{"true"}, "timeout": "3000h"})
	if status != 422 || !strings.HasPrefix(a.Message, "timeout: ") {
		t.Errorf("timeout of an execute = %d %+v, want 422 and a message that begins with the field", status, a)
	}
}

func TestCommandOfACreateIsShown(t *testing.T) {
	s := server(t)
	for body, mode := range map[string]string{"": "interactive", "interactive": "interactive", "oneshot": "oneshot"} {
		id := create(t, s, map[string]any{"command": map[string]any{"exec": []string{"sleep", "600"}, "mode": body}})
		_, a := call(t, s, "GET", "/sandbox/"+id+"?waitForStatus=running&waitMs=60000", nil)
		want := map[string]any{"exec": []any{"sleep", "600"}, "mode": mode}
		if diff := cmp.Diff(want, a.Data["command"]); diff != "" {
			t.Errorf("command of a create with mode %q (-want +got):\n%s", body, diff)
		}
	}
	id := create(t, s, map[string]any{})
	_, _ = call(t, s, "POST", "/sandbox/"+id+"/execute", map[string]any{"command": []string{"true"}})
	if _, a := call(t, s, "GET", "/sandbox/"+id, nil); a.Data["command"] != nil {
		t.Errorf("command of a create without a command: %v", a.Data["command"])
	}
}

// The parent of a checkpoint is the checkpoint that the sandbox was in before it.
func TestParentsOfCheckpoints(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	checkpoint := func(name, wantParent string) {
		t.Helper()
		status, a := call(t, s, "POST", "/sandbox/"+id+"/checkpoint", map[string]any{"name": name})
		if status != http.StatusOK || a.Data["parent"] != wantParent {
			t.Errorf("checkpoint %s = %d %+v, want parent %q", name, status, a, wantParent)
		}
	}
	want := func(method, path string) {
		t.Helper()
		if status, a := call(t, s, method, path, nil); status != http.StatusOK || !a.Success {
			t.Fatalf("%s %s = %d %+v", method, path, status, a)
		}
	}
	checkpoint("a", "")
	checkpoint("b", "a")
	want("POST", "/sandbox/"+id+"/pause")
	want("POST", "/sandbox/"+id+"/resume")
	checkpoint("c", "b")
	want("POST", "/sandbox/"+id+"/checkpoint/a/restore")
	checkpoint("d", "a")
	want("POST", "/sandbox/"+id+"/pause")
	want("POST", "/sandbox/"+id+"/checkpoint/b/restore") // from paused
	want("DELETE", "/sandbox/"+id+"/checkpoint/b")
	checkpoint("e", "a")
	_, list := call(t, s, "GET", "/sandbox/checkpoints/"+id, nil)
	got := map[any]any{}
	for _, c := range list.Data["checkpoints"].([]any) {
		got[c.(map[string]any)["name"]] = c.(map[string]any)["parent"]
	}
	if d := cmp.Diff(map[any]any{"a": "", "c": "a", "d": "a", "e": "a"}, got); d != "" {
		t.Errorf("parents (-want +got):\n%s", d)
	}
}

func TestPublicSnapshotByName(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	_, made := call(t, s, "POST", "/sandbox/"+id+"/snapshot", map[string]any{"name": "open", "tag": "v1", "public": true})
	_, _ = call(t, s, "POST", "/sandbox/"+id+"/snapshot", map[string]any{"name": "closed", "tag": "v1"})
	if _, a := call(t, s, "GET", "/sandbox/snapshots/public/open:v1", nil); a.Data["snapshotId"] == nil || a.Data["snapshotId"] != made.Data["snapshotId"] {
		t.Errorf("open:v1 = %+v, want the public snapshot %v", a, made.Data["snapshotId"])
	}
	for _, ref := range []string{"open", "open:v2", "closed:v1"} {
		if _, a := call(t, s, "GET", "/sandbox/snapshots/public/"+ref, nil); a.Code != "SNAPSHOT_NOT_FOUND" {
			t.Errorf("%s = %+v, want SNAPSHOT_NOT_FOUND", ref, a)
		}
	}
}

func TestOptionalFieldsAreLeftOut(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{"metadata": map[string]any{"n": 1, "s": "x"}})
	_, a := call(t, s, "GET", "/sandbox/"+id+"?waitForStatus=idle&waitMs=60000", nil)
	if a.Data["status"] != "idle" {
		t.Fatalf("waited for idle, got %v", a.Data["status"])
	}
	for name, value := range a.Data {
		if value == nil {
			t.Errorf("field %s is null, which the client refuses", name)
		}
	}
	if diff := cmp.Diff(map[string]any{"n": 1.0, "s": "x"}, a.Data["metadata"]); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestWaitingEndsWithItsTime(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	_, a := call(t, s, "GET", "/sandbox/status/"+id+"?waitForStatus=failed&waitMs=20", nil)
	if status := a.Data["status"]; status != "creating" && status != "idle" {
		t.Errorf("status = %v, want what it is", status)
	}
}

func TestOneCommandAtATime(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	execute := func(argv ...string) (int, answer) {
		return call(t, s, "POST", "/sandbox/"+id+"/execute", map[string]any{"command": argv})
	}
	status, first := execute("sleep", "600")
	if status != 200 || first.Data["status"] != "running" {
		t.Fatalf("first execute = %d %+v, want it running", status, first)
	}
	if status, a := execute("true"); status != http.StatusConflict || a.Code != "SANDBOX_BUSY" {
		t.Errorf("second execute = %d %+v, want 409 SANDBOX_BUSY", status, a)
	}
	status, job := call(t, s, "POST", "/sandbox/sandboxes/"+id+"/jobs", map[string]any{"command": []string{"true"}})
	if status != 200 || !job.Success {
		t.Errorf("a job beside it = %d %+v, want it made", status, job)
	}
	// A job is not an execution, and vice versa.
	jobID, _ := job.Data["jobId"].(string)
	asExecution := "exec_" + strings.TrimPrefix(jobID, "job_")
	if _, a := call(t, s, "GET", "/sandbox/execution/"+asExecution, nil); a.Code != "EXECUTION_NOT_FOUND" {
		t.Errorf("a job asked for as execution = %+v, want EXECUTION_NOT_FOUND", a)
	}
}

func TestWaitForAnExecutionOfASuspendedSandbox(t *testing.T) {
	s := server(t)
	id := create(t, s, map[string]any{})
	_, a := call(t, s, "POST", "/sandbox/"+id+"/execute", map[string]any{"command": []string{"sleep", "600"}})
	exec, _ := a.Data["executionId"].(string)
	if status, a := call(t, s, "POST", "/sandbox/"+id+"/pause", nil); status != http.StatusOK || !a.Success {
		t.Fatalf("pause = %d %+v", status, a)
	}
	status, a := call(t, s, "GET", "/sandbox/execution/"+exec+"?wait=4m", nil)
	if status != http.StatusOK || a.Success || a.Code != "SANDBOX_SUSPENDED" || !strings.Contains(a.Message, "resume") {
		t.Errorf("a wait in a pause = %d %+v, want SANDBOX_SUSPENDED, and how to go on", status, a)
	}
}

func TestAnotherSandboxesJobIsNotFound(t *testing.T) {
	s := server(t)
	a, b := create(t, s, map[string]any{}), create(t, s, map[string]any{})
	_, job := call(t, s, "POST", "/sandbox/sandboxes/"+a+"/jobs", map[string]any{"command": []string{"true"}})
	path := "/jobs/" + job.Data["jobId"].(string)
	if status, _ := call(t, s, "GET", "/sandbox/sandboxes/"+a+path, nil); status != 200 {
		t.Errorf("job of its sandbox = %d, want 200", status)
	}
	if status, _ := call(t, s, "GET", "/sandbox/sandboxes/"+b+path, nil); status != 404 {
		t.Errorf("job of another sandbox = %d, want 404", status)
	}
}

func TestAnUnansweredCreateLeavesNothing(t *testing.T) {
	s := server(t)
	// The path of the second file is a directory of the first: the sandbox refuses it.
	files := []any{map[string]any{"path": "a/b", "content": ""}, map[string]any{"path": "a", "content": ""}}
	status, a := call(t, s, "POST", "/sandbox", map[string]any{"files": files})
	if a.Success {
		t.Fatalf("create = %d %+v, want an error", status, a)
	}
	live, err := s.Store.Sandboxes.LiveSandboxes(t.Context())
	if err != nil || len(live) > 0 {
		t.Errorf("live sandboxes = %d, %v, want none", len(live), err)
	}
}

func TestBuildsOfSnapshotsAreCheckedBeforehand(t *testing.T) {
	s := server(t)
	const build = "/sandbox/snapshots/build"
	if status, a := call(t, s, "POST", build, map[string]any{"runtime": "none:such"}); status != 422 || a.Code != "INVALID" {
		t.Errorf("build on no runtime = %d %+v, want 422", status, a)
	}
	rt := runtimeName(t, s)
	if status, a := call(t, s, "POST", build, map[string]any{"runtime": rt, "name": "no name"}); status != 422 || a.Code != "INVALID" {
		t.Errorf("build with a bad name = %d %+v, want 422", status, a)
	}
	_, a := call(t, s, "POST", build, map[string]any{"runtime": rt, "name": "built"})
	id, _ := a.Data["snapshotId"].(string)
	if !strings.HasPrefix(id, "snp_") {
		t.Fatalf("build = %+v, want an id", a)
	}
	if _, a := call(t, s, "POST", "/sandbox/snapshots/snp_x/finalize", map[string]any{}); a.Code != "SNAPSHOT_NOT_FOUND" {
		t.Errorf("finalize of no build = %+v, want SNAPSHOT_NOT_FOUND", a)
	}
	body := map[string]any{"fileCount": 0, "env": map[string]string{"A": "b"}}
	if status, a := call(t, s, "POST", "/sandbox/snapshots/"+id+"/finalize", body); status != 422 || !strings.Contains(a.Message, "archive") {
		t.Errorf("finalize without an archive = %d %+v, want 422 that names it", status, a)
	}
}

func TestARequestWithoutRuntimeHasTheStandardOne(t *testing.T) {
	s := server(t)
	runtimeOf := func(body map[string]any) map[string]any {
		t.Helper()
		_, a := call(t, s, "GET", "/sandbox/"+create(t, s, body), nil)
		rt, _ := a.Data["runtime"].(map[string]any)
		return rt
	}
	standard := runtimeOf(map[string]any{})
	if standard["name"] != "base:latest" || runtimeName(t, s) != "base:latest" {
		t.Errorf("without a runtime: %v; the first of the list is %s", standard, runtimeName(t, s))
	}
	for _, body := range []map[string]any{{"runtime": "base:latest"}, {"runtime": "base"}, {"runtime": "modbox/code-exec:latest"}, {"runtimeId": standard["id"]}} {
		if rt := runtimeOf(body); !cmp.Equal(rt, standard) {
			t.Errorf("%v has the runtime %v, want %v", body, rt, standard)
		}
	}
	s.Want(http.StatusCreated, "POST", "/v1/sandbox-images", map[string]any{"name": "ours", "image": apitest.PullName + ":v1", "is_default": true})
	if rt := runtimeOf(map[string]any{}); rt["name"] != apitest.PullName+":v1" {
		t.Errorf("with a default of the workspace: %v", rt)
	}
	if rt := runtimeOf(map[string]any{"runtime": "base:latest"}); !cmp.Equal(rt, standard) {
		t.Errorf("base:latest, with a default of the workspace: %v", rt)
	}
}

func runtimeName(t *testing.T, s *apitest.Server) string {
	t.Helper()
	_, a := call(t, s, "GET", "/sandbox/runtimes", nil)
	list, _ := a.Data["runtimes"].([]any)
	if len(list) == 0 {
		t.Fatalf("runtimes = %+v, want some", a)
	}
	return list[0].(map[string]any)["name"].(string)
}

func TestQuotaIsRefusedAsTheClientNeeds(t *testing.T) {
	s := server(t)
	var me struct {
		WorkspaceID string `json:"workspace_id"`
	}
	s.Want(http.StatusOK, "GET", "/v1/whoami", nil).Into(t, &me)
	s.Want(http.StatusOK, "PUT", "/v1/workspaces/"+me.WorkspaceID+"/quota", map[string]any{"sandboxes": 1})
	first := create(t, s, map[string]any{})
	refused := s.Want(http.StatusTooManyRequests, "POST", "/sandbox", map[string]any{})
	var a answer
	refused.Into(t, &a)
	if a.Success || a.Code != "QUOTA_EXCEEDED" || !strings.Contains(a.Message, "quota of sandboxes is 1") || refused.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v %v", a, refused.Header)
	}
	for _, path := range []string{"/sandbox", "/sandbox/" + first + "/resume"} {
		r := s.Request("POST", path, map[string]any{})
		r.Header.Set("Modbox-Wait-For-Quota", "soon")
		if a := s.Send(r); a.Status != http.StatusUnprocessableEntity || !strings.Contains(string(a.Body), "Modbox-Wait-For-Quota") {
			t.Errorf("%s that waits for %q: %d %s", path, "soon", a.Status, a.Body)
		}
	}
	r := s.Request("POST", "/sandbox", map[string]any{})
	r.Header.Set("Modbox-Wait-For-Quota", "600")
	answered := make(chan *apitest.Answer, 1)
	go func() { answered <- s.Send(r) }()
	s.Want(http.StatusOK, "DELETE", "/sandbox/"+first, nil)
	if a := <-answered; a.Status != http.StatusCreated {
		t.Errorf("who waits for room: %d %s", a.Status, a.Body)
	}
}

// A workspace must not take over the name of another's public snapshot by making one of its own. When only one workspace
// has such a snapshot again, the bare name is its.
func TestPublicSnapshotOfTwoWorkspacesHasNoBareName(t *testing.T) {
	s := server(t)
	var ws struct{ ID, Slug string }
	s.Want(http.StatusCreated, "POST", "/v1/workspaces", map[string]any{"name": "Other", "slug": "other"}).Into(t, &ws)
	publish := func(query string) (id string) {
		t.Helper()
		status, a := call(t, s, "POST", "/sandbox"+query, map[string]any{})
		of, _ := a.Data["sandboxId"].(string)
		if status != http.StatusCreated {
			t.Fatalf("create = %d %+v", status, a)
		}
		status, a = call(t, s, "POST", "/sandbox/"+of+"/snapshot"+query, map[string]any{"name": "open", "public": true})
		if id, _ = a.Data["snapshotId"].(string); status != http.StatusOK || id == "" {
			t.Fatalf("snapshot = %d %+v", status, a)
		}
		return id
	}
	remove := func(id, query string) {
		t.Helper()
		if status, a := call(t, s, "DELETE", "/sandbox/snapshots/"+id+query, nil); status != http.StatusOK || !a.Success {
			t.Fatalf("delete = %d %+v", status, a)
		}
	}
	const at = "/sandbox/snapshots/public/"
	isOnly := func(when, want string) {
		t.Helper()
		if _, a := call(t, s, "GET", at+"open", nil); a.Data["snapshotId"] != want {
			t.Errorf("%s: open = %+v, want %s", when, a, want)
		}
	}
	mine := publish("")
	_, first := call(t, s, "GET", at+"open", nil)
	isOnly("one owner", mine)
	others := publish("?orgId=" + ws.ID)
	status, a := call(t, s, "GET", at+"open", nil)
	if name, _ := first.Data["fullName"].(string); status != http.StatusConflict || a.Code != "CONFLICT" || !strings.Contains(a.Message, "@other/open:latest") || !strings.Contains(a.Message, name) {
		t.Errorf("open of two owners = %d %+v, want a conflict that gives @other/open:latest and %s", status, a, name)
	}
	if _, a := call(t, s, "GET", at+url.QueryEscape("@other/open"), nil); a.Data["fullName"] != "@other/open:latest" {
		t.Errorf("@other/open = %+v", a)
	}
	remove(others, "?orgId="+ws.ID)
	isOnly("the other owner deleted its own", mine)
	others = publish("?orgId=" + ws.ID)
	remove(mine, "")
	isOnly("the first owner deleted its own", others)
	remove(others, "?orgId="+ws.ID)
	if _, a := call(t, s, "GET", at+"open", nil); a.Code != "SNAPSHOT_NOT_FOUND" {
		t.Errorf("open without owners = %+v, want SNAPSHOT_NOT_FOUND", a)
	}
}

func TestEndOfAOneShotIsACompletedLife(t *testing.T) {
	s := server(t)
	last := func(id string) any {
		t.Helper()
		_, a := call(t, s, "GET", "/sandbox/sandboxes/"+id+"/events?direction=desc&limit=1", nil)
		events, _ := a.Data["events"].([]any)
		if len(events) == 0 {
			t.Fatalf("events of %s = %+v", id, a)
		}
		return events[0].(map[string]any)["type"]
	}
	once := create(t, s, map[string]any{"command": map[string]any{"exec": []string{"true"}, "mode": "oneshot"}})
	if _, a := call(t, s, "GET", "/sandbox/status/"+once+"?waitForStatus=terminated&waitMs=60000", nil); a.Data["status"] != "terminated" {
		t.Fatalf("status of a one-shot sandbox = %+v", a)
	}
	if got := last(once); got != "lifecycle:completed" {
		t.Errorf("last event of a one-shot sandbox is %v", got)
	}
	id := create(t, s, map[string]any{})
	_, _ = call(t, s, "DELETE", "/sandbox/"+id, nil)
	if got := last(id); got != "lifecycle:terminated" {
		t.Errorf("last event of a destroyed sandbox is %v", got)
	}
}
