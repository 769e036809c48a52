package api_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
)

// TestRegistries writes and reads registries through both APIs; no answer and no
// log has a password.
func TestRegistries(t *testing.T) {
	s := apitest.New(t)
	var seen bytes.Buffer
	do := func(status int, method, path string, body any) *apitest.Answer {
		t.Helper()
		a := s.Want(status, method, path, body)
		seen.Write(a.Body)
		return a
	}
	type registry struct {
		ID, Name, Server, Username string
		Email                      *string
		Enabled                    bool
	}
	var r registry
	do(201, "POST", "/v1/registries", map[string]any{"name": "hub", "server": "docker.io", "username": "ann", "password": "S3CRET-one"}).Into(t, &r)
	if r.ID == "" || r.Name != "hub" || r.Server != "docker.io" || r.Username != "ann" || !r.Enabled || r.Email != nil {
		t.Errorf("made: %+v", r)
	}
	do(409, "POST", "/v1/registries", map[string]any{"name": "hub", "server": "ghcr.io", "username": "ann", "password": "S3CRET-two"})
	for field, b := range map[string]map[string]any{
		"server": {"name": "x", "server": "no host", "username": "ann", "password": "S3CRET-three"},
		"email":  {"name": "x", "server": "ghcr.io", "username": "ann", "password": "S3CRET-three", "email": "nobody"},
	} {
		if a := do(422, "POST", "/v1/registries", b); !strings.Contains(string(a.Body), field) {
			t.Errorf("a bad %s is answered %s", field, a.Body)
		}
	}
	do(200, "PATCH", "/v1/registries/"+r.ID, map[string]any{"enabled": false, "password": "S3CRET-four"}).Into(t, &r)
	if r.Enabled || r.Username != "ann" {
		t.Errorf("changed: %+v", r)
	}
	var second registry
	do(201, "POST", "/registries", map[string]any{"name": "ours", "server": "ghcr.io", "username": "bob", "password": "S3CRET-five", "email": "b@example.com"}).Into(t, &second)
	do(200, "PUT", "/registries/"+second.ID, map[string]any{"username": "carl"}).Into(t, &second)
	if second.Username != "carl" || second.Email == nil || *second.Email != "b@example.com" || !second.Enabled {
		t.Errorf("changed through the dialect: %+v", second)
	}
	do(422, "POST", "/registries", map[string]any{"name": "x"})
	var native struct{ Items []registry }
	var dialect struct {
		Registries []registry
		Total      int
	}
	do(200, "GET", "/v1/registries", nil).Into(t, &native)
	do(200, "GET", "/registries", nil).Into(t, &dialect)
	if len(native.Items) != 2 || len(dialect.Registries) != 2 || dialect.Total != 2 || dialect.Registries[1].Email == nil {
		t.Errorf("lists: %+v, %+v", native, dialect)
	}

	if a := do(422, "PATCH", "/v1/registries/"+r.ID, map[string]any{"verify": true, "email": "a@example.com"}); !strings.Contains(string(a.Body), `"password"`) {
		t.Errorf("a password that the registry does not accept is answered %s", a.Body)
	}
	do(422, "POST", "/registries", map[string]any{"name": "y", "server": "ghcr.io", "username": "bob", "password": "S3CRET-six", "verify": true})
	do(200, "PUT", "/registries/"+r.ID, map[string]any{"verify": true, "password": apitest.RegistryPassword})

	do(204, "DELETE", "/v1/registries/"+r.ID, nil)
	do(404, "GET", "/v1/registries/"+r.ID, nil)
	do(200, "DELETE", "/registries/"+second.ID, nil)
	if all := seen.String() + s.Log.String(); strings.Contains(all, "S3CRET") {
		t.Errorf("a password is in an answer or the log:\n%s", all)
	}
}
