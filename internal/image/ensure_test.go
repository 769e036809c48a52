package image_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestEnsurePulls(t *testing.T) {
	reg := registrytest.New(t)
	ref := reg.Push(t, "library/app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "a", 0o644))))
	s, err := image.Open(t.TempDir(), recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, DefaultRegistry: reg.Host})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"library/app:v1", ref} {
		known, err := s.Lookup(t.Context(), name)
		if err != nil || known.Ref() != ref || known.Digest != "" {
			t.Errorf("Lookup(%s) before the pull = %+v, %v, want %s without a digest", name, known, err, ref)
		}
	}
	img, path, err := s.Ensure(t.Context(), "library/app:v1", registry.Puller{}, nil)
	if err != nil || img.Ref() != ref {
		t.Fatalf("Ensure = %+v, %v, want %s", img, err, ref)
	}
	if got := contents(t, readEROFS(t, path))["a"]; got != "a" {
		t.Errorf("the image has %q", got)
	}
	for _, name := range []string{"library/app:v1", ref, img.Digest} {
		if found, _, err := s.Resolve(t.Context(), name); err != nil || found.Digest != img.Digest {
			t.Errorf("Resolve(%s) = %+v, %v", name, found, err)
		}
	}
	if _, err := s.Lookup(t.Context(), "modbox/nosuch"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Lookup of a name like the built-in ones' = %v, want not_found", err)
	}
	if known, err := s.Lookup(t.Context(), "other"); err != nil || known.Digest != "" || !known.Builtin {
		t.Errorf("Lookup(other) = %+v, %v, want the built-in image", known, err)
	}
}

