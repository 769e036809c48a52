package image_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// pulledFS has a built-in image that is pulled, beside the default one.
func pulledFS() fstest.MapFS {
	recipes := recipeFS()
	recipes["system/recipe.yaml"] = &fstest.MapFile{Data: []byte(
		"name: modbox/system\npull: library/system:24.04\ndescription: A system\non_demand: true\nmemory: 128Mi\nttl: 2h\n")}
	return recipes
}

func openPulled(t *testing.T, dir, registry string) *image.Store {
	t.Helper()
	s, err := image.Open(dir, pulledFS(), image.Options{Bootstrapper: &fake{}, DefaultRegistry: registry, Remote: remote.Options{InsecureRegistries: loopback}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPulledRecipe(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	config := v1.Config{Cmd: []string{"/bin/sh"}, Env: []string{"PATH=/bin"}}
	reg.Push(t, "library/system:24.04", imageOf(t, config, gzipped(t, file("version", "old", 0o644))))
	s := openPulled(t, dir, reg.Host)
	before, err := s.Lookup(t.Context(), "system")
	if err != nil || !before.Builtin || before.Digest != "" || before.Ref() != "modbox/system:latest" {
		t.Fatalf("Lookup before it is pulled = %+v, %v", before, err)
	}
	img, path, err := s.Ensure(t.Context(), "modbox/system", registry.Puller{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if img.ID != before.ID || !img.Builtin || img.Readers != nil || img.Description != "A system" || img.MemoryBytes != 128<<20 ||
		img.TTL.Hours() != 2 || len(img.Config.Cmd) != 1 || len(img.Config.Env) != 1 {
		t.Errorf("Ensure = %+v, want what the recipe says, and the registry's configuration", img)
	}
	if got := contents(t, readEROFS(t, path))["version"]; got != "old" {
		t.Errorf("the image has %q", got)
	}

	// It is built once; a new build gets the later meaning of the tag.
	reg.Push(t, "library/system:24.04", imageOf(t, config, gzipped(t, file("version", "new", 0o644))))
	if same, _, err := s.Ensure(t.Context(), "system", registry.Puller{}, nil); err != nil || same.Digest != img.Digest {
		t.Errorf("Ensure again = %s, %v, want what is here", same.Digest, err)
	}
	next, err := s.Build(t.Context(), recipeOf(t, s, "system"), image.BuildOptions{Force: true})
	if err != nil || next.Digest == img.Digest || next.ID != img.ID || !next.CreatedAt.Equal(img.CreatedAt) {
		t.Errorf("Build with Force = %+v, %v, want the new image, with id and creation of the old", next, err)
	}
	if found, path, err := openPulled(t, dir, "").Resolve(t.Context(), "system"); err != nil || found.Digest != next.Digest {
		t.Errorf("Resolve after a restart = %s %s, %v, want %s", found.Digest, path, err, next.Digest)
	}
}

func TestPulledRecipeWithoutRegistry(t *testing.T) {
	dir := t.TempDir()
	none := openPulled(t, dir, "")
	_, _, err := none.Ensure(t.Context(), "system", registry.Puller{}, nil)
	wantCode(t, "Ensure without a registry", err, sandbox.NotFound)
	if err == nil || !strings.Contains(err.Error(), "images.default_registry") {
		t.Errorf("Ensure without a registry: %v, want it to name the setting", err)
	}

	reg := registrytest.New(t)
	_, _, err = openPulled(t, dir, reg.Host).Ensure(t.Context(), "system", registry.Puller{}, nil)
	wantCode(t, "Ensure of what the registry has not", err, sandbox.NotFound)

	// An image pulled with credentials is not for all.
	ref := reg.Push(t, "library/system:24.04", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	reg.On(registrytest.BasicAuth("ann", "pw"))
	signed, err := image.Open(dir, pulledFS(), image.Options{Bootstrapper: &fake{}, DefaultRegistry: reg.Host, Remote: remote.Options{InsecureRegistries: loopback, Login: func(context.Context, registry.Puller, string) (registry.Login, error) {
		return registry.Login{Proof: "1@a", Username: "ann", Password: "pw"}, nil
	}}})
	if err != nil {
		t.Fatal(err)
	}
	who := registry.Puller{Workspace: "ws"}
	if _, err := signed.Pull(t.Context(), ref, image.PullOptions{Puller: who}); err != nil {
		t.Fatal(err)
	}
	_, _, err = signed.Ensure(t.Context(), "system", who, nil)
	wantCode(t, "Ensure of an image that one workspace may have", err, sandbox.Forbidden)

	// An image for all workspaces is used without asking any registry.
	reg.On(nil)
	if _, err := signed.Pull(t.Context(), ref, image.PullOptions{}); err != nil {
		t.Fatal(err)
	}
	reg.On(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true })
	if img, _, err := openPulled(t, dir, reg.Host).Ensure(t.Context(), "system", registry.Puller{}, nil); err != nil || !img.Builtin {
		t.Errorf("Ensure of what is here = %+v, %v", img, err)
	}
}

// TestPulledRecipeFromAFile: a machine without a registry imports the image.
func TestPulledRecipeFromAFile(t *testing.T) {
	reg := registrytest.New(t)
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	from := pullStore(t, t.TempDir())
	img, _ := pull(t, from, ref)
	name := filepath.Join(t.TempDir(), "app.tar")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(from.Export(t.Context(), ref, f), f.Close()); err != nil {
		t.Fatal(err)
	}
	s := openPulled(t, t.TempDir(), "docker.io")
	if _, err := s.Import(t.Context(), name, image.ImportOptions{Name: "docker.io/library/system:24.04"}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Ensure(t.Context(), "modbox/system", registry.Puller{}, nil); err != nil || got.Digest != img.Digest || !got.Builtin {
		t.Errorf("Ensure = %+v, %v, want %s", got, err, img.Digest)
	}
}
