package image_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestFinishSharesTheFile: an image that is run in another way than what it is made of has
// a digest of its own and the same file, which stays as long as one of them does.
func TestFinishSharesTheFile(t *testing.T) {
	dir, s, _ := storeWithBase(t, new([]string))
	layer, err := s.Commit(t.Context(), image.CommitRequest{
		Owner: "me", CacheKey: "key", Volatile: true, Layer: bytes.NewReader(tarball(t, file("a", noise(1<<18), 0o644))),
	})
	if err != nil {
		t.Fatal(err)
	}
	finish := func(tag, user string) (spec.Image, string) {
		t.Helper()
		img, err := s.Finish(t.Context(), image.FinishRequest{Base: layer.Digest, Config: v1.Config{User: user}, Owner: "me", Name: "app", Tag: tag})
		if err != nil {
			t.Fatal(err)
		}
		return img, filepath.Join(filepath.Dir(layer.Path), strings.TrimPrefix(img.Digest, "sha256:")+".erofs")
	}
	one, path := finish("one", "a")
	again, _ := finish("again", "a")
	other, otherPath := finish("other", "b")
	if one.Digest != again.Digest || one.Digest == other.Digest || one.Digest == layer.Digest {
		t.Errorf("digests: %s and %s of the same, %s of another, made of %s", one.Digest, again.Digest, other.Digest, layer.Digest)
	}
	files := make([]os.FileInfo, 0, 3)
	for _, name := range []string{layer.Path, path, otherPath} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, info)
	}
	if !os.SameFile(files[0], files[1]) || !os.SameFile(files[0], files[2]) {
		t.Error("the root filesystems are files of their own")
	}

	if err := os.Remove(layer.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(otherPath); err != nil {
		t.Fatal(err)
	}
	if s, err = image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}}); err != nil {
		t.Fatal(err)
	}
	base := image.FinishRequest{Base: one.Digest, Config: v1.Config{User: "c"}, Owner: "me", Name: "app", Tag: "next"}
	if _, err := s.Finish(t.Context(), base); err != nil {
		t.Errorf("an image whose base is gone is found damaged: %v", err)
	}
	if got := contents(t, readEROFS(t, path))["a"]; got != noise(1<<18) {
		t.Errorf("its file has %d bytes", len(got))
	}

	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 5000); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Finish(t.Context(), base)
	wantCode(t, "Finish of a damaged base", err, sandbox.Unavailable)
}

// TestIndexVersions: an index of an earlier version is read, and the first change replaces it; an
// index of a later program is refused.
func TestIndexVersions(t *testing.T) {
	dir, _, base := storeWithBase(t, new([]string))
	name := filepath.Join(dir, "index.json")
	for version := 1; version <= 2; version++ {
		oldIndex(t, dir, version)
		before := readFile(t, name)
		s, err := image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}})
		if err != nil {
			t.Fatal(err)
		}
		if img, _, err := s.Resolve(t.Context(), "test/main"); err != nil || img.Digest != base.Digest {
			t.Errorf("Resolve with an index of version %d = %+v, %v", version, img, err)
		}
		if data := readFile(t, name); !bytes.Equal(data, before) {
			t.Errorf("reading changed the index of version %d to %s", version, data)
		}
		if _, err := s.Commit(t.Context(), image.CommitRequest{Owner: "me", Layer: bytes.NewReader(tarball(t, file("a", strconv.Itoa(version), 0o644)))}); err != nil {
			t.Fatal(err)
		}
		if data := readFile(t, name); string(data) != "{\"version\":3}\n" {
			t.Errorf("after a change index.json is %s", data)
		}
		if data := readFile(t, filepath.Join(dir, "index.v2.json")); !bytes.Equal(data, before) {
			t.Errorf("after a change the index before is %s, want it unchanged", data)
		}
		if n := len(descriptors(t, dir)); n != version+1 {
			t.Errorf("after a change there are %d descriptors, want %d", n, version+1)
		}
		if img, _, err := s.Resolve(t.Context(), "test/main"); err != nil || img.Digest != base.Digest {
			t.Errorf("Resolve after a change = %+v, %v", img, err)
		}
	}
	if err := os.WriteFile(name, []byte(`{"version": 4}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}}); err == nil || !strings.Contains(err.Error(), "version is 4") {
		t.Errorf("Open with an index of version 4: %v", err)
	}
}

// TestFinishLeavesTheModeOfAFile: a store may have links to files of another store.
func TestFinishLeavesTheModeOfAFile(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	lent := filepath.Join(t.TempDir(), "lent.erofs")
	own := filepath.Join(dir, "images", stack.FileName(base.Digest))
	if err := errors.Join(os.Rename(own, lent), os.Chmod(lent, 0o400), os.Symlink(lent, own)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(lent)
	if err != nil {
		t.Fatal(err)
	}
	img := finished(t, s, base.Digest, "me", "v1")
	if _, _, err := s.Resolve(t.Context(), img.Digest); err != nil {
		t.Error(err)
	}
	after, err := os.Stat(lent)
	if err != nil {
		t.Fatal(err)
	}
	one, other := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if after.Mode() != before.Mode() || one.Ctim != other.Ctim {
		t.Errorf("the lent file has mode %v and changed at %v, want %v and %v", after.Mode(), other.Ctim, before.Mode(), one.Ctim)
	}
}
