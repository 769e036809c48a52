package image_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/image"
)

func TestBuiltinRecipes(t *testing.T) {
	s, err := image.Open(t.TempDir(), images.FS, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for i, img := range list {
		if img.IsDefault != (i == 0) || !img.Builtin {
			t.Errorf("%s is default: %v, built in: %v", img.Ref(), img.IsDefault, img.Builtin)
		}
		refs = append(refs, strings.TrimPrefix(img.Ref(), "modbox/"))
	}
	want := []string{
		"code-exec:latest", "amp:latest", "base:latest", "bun:1", "chromium:latest", "claude-code:latest", "data:latest", "desktop:latest",
		"node:latest", "node:lts", "opencode:latest", "python:3.13", "python:3.14", "sandbox-lite:latest", "sandbox:latest", "ubuntu:latest",
	}
	if diff := cmp.Diff(want, refs); diff != "" {
		t.Errorf("the built-in images (-want +got):\n%s", diff)
	}
	var first []string
	for _, r := range s.Recipes() {
		if !r.OnDemand() {
			first = append(first, r.Ref())
		}
	}
	if diff := cmp.Diff([]string{"modbox/code-exec:latest", "modbox/base:latest"}, first); diff != "" {
		t.Errorf("what is built before it is used (-want +got):\n%s", diff)
	}
	if got := list[0].Config; got.User != "user" || got.WorkingDir != "/workspace" {
		t.Errorf("config of modbox/code-exec = %+v", got)
	}
}