func TestEnsureAsksAgainForTags(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "old", 0o644))))
	s, err := image.Open(dir, recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, RecheckInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := s.Ensure(t.Context(), ref, registry.Puller{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	reg.Push(t, "app:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "new", 0o644))))
	var asked atomic.Int32
	count := func(http.ResponseWriter, *http.Request) bool { asked.Add(1); return false }
	reg.On(count)
	if img, _, err := s.Ensure(t.Context(), ref, registry.Puller{}, nil); err != nil || img.Digest != old.Digest || asked.Load() != 0 || s.Stale(ref, registry.Puller{}) {
		t.Errorf("Ensure soon after = %s, %v with %d questions, want what is here without any", img.Digest, err, asked.Load())
	}
	eager, err := image.Open(dir, recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, RecheckInterval: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	reg.On(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true })
	if img, _, err := eager.Ensure(t.Context(), ref, registry.Puller{}, nil); err != nil || img.Digest != old.Digest {
		t.Errorf("Ensure with a broken registry = %s, %v, want what is here", img.Digest, err)
	}
	reg.On(count)
	img, _, err := eager.Ensure(t.Context(), ref, registry.Puller{}, nil)
	if err != nil || img.Digest == old.Digest {
		t.Errorf("Ensure after the tag moved = %s, %v, want the new one", img.Digest, err)
	}
	if _, path, err := eager.Resolve(t.Context(), old.Digest); err != nil || contents(t, readEROFS(t, path))["a"] != "old" {
		t.Errorf("the image of sandboxes that run is gone: %v", err)
	}
	if eager.Stale(old.Digest, registry.Puller{}) {
		t.Error("a digest is stale, want only tags to be")
	}
}

// age makes an image look unused for a time.
func age(t *testing.T, dir string, img spec.Image, by time.Duration) {
	t.Helper()
	then := time.Now().Add(-by)
	if err := os.Chtimes(filepath.Join(dir, "used", strings.TrimPrefix(img.Digest, "sha256:")), then, then); err != nil {
		t.Fatal(err)
	}
	// The index says when it was made; a time before that does not count.
	year := time.Now().UTC().Format("2006")
	editIndex(t, dir, func(index []byte) []byte {
		return bytes.ReplaceAll(index, []byte(`"updated_at": "`+year), []byte(`"updated_at": "2001`))
	})
}

func TestTrim(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	s := pullStore(t, dir)
	var images []spec.Image
	for i, name := range []string{"oldest", "needed", "referred", "newer", "fresh"} {
		ref := reg.Push(t, name+":v1", imageOf(t, v1.Config{}, gzipped(t, file(name, noise(1<<20+i), 0o644))))
		img, _ := pull(t, s, ref)
		images = append(images, img)
	}
	for i, img := range images[:4] {
		age(t, dir, img, time.Hour*time.Duration(10-i))
	}
	s = pullStore(t, dir)
	none := func(context.Context) ([]string, error) { return nil, nil }
	if removed, _, err := s.Removal().Trim(t.Context(), 100<<20, none); err != nil || len(removed) != 0 {
		t.Errorf("Trim within the bounds removed %v, %v", removed, err)
	}
	unknown := errors.New("who knows")
	if _, _, err := s.Removal().Trim(t.Context(), 1, func(context.Context) ([]string, error) { return nil, unknown }); !errors.Is(err, unknown) {
		t.Errorf("Trim = %v, want the error of inUse", err)
	}
	inUse := func(context.Context) ([]string, error) { return []string{images[1].Digest, images[2].Ref()}, nil }
	removed, freed, err := s.Removal().Trim(t.Context(), 9<<20, inUse)
	if err != nil || len(removed) != 1 || removed[0] != images[0].Ref() || freed < 2<<20 {
		t.Errorf("Trim = %v, %d, %v, want only the oldest to go", removed, freed, err)
	}
	removed, _, err = s.Removal().Trim(t.Context(), 1, inUse)
	if err != nil || len(removed) != 1 || removed[0] != images[3].Ref() {
		t.Errorf("Trim to nothing = %v, %v, want what is neither needed nor fresh to go", removed, err)
	}
	for i, want := range []sandbox.Code{sandbox.NotFound, "", "", sandbox.NotFound, ""} {
		_, _, err := s.Resolve(t.Context(), images[i].Ref())
		wantCode(t, images[i].Ref(), err, want)
	}
	if _, _, err := s.Ensure(t.Context(), images[0].Ref(), registry.Puller{}, nil); err != nil {
		t.Errorf("what was trimmed cannot be pulled again: %v", err)
	}
}

// TestTrimBuildCache: what a workspace's builds leave is bounded, and nobody else's goes for it.
func TestTrimBuildCache(t *testing.T) {
	dir := t.TempDir()
	var needed []string
	s, err := image.Open(dir, recipeFS(), image.Options{Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{tar: small(t, "base")}, InUse: func(context.Context) ([]string, error) { return needed, nil }})
	if err != nil {
		t.Fatal(err)
	}
	base := build(t, s, "test/main")
	var layers []image.Committed
	for i, owner := range []sandbox.WorkspaceID{"me", "me", "they", "me", "me", "they"} {
		req := image.CommitRequest{
			Base: base.Digest, Owner: owner, CacheKey: fmt.Sprint("key", i),
			Layer: bytes.NewReader(tarball(t, file(fmt.Sprint(i), noise(1<<20+i), 0o644))),
		}
		done, err := s.Commit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, done)
	}
	for i, l := range layers {
		if _, _, err := s.Cached(t.Context(), fmt.Sprint("key", i), 0); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			age(t, dir, l.Image, time.Hour*time.Duration(10-i))
		} else if i > 3 {
			age(t, dir, l.Image, 5*time.Minute)
		}
	}
	if left, err := s.Removal().TrimBuildCache(t.Context(), "me", 1<<30); err != nil || left < 3<<20 {
		t.Errorf("TrimBuildCache within the bound = %d, %v", left, err)
	}
	needed = []string{layers[0].Image.Digest}
	if left, err := s.Removal().TrimBuildCache(t.Context(), "me", 1); err != nil || left < 4<<20 || left > 5<<20 {
		t.Errorf("TrimBuildCache = %d, %v, want what is needed and what is new to stay", left, err)
	}
	for i, want := range []sandbox.Code{"", sandbox.NotFound, "", "", sandbox.NotFound, ""} {
		_, _, err := s.Cached(t.Context(), fmt.Sprint("key", i), 0)
		wantCode(t, fmt.Sprint("Cached ", i), err, want)
	}
}

func TestPullTrims(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	s := pullStore(t, dir)
	old, _ := pull(t, s, reg.Push(t, "old", imageOf(t, v1.Config{}, gzipped(t, file("a", noise(1<<20), 0o644)))))
	age(t, dir, old, time.Hour)
	bounded, err := image.Open(dir, recipeFS(), image.Options{
		Remote: remote.Options{InsecureRegistries: loopback}, Bootstrapper: &fake{}, MaxDisk: 3 << 20, InUse: func(context.Context) ([]string, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	pull(t, bounded, reg.Push(t, "new", imageOf(t, v1.Config{}, gzipped(t, file("b", noise(1<<20), 0o644)))))
	if _, _, err := bounded.Resolve(t.Context(), old.Ref()); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Resolve of the image that was used longest ago = %v, want not_found", err)
	}
	if _, err := image.Open(t.TempDir(), recipeFS(), image.Options{MaxDisk: 1}); err == nil {
		t.Error("Open with a bound and without knowing what is in use succeeded")
	}
}

// TestHeldImagesStay: what is held is not removed, by no process, however long it is since it was used.
func TestHeldImagesStay(t *testing.T) {
	reg, dir := registrytest.New(t), t.TempDir()
	s, other := pullStore(t, dir), pullStore(t, dir)
	ref := reg.Push(t, "base:v1", imageOf(t, v1.Config{}, gzipped(t, file("a", "old", 0o644))))
	img, _ := pull(t, s, ref)
	release, err := s.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	again, err := other.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	again()
	age(t, dir, img, time.Hour)
	none := func(context.Context) ([]string, error) { return nil, nil }
	trim := func() {
		t.Helper()
		if _, _, err := pullStore(t, dir).Removal().Trim(t.Context(), 1, none); err != nil {
			t.Fatal(err)
		}
		if err := other.Removal().Remove(t.Context(), ref); err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			t.Fatal(err)
		}
		if _, err := other.Removal().Prune(t.Context(), none); err != nil {
			t.Fatal(err)
		}
	}
	trim()
	if _, _, err := other.Resolve(t.Context(), img.Digest); err != nil {
		t.Errorf("an image that is held was removed: %v", err)
	}
	release()
	release() // does nothing
	trim()
	_, _, err = other.Resolve(t.Context(), img.Digest)
	wantCode(t, "Resolve after it was let go", err, sandbox.NotFound)
	_, err = s.Hold(t.Context(), img.Digest)
	wantCode(t, "Hold of what is gone", err, sandbox.NotFound)
}
