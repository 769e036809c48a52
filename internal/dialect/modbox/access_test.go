package modbox_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
)

// TestURLAccess checks the credentials that management routes demand for settings of the sandbox
// and its workspace.
func TestURLAccess(t *testing.T) {
	v := newVisitor(t, object{})
	var made, keyed object
	v.Want(201, "POST", "/v1/sandboxes", object{"name": "v1", "wait_seconds": 180}).Into(t, &made)
	v.Want(201, "POST", "/v1/sandboxes", object{"name": "keyed", "wait_seconds": 180, "env": object{"SANDBOX_API_KEY": "s3cret"}}).Into(t, &keyed)
	if made["url_access"] != "key" {
		t.Errorf("a sandbox made through /v1 has url_access %v", made["url_access"])
	}
	provisioned, viaV1, withKey := v.url, made["url"].(string), keyed["url"].(string)
	sb, err := v.Store.Sandboxes.SandboxByID(t.Context(), v.id)
	if err != nil {
		t.Fatal(err)
	}
	owner := auth.Identity{User: sb.CreatedBy, Workspace: sb.Workspace, Role: account.RoleOwner}
	narrow, _, err := v.Auth.CreateToken(t.Context(), owner, auth.TokenRequest{Scopes: []account.Permission{account.SandboxesRead}})
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := v.Accounts.CreateUser(t.Context(), auth.Identity{}, auth.NewUser{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := v.Auth.CreateToken(t.Context(), auth.Identity{User: other.ID, Workspace: other.Home, Role: account.RoleOwner}, auth.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(url string, want map[string]int) {
		t.Helper()
		for bearer, status := range want {
			for _, route := range []struct{ method, path string }{{"POST", "/modbox/api/exec"}, {"GET", "/modbox/api/files"}, {"POST", "/execute"}} {
				r := v.Request(route.method, url+route.path, object{"command": "true", "code": ":", "language": "sh"})
				r.Header.Del("Authorization")
				if bearer != "" {
					r.Header.Set("Authorization", "Bearer "+bearer)
				}
				if a := v.Send(r); a.Status != status || strings.Contains(string(a.Body), "mbx_") {
					t.Errorf("%s %s with %.8q: %d %s, want %d", route.method, route.path, bearer, a.Status, a.Body, status)
				}
			}
		}
	}
	check(provisioned, map[string]int{"": 200, "whatever": 200, v.Token: 200})
	check(viaV1, map[string]int{"": 401, "whatever": 401, v.Token: 200, narrow: 403, foreign: 403})
	check(withKey, map[string]int{"": 401, "s3cret": 200, v.Token: 200, foreign: 403})
	v.Want(200, "PATCH", "/v1/workspaces/"+string(sb.Workspace), object{"url_access": "key"})
	check(provisioned, map[string]int{"": 401, "whatever": 401, v.Token: 200})
	v.Want(200, "PATCH", "/v1/workspaces/"+string(sb.Workspace), object{"url_access": "open"})
	check(provisioned, map[string]int{"": 200})
	check(viaV1, map[string]int{"": 401})
	v.Want(422, "PATCH", "/v1/workspaces/"+string(sb.Workspace), object{"url_access": "shut"})
}

// TestKeyGuesses checks that the key of a sandbox cannot be found by trying.
func TestKeyGuesses(t *testing.T) {
	v := newVisitor(t, object{})
	var keyed, other object
	for name, made := range map[string]*object{"keyed": &keyed, "other": &other} {
		v.Want(201, "POST", "/v1/sandboxes", object{"name": name, "wait_seconds": 180, "env": object{"SANDBOX_API_KEY": "s3cret"}}).Into(t, made)
	}
	try := func(sb object, bearer string) int {
		r := v.Request("GET", sb["url"].(string)+"/modbox/api/files", nil)
		r.Header.Set("Authorization", "Bearer "+bearer)
		return v.Send(r).Status
	}
	for range 50 {
		if got := try(keyed, "s3cret"); got != 200 {
			t.Fatalf("the key is answered %d", got)
		}
	}
	wrong, last := 0, 401
	for ; last == 401 && wrong < 1000; wrong++ {
		last = try(keyed, "guess")
	}
	if last != 429 || wrong < 20 {
		t.Errorf("guess %d is answered %d, want 429 after 20 and more", wrong, last)
	}
	if got := try(keyed, v.Token); got != 200 {
		t.Errorf("a token is answered %d meanwhile", got)
	}
	if got := try(other, "s3cret"); got != 200 {
		t.Errorf("the key of another sandbox is answered %d meanwhile", got)
	}
}
