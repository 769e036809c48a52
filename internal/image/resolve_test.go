package image_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, &fake{tar: small(t, "one")})
	main, other := build(t, s, "test/main"), build(t, s, "modbox/other")
	for ref, want := range map[string]spec.Image{
		"":                             main,
		"test/main":                    main,
		"test/main:latest":             main,
		"test/main@" + main.Digest:     main,
		"modbox/other":                 other,
		"other":                        other,
		"other:latest":                 other,
		"modbox/other:latest":          other,
		"modbox/other@" + other.Digest: other,
	} {
		got, path, err := s.Resolve(t.Context(), ref)
		if err != nil {
			t.Errorf("Resolve(%q): %v", ref, err)
			continue
		}
		if got.Digest != want.Digest || !strings.HasSuffix(path, ".erofs") {
			t.Errorf("Resolve(%q) = %s in %s, want %s", ref, got.Ref(), path, want.Ref())
		}
	}
	for ref, want := range map[string]sandbox.Code{
		"main":                              sandbox.NotFound, // only modbox/ may be left out
		"test/main:other":                   sandbox.NotFound,
		"example.com/test/main":             sandbox.NotFound,
		"sha256:" + strings.Repeat("0", 64): sandbox.NotFound,
		"modbox/other2@" + main.Digest:      sandbox.NotFound,
		"Test/Main":                         sandbox.Invalid,
		"../../etc/passwd":                  sandbox.Invalid,
		"a b":                               sandbox.Invalid,
		"sha256:../../x":                    sandbox.Invalid,
		strings.Repeat("a", 600):            sandbox.Invalid,
	} {
		_, _, err := s.Resolve(t.Context(), ref)
		wantCode(t, "Resolve("+ref+")", err, want)
		if want == sandbox.NotFound && (!strings.Contains(err.Error(), ref) || !strings.Contains(err.Error(), "modbox/other:latest")) {
			t.Errorf("Resolve(%q) error %q does not name it and what there is", ref, err)
		}
	}
}

func TestUnbuiltImages(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, img := range list {
		if img.Digest != "" || !img.Builtin {
			t.Errorf("%s: digest %q, builtin %t before it is built", img.Ref(), img.Digest, img.Builtin)
		}
		if _, err := uuid.Parse(string(img.ID)); err != nil {
			t.Errorf("id of %s: %v", img.Ref(), err)
		}
		refs = append(refs, img.Ref())
	}
	if d := cmp.Diff([]string{"test/main:latest", "modbox/other:latest"}, refs); d != "" {
		t.Errorf("List() (-want +got):\n%s", d)
	}
	for _, ref := range []string{"", "other"} {
		_, _, err = s.Resolve(t.Context(), ref)
		wantCode(t, "Resolve", err, sandbox.NotFound)
		if !strings.Contains(err.Error(), "modbox images build") {
			t.Errorf("Resolve(%q) error %q does not say how to build it", ref, err)
		}
	}
	built := build(t, s, "test/main")
	if built.ID != list[0].ID {
		t.Errorf("the id changed with the build from %s to %s", list[0].ID, built.ID)
	}
	for _, want := range list {
		if got, err := s.ByID(t.Context(), want.ID); err != nil || got.Ref() != want.Ref() {
			t.Errorf("ByID(%s) = %s, %v, want %s", want.ID, got.Ref(), err, want.Ref())
		}
	}
	_, err = s.ByID(t.Context(), "0190a1b2-0000-7000-8000-000000000000")
	wantCode(t, "ByID", err, sandbox.NotFound)
}

// TestRebuild: a build by one process is seen by another, the old digest stays
// usable until Prune, which keeps what is still needed.
func TestRebuild(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, "one")}
	server, cli := open(t, dir, f), open(t, dir, f)
	one := build(t, server, "test/main")
	f.tar = small(t, "two")
	two, err := cli.Build(t.Context(), recipeOf(t, cli, "test/main"), image.BuildOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if two.Digest == one.Digest || !two.CreatedAt.Equal(one.CreatedAt) || two.UpdatedAt.Before(one.UpdatedAt) || two.ID != one.ID {
		t.Errorf("the rebuilt image is %+v, the first was %+v", two, one)
	}
	resolves := func(ref, want string) {
		t.Helper()
		got, _, err := server.Resolve(t.Context(), ref)
		if err != nil || got.Digest != want {
			t.Errorf("Resolve(%s) = %s, %v, want %s", ref, got.Digest, err, want)
		}
	}
	resolves("test/main", two.Digest)
	resolves(one.Digest, one.Digest)

	if _, err := cli.Removal().Prune(t.Context(), using(one.Digest)); err != nil {
		t.Fatal(err)
	}
	resolves(one.Digest, one.Digest)
	orphan := filepath.Join(dir, "images", strings.Repeat("0", 64)+".erofs")
	if err := os.WriteFile(orphan, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	freed, err := cli.Removal().Prune(t.Context(), using())
	if err != nil || freed <= one.SizeBytes+5 {
		t.Errorf("Prune() = %d, %v, want more than the image's %d bytes", freed, err, one.SizeBytes)
	}
	_, _, err = server.Resolve(t.Context(), one.Digest)
	wantCode(t, "Resolve of a pruned digest", err, sandbox.NotFound)
	resolves("test/main", two.Digest)
	checkLayout(t, dir, "test/main:latest")
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, &fake{tar: small(t, "one")})
	build(t, s, "test/main")
	if err := s.Removal().Remove(t.Context(), "test/main"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Resolve(t.Context(), "test/main")
	wantCode(t, "Resolve", err, sandbox.NotFound)
	wantCode(t, "Remove again", s.Removal().Remove(t.Context(), "test/main"), sandbox.NotFound)
	if _, err := s.Removal().Prune(t.Context(), using()); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"images", "layout/blobs/sha256", "tmp"} {
		if left := tree(t, filepath.Join(dir, sub)); len(left) != 0 {
			t.Errorf("after Remove and Prune there is %v", left)
		}
	}
	build(t, s, "test/main")
	if _, _, err := s.Resolve(t.Context(), "test/main"); err != nil {
		t.Errorf("Resolve() after building again: %v", err)
	}
}

// TestLayoutIndexIsRepaired: a crash between the two indexes is made good.
func TestLayoutIndexIsRepaired(t *testing.T) {
	dir := t.TempDir()
	f := &fake{tar: small(t, "one")}
	build(t, open(t, dir, f), "test/main")
	if err := os.WriteFile(filepath.Join(dir, "layout", "index.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, f)
	checkLayout(t, dir, "test/main:latest")
}

// using are the digests that something needs.
func using(digests ...string) func(context.Context) ([]string, error) {
	return func(context.Context) ([]string, error) { return digests, nil }
}

func TestPruneDeletesNothingWhenUseIsUnknown(t *testing.T) {
	s := open(t, t.TempDir(), &fake{tar: small(t, "one")})
	img := build(t, s, "test/main")
	if err := s.Removal().Remove(t.Context(), img.Ref()); err != nil {
		t.Fatal(err)
	}
	unknown := errors.New("unknown")
	if freed, err := s.Removal().Prune(t.Context(), func(context.Context) ([]string, error) { return nil, unknown }); freed != 0 || !errors.Is(err, unknown) {
		t.Errorf("Prune() = %d, %v", freed, err)
	}
	if _, _, err := s.Resolve(t.Context(), img.Digest); err != nil {
		t.Errorf("the image after it: %v", err)
	}
}
