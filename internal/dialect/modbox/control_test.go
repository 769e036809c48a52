package modbox_test

import (
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

var update = flag.Bool("update", false, "write golden files instead of comparing them")

type object map[string]any

// ask sends a request and returns its decoded answer.
func ask(t *testing.T, s *apitest.Server, status int, method, path string, body any) object {
	t.Helper()
	var out object
	s.Want(status, method, path, body).Into(t, &out)
	return out
}

// provision makes a running sandbox and returns its detail.
func provision(t *testing.T, s *apitest.Server, body object) object {
	t.Helper()
	ask(t, s, 200, "POST", "/sandboxes/provision", body)
	if got := ask(t, s, 200, "POST", "/sandboxes/wait", object{"task_id": body["task_id"], "timeout": 30}); got["ready"] != true {
		t.Fatalf("wait = %v", got)
	}
	return ask(t, s, 200, "GET", "/sandboxes/detail/"+url.PathEscape(body["task_id"].(string)), nil)
}

func TestControlPlane(t *testing.T) {
	s := apitest.New(t)
	body := object{"task_id": "pr-1", "image_id": apitest.ImageID, "ttl_seconds": 600, "env_vars": object{"A": "secret-value"}, "image": nil}
	made := ask(t, s, 200, "POST", "/sandboxes/provision/", body)
	if made["success"] != true || made["error"] != nil || made["sandbox_id"] == "" || !strings.HasPrefix(made["sandbox_url"].(string), s.URL+"/s/pr-1-") {
		t.Errorf("provision = %v", made)
	}
	waited := ask(t, s, 200, "POST", "/sandboxes/wait", object{"task_id": "pr-1", "timeout": 30, "poll_interval": 5})
	if _, isNumber := waited["elapsed_seconds"].(float64); waited["ready"] != true || !isNumber {
		t.Errorf("wait = %v", waited)
	}
	detail := ask(t, s, 200, "GET", "/sandboxes/detail/pr-1", nil)
	byID := ask(t, s, 200, "GET", "/sandboxes/detail/"+made["sandbox_id"].(string)+"/", nil)
	if d := cmp.Diff(detail, byID); d != "" {
		t.Errorf("detail by name and by id differ:\n%s", d)
	}
	if detail["id"] != made["sandbox_id"] || detail["name"] != "pr-1" || detail["status"] != "running" || detail["sandbox_url"] != made["sandbox_url"] ||
		detail["destroyed_at"] != nil || detail["created_by"] == "" || detail["image"] != "modbox/code-exec:latest" || detail["ttl_seconds"] != 600.0 {
		t.Errorf("detail = %v", detail)
	}
	if enc, _ := json.Marshal(detail); strings.Contains(string(enc), "secret-value") {
		t.Errorf("detail shows the environment: %s", enc)
	}

	again := ask(t, s, 200, "POST", "/sandboxes/provision", body)
	if again["sandbox_id"] != made["sandbox_id"] || again["status"] != "running" {
		t.Errorf("the same request again = %v", again)
	}
	body["ttl_seconds"] = 700
	other := ask(t, s, 409, "POST", "/sandboxes/provision", body)
	if other["code"] != "exists" || !strings.Contains(other["detail"].(string), "pr-1") {
		t.Errorf("a different request of the same task_id = %v", other)
	}
	body["replace"] = true
	replaced := ask(t, s, 200, "POST", "/sandboxes/provision", body)
	if replaced["sandbox_id"] == made["sandbox_id"] {
		t.Error("replace answered the old sandbox")
	}
	if old := ask(t, s, 200, "GET", "/sandboxes/detail/"+made["sandbox_id"].(string), nil); old["status"] != "destroyed" || old["destroyed_at"] == nil || old["sandbox_url"] != nil {
		t.Errorf("the replaced one = %v", old)
	}

	for query, want := range map[string]float64{"": 1, "?status=destroyed": 1, "?status=failed": 0, "?realm=x": 1} {
		list := ask(t, s, 200, "GET", "/sandboxes"+query, nil)
		if list["total"] != want || len(list["sandboxes"].([]any)) != int(want) {
			t.Errorf("list %s = %v", query, list)
		}
	}
	for range 2 {
		if got := ask(t, s, 200, "POST", "/sandboxes/destroy", object{"task_id": "pr-1"}); got["success"] != true || got["error"] != nil {
			t.Errorf("destroy = %v", got)
		}
	}
	if got := ask(t, s, 200, "POST", "/sandboxes/destroy", object{"task_id": "never-made"}); got["success"] != false || got["error"] == nil {
		t.Errorf("destroy of an unknown task_id = %v", got)
	}
	delete(body, "replace")
	if reused := ask(t, s, 200, "POST", "/sandboxes/provision", body); reused["sandbox_id"] == replaced["sandbox_id"] {
		t.Error("a destroyed task_id was not reused")
	}
}

func TestWaitTellsOfAFailure(t *testing.T) {
	s := apitest.New(t)
	made := provision(t, s, object{"task_id": "dies"})
	s.Host.End(sandbox.ID(made["id"].(string)), driver.Exit{Cause: sandbox.CauseOOM, Detail: "it used more than its memory"})
	s.Want(200, "GET", "/v1/sandboxes/"+made["id"].(string)+"/wait?state=failed&timeout_seconds=30", nil)
	got := ask(t, s, 200, "POST", "/sandboxes/wait", object{"task_id": "dies", "timeout": 600})
	if got["ready"] != false || got["status"] != "failed" || !strings.Contains(got["error"].(string), "oom") {
		t.Errorf("wait = %v", got)
	}
	if d := ask(t, s, 200, "GET", "/sandboxes/detail/dies", nil); d["status"] != "failed" || d["destroyed_at"] == nil {
		t.Errorf("detail = %v", d)
	}
}

func TestImages(t *testing.T) {
	s := apitest.New(t)
	got := ask(t, s, 200, "GET", "/sandbox-images/?enabled_only=true", nil)
	want := object{"total": 1.0, "images": []any{map[string]any{
		"id": apitest.ImageID, "name": "modbox/code-exec", "image": "modbox/code-exec", "tag": "latest",
		"description": "Python, Node, Bash, Go", "enabled": true, "is_default": true, "memory_mb": 512.0,
		"readiness_port": nil, "ttl_seconds": nil, "registry_id": nil, "registry_name": nil, "workspace_id": nil,
		"created_at": "2026-01-02T03:04:05Z", "updated_at": "2026-01-02T03:04:05Z",
	}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("images (-want +got):\n%s", d)
	}
}

func TestAuthentication(t *testing.T) {
	s := apitest.New(t)
	r := s.Request("GET", "/sandboxes", nil)
	r.Header.Set("Authorization", "Bearer mbx_wrong")
	a := s.Send(r)
	var got object
	a.Into(t, &got)
	if a.Status != 401 || got["code"] != "unauthenticated" || a.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("answer %d %s", a.Status, a.Body)
	}
	r = s.Request("GET", "/sandboxes", nil)
	r.Header.Set("X-Workspace-Id", string(sandbox.NewWorkspaceID()))
	if a := s.Send(r); a.Status != 404 {
		t.Errorf("a foreign workspace: %d %s", a.Status, a.Body)
	}
}

// TestValidation compares every 422 body with testdata/validation.golden.
func TestValidation(t *testing.T) {
	s := apitest.New(t)
	long := strings.Repeat("x", 256)
	var got strings.Builder
	for _, tc := range []struct{ path, body string }{
		{"provision", ``},
		{"provision", `{`},
		{"provision", `[1]`},
		{"provision", `{}`},
		{"provision", `{"task_id":null}`},
		{"provision", `{"task_id":7}`},
		{"provision", `{"task_id":""}`},
		{"provision", `{"task_id":"` + long + `"}`},
		{"provision", `{"task_id":"a\nb"}`},
		{"provision", `{"task_id":"a","image_id":"not-a-uuid","ttl_seconds":59,"env_vars":[]}`},
		{"provision", `{"task_id":"a","image_id":5,"ttl_seconds":86401,"env_vars":{"A":1}}`},
		{"provision", `{"task_id":"a","ttl_seconds":"soon","image":""}`},
		{"provision", `{"task_id":"a","ttl_seconds":60.5,"replace":"yes please"}`},
		{"provision", `{"task_id":"a","ttl_seconds":true}`},
		{"provision", `{"task_id":"a","env_vars":{"1A":"x"}}`},
		{"wait", `{"timeout":0,"poll_interval":61}`},
		{"wait", `{"task_id":"a","timeout":601,"poll_interval":0}`},
		{"destroy", `{}`},
		{"destroy", `{"task_id":[]}`},
	} {
		a := s.Want(422, "POST", "/sandboxes/"+tc.path, tc.body)
		got.WriteString(tc.path + " " + strings.ReplaceAll(tc.body, long, "x{256}") + "\n  " + string(a.Body))
	}
	got.WriteString("list status=asleep\n  " + string(s.Want(422, "GET", "/sandboxes?status=asleep", nil).Body))
	path := filepath.Join("testdata", "validation.golden")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("validation answers (-want +got):\n%s", d)
	}
}

