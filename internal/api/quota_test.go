package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// quotaOf makes a user with a workspace, and returns its token and the path of the quota.
func quotaOf(t *testing.T, s *apitest.Server, name string) (token, path string) {
	t.Helper()
	u, _, err := s.Accounts.CreateUser(t.Context(), auth.Identity{}, auth.NewUser{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err = s.Auth.CreateToken(t.Context(), auth.Identity{User: u.ID, Workspace: u.Home, Role: account.RoleOwner}, auth.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return token, "/v1/workspaces/" + string(u.Home) + "/quota"
}

// doAs is Do with another token.
func doAs(s *apitest.Server, token, method, path string, body any) *apitest.Answer {
	s.T.Helper()
	r := s.Request(method, path, body)
	r.Header.Set("Authorization", "Bearer "+token)
	return s.Send(r)
}

func TestQuota(t *testing.T) {
	s := apitest.New(t)
	token, path := quotaOf(t, s, "somebody")
	other, _ := quotaOf(t, s, "else")

	// The administrator is no member of the workspace.
	var got wire.QuotaReport
	s.Want(http.StatusOK, "PUT", path, map[string]any{"sandboxes": 2, "memory": "1Gi", "sandbox_memory": "768Mi", "cpu": "0"}).Into(t, &got)
	two := int64(2)
	if d := cmp.Diff(wire.Quota{Sandboxes: &two, Memory: "1Gi", SandboxMemory: "768Mi", CPU: "0"}, got.Set); d != "" {
		t.Errorf("what was set differs (-want +got):\n%s", d)
	}
	doAs(s, token, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180}).Into(t, new(wire.Sandbox))
	doAs(s, token, "GET", path, nil).Into(t, &got)
	if got.Used.Sandboxes != 1 || got.Used.Memory != "512Mi" || got.Used.CPU != "1" || got.Used.Disk != "2Gi" || got.Limits.SandboxCPU != "8" || got.Limits.Memory != "1Gi" {
		t.Errorf("quota with one sandbox: %+v", got)
	}

	for name, c := range map[string]struct {
		body   map[string]any
		status int
		words  []string
	}{
		"BeyondOneSandboxsMaximum": {map[string]any{"resources": map[string]any{"memory": "800Mi"}}, 422, []string{"resources.memory", "768Mi", "sandbox_memory", got.WorkspaceID}},
		"BeyondTheSum":             {map[string]any{"resources": map[string]any{"memory": "600Mi"}}, 429, []string{"quota of memory is 1Gi", "512Mi is used", "600Mi"}},
		"TheSameAgain":             {map[string]any{"name": "a"}, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			a := doAs(s, token, "POST", "/v1/sandboxes", c.body)
			if a.Status != c.status || c.status == 429 != (a.Header.Get("Retry-After") != "") {
				t.Errorf("%d %v %s, want %d", a.Status, a.Header, a.Body, c.status)
			}
			for _, w := range c.words {
				if !strings.Contains(string(a.Body), w) {
					t.Errorf("%s does not say %q", a.Body, w)
				}
			}
		})
	}

	// It counts as soon as it is set, and of a third one the number is too much.
	s.Want(http.StatusOK, "PUT", path, map[string]any{"sandboxes": 2})
	if a := doAs(s, token, "POST", "/v1/sandboxes", map[string]any{}); a.Status != http.StatusCreated {
		t.Errorf("a second sandbox: %d %s", a.Status, a.Body)
	}
	if a := doAs(s, token, "POST", "/v1/sandboxes", map[string]any{}); a.Status != 429 || !strings.Contains(string(a.Body), "quota of sandboxes is 2") {
		t.Errorf("a third sandbox: %d %s", a.Status, a.Body)
	}
	if a := doAs(s, other, "POST", "/v1/sandboxes", map[string]any{}); a.Status != http.StatusCreated {
		t.Errorf("a sandbox of another workspace: %d %s", a.Status, a.Body)
	}

	for body, field := range map[string]string{
		`{"sandboxes": -1}`: "sandboxes", `{"memory": "lots"}`: "memory", `{"sandbox_disk": "1000Gi"}`: "sandbox_disk", `{"sandbox_cpu": "1m"}`: "sandbox_cpu",
	} {
		if a := s.Do("PUT", path, body); a.Status != 422 || !strings.Contains(string(a.Body), `"location":"`+field+`"`) {
			t.Errorf("PUT %s: %d %s, want 422 about %s", body, a.Status, a.Body, field)
		}
	}
	if a := doAs(s, token, "PUT", path, map[string]any{}); a.Status != 403 {
		t.Errorf("a member sets its quota: %d %s", a.Status, a.Body)
	}
	for _, method := range []string{"GET", "PUT"} {
		if a := doAs(s, other, method, path, map[string]any{}); a.Status != 404 {
			t.Errorf("%s of a foreign workspace: %d %s", method, a.Status, a.Body)
		}
		nowhere := "/v1/workspaces/" + string(sandbox.NewWorkspaceID()) + "/quota"
		if a := s.Do(method, nowhere, map[string]any{}); a.Status != 404 {
			t.Errorf("%s of no workspace as administrator: %d %s", method, a.Status, a.Body)
		}
	}
}

// An administrator may also name a workspace by its slug; an id never names another workspace.
func TestQuotaBySlug(t *testing.T) {
	s := apitest.New(t)
	token, path := quotaOf(t, s, "somebody")
	var ours wire.WorkspaceDetail
	doAs(s, token, "POST", "/v1/workspaces", map[string]any{"name": "ours", "slug": "ours"}).Into(t, &ours)
	var got wire.QuotaReport
	s.Want(http.StatusOK, "PUT", "/v1/workspaces/Ours/quota", map[string]any{"sandboxes": 3}).Into(t, &got)
	if got.WorkspaceID != ours.ID {
		t.Errorf("the quota set is that of %s, want %s", got.WorkspaceID, ours.ID)
	}
	s.Want(http.StatusNotFound, "PUT", "/v1/workspaces/theirs/quota", map[string]any{})

	// No slug is another workspace's id, which would take its place in a path.
	if a := doAs(s, token, "POST", "/v1/workspaces", map[string]any{"name": "trap", "slug": ours.ID}); a.Status != http.StatusUnprocessableEntity || !strings.Contains(string(a.Body), "slug") {
		t.Errorf("a workspace with the slug %s: %d %s, want a refusal that names the slug", ours.ID, a.Status, a.Body)
	}
	s.Want(http.StatusOK, "GET", "/v1/workspaces/"+ours.ID+"/quota", nil).Into(t, &got)
	if got.WorkspaceID != ours.ID {
		t.Errorf("the quota of %s is that of %s", ours.ID, got.WorkspaceID)
	}
	s.Want(http.StatusNotFound, "GET", "/v1/workspaces/"+ours.ID, nil)

	// The log shows attempts with another workspace's object.
	other, _ := quotaOf(t, s, "else")
	if a := doAs(s, other, "PUT", path, map[string]any{}); a.Status != http.StatusNotFound {
		t.Errorf("PUT of a foreign quota: %d %s", a.Status, a.Body)
	}
	rows, err := s.Audit.Rows(t.Context(), audit.Filter{Action: "set-quota", Limit: 1})
	if err != nil || len(rows.Items) != 1 || !strings.Contains(string(rows.Items[0].Record), `"outcome":"not_found"`) || !strings.Contains(string(rows.Items[0].Record), `"user_id"`) {
		t.Errorf("record of a foreign quota: %v, %v", rows, err)
	}
}

func TestWorkspacesOfAUserAreBounded(t *testing.T) {
	s := apitest.New(t) // where a user may make three
	token, _ := quotaOf(t, s, "somebody")
	var ws wire.WorkspaceDetail
	for range 2 {
		a := doAs(s, token, "POST", "/v1/workspaces", map[string]any{"name": "more"})
		if a.Status != http.StatusCreated {
			t.Fatalf("a workspace beside the first: %d %s", a.Status, a.Body)
		}
		a.Into(t, &ws)
	}
	if a := doAs(s, token, "POST", "/v1/workspaces", map[string]any{"name": "many"}); a.Status != 429 || !strings.Contains(string(a.Body), "made 3 workspaces") {
		t.Errorf("a fourth workspace: %d %s", a.Status, a.Body)
	}
	if a := doAs(s, token, "DELETE", "/v1/workspaces/"+ws.ID, nil); a.Status != http.StatusNoContent {
		t.Fatalf("DELETE: %d %s", a.Status, a.Body)
	}
	if a := doAs(s, token, "POST", "/v1/workspaces", map[string]any{"name": "again"}); a.Status != http.StatusCreated {
		t.Errorf("a workspace in place of a deleted one: %d %s", a.Status, a.Body)
	}
	for range 4 {
		s.Want(http.StatusCreated, "POST", "/v1/workspaces", map[string]any{"name": "of the administrator"})
	}
}
