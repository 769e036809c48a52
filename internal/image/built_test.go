package image_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
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

// TestIndexVersions: the index of the version before is read, and written as this one; that
// of a later program is refused.
func TestIndexVersions(t *testing.T) {
	dir, _, base := storeWithBase(t, new([]string))
	name := filepath.Join(dir, "index.json")
	open := func(version string) (*image.Store, error) {
		t.Helper()
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), ",")
		if err := os.WriteFile(name, []byte(`{"version": `+version+`,`+rest), 0o644); err != nil {
			t.Fatal(err)
		}
		return image.Open(dir, recipeFS(), image.Options{Bootstrapper: &fake{}})
	}
	s, err := open("1")
	if err != nil {
		t.Fatal(err)
	}
	if img, _, err := s.Resolve(t.Context(), "test/main"); err != nil || img.Digest != base.Digest {
		t.Errorf("Resolve with an index of version 1 = %+v, %v", img, err)
	}
	if _, err := s.Commit(t.Context(), image.CommitRequest{Owner: "me", Layer: bytes.NewReader(tarball(t, file("a", "a", 0o644)))}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(name); err != nil || !strings.HasPrefix(string(data), "{\n \"version\": 2,") {
		t.Errorf("after a change the index begins with %.30q, %v", data, err)
	}
	if _, err := open("3"); err == nil || !strings.Contains(err.Error(), "version is 3") {
		t.Errorf("Open with an index of version 3: %v", err)
	}
}
