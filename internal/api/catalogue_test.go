package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth"
)

type fields map[string]any

func addImage(t *testing.T, s *apitest.Server, f fields) wire.SandboxImage {
	t.Helper()
	var img wire.SandboxImage
	s.Want(201, "POST", "/v1/sandbox-images", f).Into(t, &img)
	return img
}

func catalogueNames(t *testing.T, s *apitest.Server, query string) string {
	t.Helper()
	var list wire.Page[wire.SandboxImage]
	s.Want(200, "GET", "/v1/sandbox-images"+query, nil).Into(t, &list)
	var names []string
	for _, i := range list.Items {
		name := i.Name
		if i.IsDefault {
			name += "*"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func TestSandboxImages(t *testing.T) {
	s := apitest.New(t)
	img := addImage(t, s, fields{"name": "agent", "image": apitest.PullRef, "memory_mb": 300, "readiness_port": 3000, "ttl_seconds": 90, "description": "Ours.\nAll of it."})
	want := wire.SandboxImage{
		ID: img.ID, Name: "agent", Image: apitest.PullName, Tag: "v1", Description: "Ours.\nAll of it.", Enabled: true,
		MemoryMB: 300, ReadinessPort: 3000, TTLSeconds: 90, WorkspaceID: img.WorkspaceID, CreatedAt: img.CreatedAt, UpdatedAt: img.UpdatedAt,
	}
	if d := cmp.Diff(want, img); d != "" || img.WorkspaceID == "" || img.ID == "" {
		t.Errorf("made (-want +got):\n%s", d)
	}
	plain := addImage(t, s, fields{"name": "plain", "image": apitest.PullName})
	if plain.Tag != "latest" || plain.MemoryMB != 512 || plain.IsDefault {
		t.Errorf("with what is omitted: %+v", plain)
	}
	pinned := addImage(t, s, fields{"name": "code", "image": "modbox/code-exec", "is_default": true})
	if got := catalogueNames(t, s, ""); got != "modbox/code-exec agent plain code*" {
		t.Errorf("catalogue = %s", got)
	}
	one := "/v1/sandbox-images/" + img.ID
	img = wire.SandboxImage{}
	s.Want(200, "PATCH", one, fields{"is_default": true, "tag": "v2", "readiness_port": 0, "enabled": false}).Into(t, &img)
	if img.Tag != "v2" || img.Image != apitest.PullName || img.ReadinessPort != 0 || img.TTLSeconds != 90 || img.MemoryMB != 300 || !img.IsDefault || img.Enabled {
		t.Errorf("changed: %+v", img)
	}
	if got := catalogueNames(t, s, "?enabled_only=true"); got != "modbox/code-exec plain code" {
		t.Errorf("enabled = %s: there must be one default at most", got)
	}
	s.Want(204, "DELETE", one, nil)
	s.Want(404, "GET", one, nil)
	s.Want(404, "PATCH", one, fields{"name": "x"})
	s.Want(404, "DELETE", one, nil)
	if got := catalogueNames(t, s, ""); got != "modbox/code-exec* plain code" {
		t.Errorf("catalogue after the default was deleted = %s", got)
	}
	s.Want(200, "GET", "/v1/sandbox-images/"+pinned.ID, nil)
}

func TestSandboxImagesOfTheDialect(t *testing.T) {
	s := apitest.New(t)
	var reg wire.Registry
	s.Want(201, "POST", "/v1/registries", fields{"name": "ours", "server": "registry.test", "username": "ann", "password": "p"}).Into(t, &reg)
	var made, got map[string]any
	s.Want(201, "POST", "/sandbox-images", fields{"name": "agent", "image": apitest.PullName, "memory_mb": "1024", "readiness_port": "", "registry_id": reg.ID, "is_default": true, "ttl_seconds": nil}).Into(t, &made)
	want := map[string]any{
		"id": made["id"], "name": "agent", "image": apitest.PullName, "tag": "latest", "description": nil, "enabled": true, "is_default": true,
		"memory_mb": 1024.0, "readiness_port": nil, "ttl_seconds": nil, "registry_id": reg.ID, "registry_name": "ours",
		"workspace_id": made["workspace_id"], "created_at": made["created_at"], "updated_at": made["updated_at"],
	}
	if d := cmp.Diff(want, made); d != "" || made["workspace_id"] == nil {
		t.Errorf("made (-want +got):\n%s", d)
	}
	one := fmt.Sprintf("/sandbox-images/%s", made["id"])
	s.Want(200, "PUT", one, fields{"readiness_port": 8080, "ttl_seconds": 60, "name": nil}).Into(t, &got)
	if got["readiness_port"] != 8080.0 || got["ttl_seconds"] != 60.0 || got["name"] != "agent" || got["memory_mb"] != 1024.0 || got["registry_id"] != reg.ID {
		t.Errorf("changed: %v", got)
	}
	s.Want(200, "PUT", one, fields{"readiness_port": "", "registry_id": ""}).Into(t, &got)
	if got["readiness_port"] != nil || got["registry_id"] != nil {
		t.Errorf("cleared: %v", got)
	}
	for field, value := range map[string]any{"memory_mb": 255, "ttl_seconds": 59, "readiness_port": 65536, "registry_id": "nobody", "tag": "a b", "name": ""} {
		if a := s.Want(422, "PUT", one, fields{field: value}); !strings.Contains(string(a.Body), `"`+field+`"`) {
			t.Errorf("a bad %s is answered %s", field, a.Body)
		}
	}
	var list struct {
		Images []struct{ Name string }
		Total  int
	}
	s.Want(200, "GET", "/sandbox-images", nil).Into(t, &list)
	if list.Total != 2 || list.Images[1].Name != "agent" {
		t.Errorf("list: %+v", list)
	}
	s.Want(403, "DELETE", "/sandbox-images/"+apitest.ImageID, nil)
	s.Want(200, "DELETE", one, nil)
	s.Want(404, "GET", one, nil)
}

func TestBadSandboxImagesAreRefused(t *testing.T) {
	s := apitest.New(t)
	var reg wire.Registry
	s.Want(201, "POST", "/v1/registries", fields{"name": "hub", "server": "docker.io", "username": "ann", "password": "p"}).Into(t, &reg)
	addImage(t, s, fields{"name": "taken", "image": apitest.PullRef})
	for _, tt := range []struct {
		field string
		body  fields
	}{
		{"name", fields{"image": apitest.PullRef}},
		{"name", fields{"name": "a\nb", "image": apitest.PullRef}},
		{"image", fields{"name": "x"}},
		{"image", fields{"name": "x", "image": "not an image"}},
		{"image", fields{"name": "x", "image": "nobody/has-it"}},
		{"image", fields{"name": "x", "image": "sha256:" + strings.Repeat("a", 64)}},
		{"tag", fields{"name": "x", "image": apitest.PullRef, "tag": "v2"}},
		{"tag", fields{"name": "x", "image": apitest.PullName + "@sha256:" + strings.Repeat("a", 64), "tag": "v2"}},
		{"memory_mb", fields{"name": "x", "image": apitest.PullRef, "memory_mb": 255}},
		{"memory_mb", fields{"name": "x", "image": apitest.PullRef, "memory_mb": 8193}},
		{"readiness_port", fields{"name": "x", "image": apitest.PullRef, "readiness_port": 70000}},
		{"ttl_seconds", fields{"name": "x", "image": apitest.PullRef, "ttl_seconds": 59}},
		{"registry_id", fields{"name": "x", "image": apitest.PullRef, "registry_id": "nobody"}},
		{"registry_id", fields{"name": "x", "image": apitest.PullRef, "registry_id": reg.ID}},
		{"registry_id", fields{"name": "x", "image": "modbox/code-exec", "registry_id": reg.ID}},
	} {
		if a := s.Want(422, "POST", "/v1/sandbox-images", tt.body); !strings.Contains(string(a.Body), tt.field) {
			t.Errorf("%v is answered %s, which does not name %s", tt.body, a.Body, tt.field)
		}
	}
	s.Want(409, "POST", "/v1/sandbox-images", fields{"name": "taken", "image": apitest.PullRef})
}

// TestSandboxesOfTheCatalogue makes sandboxes by id and by default.
func TestSandboxesOfTheCatalogue(t *testing.T) {
	s := apitest.New(t)
	img := addImage(t, s, fields{"name": "agent", "image": apitest.PullRef, "memory_mb": 300, "ttl_seconds": 90})
	create := func(status int, f fields) *apitest.Answer {
		t.Helper()
		return s.Want(status, "POST", "/v1/sandboxes", f)
	}
	made := func(f fields) (sb wire.Sandbox) {
		t.Helper()
		create(201, f).Into(t, &sb)
		return sb
	}
	sb := made(fields{"image_id": img.ID})
	if sb.Image != apitest.PullRef || sb.ImageID != img.ID || sb.Resources.Memory != "300Mi" || sb.TTLSeconds != 90 {
		t.Errorf("made by id: %+v", sb)
	}
	if sb := made(fields{"image_id": img.ID, "ttl_seconds": 100, "resources": fields{"memory": "256Mi"}}); sb.TTLSeconds != 100 || sb.Resources.Memory != "256Mi" {
		t.Errorf("made by id with its own limits: %+v", sb)
	}
	if a := create(422, fields{"image_id": img.ID, "resources": fields{"memory": "301Mi"}}); !strings.Contains(string(a.Body), "resources.memory") {
		t.Errorf("more memory than the image allows is answered %s", a.Body)
	}
	if sb := made(fields{}); sb.ImageID != apitest.ImageID {
		t.Errorf("made without an image: %+v", sb)
	}
	one := "/v1/sandbox-images/" + img.ID
	s.Want(200, "PATCH", one, fields{"is_default": true, "readiness_port": 3000})
	if sb := made(fields{}); sb.ImageID != img.ID || sb.ReadinessPort != 3000 || sb.Resources.Memory != "300Mi" {
		t.Errorf("made by default: %+v", sb)
	}
	var dialect struct {
		SandboxID string `json:"sandbox_id"`
	}
	s.Want(200, "POST", "/sandboxes/provision", fields{"task_id": "job", "image_id": img.ID}).Into(t, &dialect)
	s.Want(200, "GET", "/v1/sandboxes/"+dialect.SandboxID, nil).Into(t, &sb)
	if sb.ImageID != img.ID || sb.TTLSeconds != 90 {
		t.Errorf("made through the dialect: %+v", sb)
	}
	s.Want(200, "PATCH", one, fields{"enabled": false})
	for field, f := range map[string]fields{"image_id": {"image_id": img.ID}, "image": {}} {
		if a := create(422, f); !strings.Contains(string(a.Body), field+`"`) || !strings.Contains(string(a.Body), "disabled") {
			t.Errorf("a disabled image is answered %s", a.Body)
		}
	}
	s.Want(204, "DELETE", one, nil)
	create(422, fields{"image_id": img.ID})
	s.Want(200, "GET", "/v1/sandboxes/"+sb.ID, nil)
}

// TestBuiltinImagesOfTheCatalogue: only an administrator switches them, and for everybody.
func TestBuiltinImagesOfTheCatalogue(t *testing.T) {
	s := apitest.New(t)
	one := "/v1/sandbox-images/" + apitest.ImageID
	s.Want(403, "DELETE", one, nil)
	s.Want(403, "PATCH", one, fields{"name": "mine"})
	s.Want(403, "PATCH", one, fields{"name": "mine", "enabled": false})
	user, _, err := s.Accounts.CreateUser(t.Context(), auth.Identity{}, auth.NewUser{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := s.Auth.CreateToken(t.Context(), auth.Identity{User: user.ID, Workspace: user.Home, Role: account.RoleOwner}, auth.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	mine := addImage(t, s, fields{"name": "mine", "image": "modbox/code-exec"})
	admin := s.Token
	s.Token = secret
	s.Want(403, "PATCH", one, fields{"enabled": false})
	for method, body := range map[string]any{"GET": nil, "PATCH": fields{"name": "x"}, "DELETE": nil} {
		s.Want(404, method, "/v1/sandbox-images/"+mine.ID, body)
	}
	s.Want(422, "POST", "/v1/sandboxes", fields{"image_id": mine.ID})
	if got := catalogueNames(t, s, ""); got != "modbox/code-exec*" {
		t.Errorf("the catalogue of another workspace = %s", got)
	}
	s.Token = admin
	var img wire.SandboxImage
	s.Want(200, "PATCH", one, fields{"enabled": false}).Into(t, &img)
	if img.Enabled || !img.Builtin {
		t.Errorf("switched off: %+v", img)
	}
	s.Token = secret
	for _, f := range []fields{{}, {"image": "modbox/code-exec"}, {"image_id": apitest.ImageID}} {
		if a := s.Want(422, "POST", "/v1/sandboxes", f); !strings.Contains(string(a.Body), "disabled") {
			t.Errorf("create with %v is answered %s", f, a.Body)
		}
	}
	s.Token = admin
	s.Want(200, "PATCH", one, fields{"enabled": true})
	s.Want(201, "POST", "/v1/sandboxes", fields{"image_id": mine.ID})
}