func TestTolerance(t *testing.T) {
	s := apitest.New(t)
	// Numbers in strings, unknown fields, no content type: the product accepts these.
	r := s.Request("POST", "/sandboxes/provision", `{"task_id":"t","ttl_seconds":"60","later_field":1,"env_vars":null,"image_id":null}`)
	r.Header.Del("Content-Type")
	if a := s.Send(r); a.Status != 200 {
		t.Errorf("answer %d %s", a.Status, a.Body)
	}
	if a := s.Do("GET", "/sandboxes/detail/nobody", nil); a.Status != 404 || !strings.Contains(string(a.Body), `"detail":"`) {
		t.Errorf("an unknown sandbox: %d %s", a.Status, a.Body)
	}
	if a := s.Do("POST", "/sandboxes/wait", object{"task_id": "nobody"}); a.Status != 404 {
		t.Errorf("waiting for an unknown sandbox: %d %s", a.Status, a.Body)
	}
}

func TestQuotaIsRefusedAsTheProductDoes(t *testing.T) {
	s := apitest.New(t)
	me := ask(t, s, 200, "GET", "/v1/whoami", nil)
	s.Want(200, "PUT", "/v1/workspaces/"+me["workspace_id"].(string)+"/quota", object{"sandboxes": 1})
	provision(t, s, object{"task_id": "a", "image_id": apitest.ImageID})
	a := s.Want(429, "POST", "/sandboxes/provision", object{"task_id": "b", "image_id": apitest.ImageID})
	var out object
	a.Into(t, &out)
	if detail, _ := out["detail"].(string); !strings.Contains(detail, "quota of sandboxes is 1") || out["code"] != "quota_exceeded" || a.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %v %v", out, a.Header)
	}
	for header, want := range map[string]string{"soon": "Modbox-Wait-For-Quota", "601": "Modbox-Wait-For-Quota", "1": "quota of sandboxes is 1"} {
		r := s.Request("POST", "/sandboxes/provision", object{"task_id": "b", "image_id": apitest.ImageID})
		r.Header.Set("Modbox-Wait-For-Quota", header)
		if a := s.Send(r); a.Status < 400 || !strings.Contains(string(a.Body), want) {
			t.Errorf("waiting for %q: %d %s, want %s", header, a.Status, a.Body, want)
		}
	}
	r := s.Request("POST", "/sandboxes/provision", object{"task_id": "b", "image_id": apitest.ImageID})
	r.Header.Set("Modbox-Wait-For-Quota", "600")
	answered := make(chan *apitest.Answer, 1)
	go func() { answered <- s.Send(r) }()
	ask(t, s, 200, "POST", "/sandboxes/destroy", object{"task_id": "a"})
	if a := <-answered; a.Status != 200 {
		t.Errorf("who waits for room: %d %s", a.Status, a.Body)
	}
}
