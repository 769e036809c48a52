package image_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image"
)

// storedFiles returns the root filesystems and blobs of a store.
func storedFiles(t *testing.T, dir string) []string {
	t.Helper()
	return append(filesIn(t, filepath.Join(dir, "images"), ""), filesIn(t, filepath.Join(dir, "layout", "blobs", "sha256"), "")...)
}

func unused(context.Context) ([]string, error) { return nil, nil }

// An index that is missing or damaged says nothing about the files beside it.
func TestNothingIsDeletedWithoutAnIndex(t *testing.T) {
	for what, damage := range map[string]func(name string) error{
		"missing": os.Remove,
		"empty":   func(name string) error { return os.Truncate(name, 0) },
		"cut":     func(name string) error { return os.Truncate(name, 100) },
		"null":    func(name string) error { return os.WriteFile(name, []byte("null"), 0o600) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s, err := image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{tar: small(t, "one")}, InUse: unused})
			if err != nil {
				t.Fatal(err)
			}
			build(t, s, "test/main")
			want := storedFiles(t, dir)
			name := filepath.Join(dir, "index.json")
			if err := damage(name); err != nil {
				t.Fatal(err)
			}
			wrong := func(when string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "from a backup") {
					t.Errorf("%s: %v, want an error that names %s and says what to do", when, err, name)
				}
			}
			for range 2 { // an attempt must not make it good for the next one
				_, err := s.Removal().Prune(t.Context(), unused)
				wrong("Prune", err)
				_, err = s.Removal().PruneFor(t.Context(), image.PruneRequest{All: true, Lost: true})
				wrong("PruneFor", err)
				_, err = s.List(t.Context())
				wrong("List", err)
				_, err = s.Build(t.Context(), recipeOf(t, s, "test/main"), image.BuildOptions{Force: true})
				wrong("Build", err)
				_, err = image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}})
				wrong("Open", err)
			}
			if diff := cmp.Diff(want, storedFiles(t, dir)); diff != "" {
				t.Errorf("files afterwards (-want +got):\n%s", diff)
			}
		})
	}
}

// A crash while the first image is added leaves its files beside an index that does not
// name them, not beside none.
func TestNewStoreHasAnIndex(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, &fake{})
	left := filepath.Join(dir, "images", strings.Repeat("a", 64)+".erofs")
	if err := os.WriteFile(left, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, &fake{})
	if _, err := s.Removal().Prune(t.Context(), unused); err != nil {
		t.Fatal(err)
	}
	if files := storedFiles(t, dir); len(files) > 0 {
		t.Errorf("files that no index names: %v", files)
	}
}
