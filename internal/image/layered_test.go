package image_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// step makes a layer as a step of a Dockerfile does.
func step(t *testing.T, s *image.Store, base string, owner sandbox.WorkspaceID, n int) image.Committed {
	t.Helper()
	done, err := s.Commit(t.Context(), image.CommitRequest{
		Base: base, Owner: owner, CacheKey: fmt.Sprint(owner, n), Volatile: true, Alone: true,
		Layer: bytes.NewReader(tarball(t, file(fmt.Sprint("step", n), noise(1<<16+n), 0o644))),
	})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// finished names an image of a step.
func finished(t *testing.T, s *image.Store, base string, owner sandbox.WorkspaceID, tag string) spec.Image {
	t.Helper()
	img, err := s.Finish(t.Context(), image.FinishRequest{Base: base, Config: v1.Config{Cmd: []string{tag}}, Owner: owner, Name: "app", Tag: tag})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// near reports whether a number is of so many bytes and of the manifests and configurations of a few images, which
// count, and of which each has at least some bytes.
func near(got, bytes int64) bool { return got >= bytes && got < bytes+8<<10 }

// TestStepsCountOnce: the layers of a build count once for the workspace, as long as an image needs them as
// images, and then as build cache; the built-in image below counts for nobody, and is part of the size of the image.
func TestStepsCountOnce(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	first := step(t, s, base.Digest, "me", 1)
	second := step(t, s, first.Digest, "me", 2)
	third := step(t, s, first.Digest, "me", 3)
	files, blobs := first.OwnBytes+second.OwnBytes, first.LayerBytes+second.LayerBytes
	further := third.OwnBytes + third.LayerBytes
	want := func(what string, images, left int64) {
		t.Helper()
		if gotImages, gotLeft, err := s.Owned("me"); err != nil || !near(gotImages, images) || !near(gotLeft, left) {
			t.Errorf("%s: Owned = %d, %d, %v, want %d, %d", what, gotImages, gotLeft, err, images, left)
		}
	}
	if !first.Alone || !second.Alone || !third.Alone {
		t.Fatalf("steps that are copies: %+v, %+v, %+v", first, second, third)
	}
	want("only layers", 0, files+blobs+further)
	for _, tag := range []string{"v1", "v2"} {
		img := finished(t, s, second.Digest, "me", tag)
		if img.OwnBytes != second.OwnBytes || img.SizeBytes != base.SizeBytes+files {
			t.Errorf("app:%s has %d bytes, %d its own, want %d and %d", tag, img.SizeBytes, img.OwnBytes, base.SizeBytes+files, second.OwnBytes)
		}
		if list, err := s.BuiltBy(t.Context(), "me"); err != nil || list[0].SizeBytes != img.SizeBytes {
			t.Errorf("BuiltBy = %+v, %v, want %d bytes", list, err, img.SizeBytes)
		}
		want("app:"+tag, files+blobs, further)
	}
	if images, left, err := s.Owned("they"); err != nil || images+left != 0 {
		t.Errorf("others have %d, %d, %v", images, left, err)
	}
	// A removal of layers of the images would free nothing.
	leftUnused(t, dir, first, second, third)
	if left, err := s.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || !near(left, 0) {
		t.Errorf("TrimBuildCache = %d, %v, want no layer left", left, err)
	}
	want("after a trim", files+blobs, 0)
	for digest, want := range map[string]sandbox.Code{first.Digest: "", second.Digest: "", third.Digest: sandbox.NotFound} {
		if _, _, err := s.Resolve(t.Context(), digest); sandbox.CodeOf(err) != want {
			t.Errorf("Resolve of %s after a trim: %v, want %q", digest, err, want)
		}
	}
	for _, tag := range []string{"v1", "v2"} {
		if _, err := s.Discard(t.Context(), image.Remover{Workspace: "me"}, "app:"+tag); err != nil {
			t.Fatal(err)
		}
	}
	want("without names", 0, files+blobs)
}

// leftUnused has images be last used an hour ago, and made long ago.
func leftUnused(t *testing.T, dir string, made ...image.Committed) {
	t.Helper()
	for _, m := range made {
		used := filepath.Join(dir, "used", strings.TrimPrefix(m.Digest, "sha256:"))
		if err := os.WriteFile(used, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		age(t, dir, m.Image, time.Hour)
	}
}

// wantLayers checks that a store with one built-in image has its file, and the files of layers.
func wantLayers(t *testing.T, dir string, layers ...image.Committed) {
	t.Helper()
	names, err := os.ReadDir(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 1+len(layers) {
		t.Errorf("%d layers are left, want %d", len(names)-1, len(layers))
	}
	for _, l := range layers {
		if _, err := os.Stat(l.Path); err != nil {
			t.Error(err)
		}
	}
}

// TestBuildInProgressKeepsAllLayers: nothing below a layer that a build holds is removed; later all of it is.
func TestBuildInProgressKeepsAllLayers(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	chain := []image.Committed{step(t, s, base.Digest, "me", 0)}
	for n := 1; n < 4; n++ {
		chain = append(chain, step(t, s, chain[n-1].Digest, "me", n))
	}
	release, err := s.Hold(t.Context(), chain[2].Digest)
	if err != nil {
		t.Fatal(err)
	}
	trim := func() {
		t.Helper()
		if _, err := s.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil {
			t.Fatal(err)
		}
	}
	leftUnused(t, dir, chain...)
	trim()
	wantLayers(t, dir, chain[:3]...)
	if _, err := s.Removal().PruneFor(t.Context(), image.PruneRequest{Workspace: "me"}); err != nil {
		t.Fatal(err)
	}
	wantLayers(t, dir, chain[:3]...)
	next := step(t, s, chain[2].Digest, "me", 9)
	release()
	leftUnused(t, dir, append(chain[:3], next)...)
	trim()
	wantLayers(t, dir)
}

// TestLongChainsAreMerged: beyond the bound a step also has the files of all steps before, over the image below them, and
// further steps are layers over that.
func TestLongChainsAreMerged(t *testing.T) {
	_, s, base := storeWithBase(t, new([]string))
	at, files := base.Digest, int64(0)
	for n := range 2*stack.Max + 3 {
		made := step(t, s, at, "me", n)
		below, err := stack.ReadFile(made.Path)
		if want := n%stack.Max + 1; err != nil || !made.Alone || len(below) != want || below[len(below)-1] != base.Digest {
			t.Errorf("step %d lies over %q, %v, want %d", n, below, err, want)
		}
		if n > 0 && made.FileCount != files+1 {
			t.Errorf("step %d has %d files, want %d", n, made.FileCount, files+1)
		}
		at, files = made.Digest, made.FileCount
	}
	page, err := readFiles(t, s, at, sandbox.SnapshotFileQuery{Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, f := range page.Files {
		if strings.HasPrefix(f.Path, "/step") {
			steps++
		}
	}
	if steps != 2*stack.Max+3 {
		t.Errorf("the last step has the files of %d steps", steps)
	}
}

// TestLayersOfADeletedWorkspaceGo: all of a chain, and none is taken for lost.
func TestLayersOfADeletedWorkspaceGo(t *testing.T) {
	l := newLosing(t, time.Hour, 0)
	first := step(t, l.Store, "", "me", 1)
	second := step(t, l.Store, first.Digest, "me", 2)
	finished(t, l.Store, second.Digest, "me", "v1")
	l.prune()
	if err := l.ForgetBuilt(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	l.prune()
	l.wantFiles()
	l.want()
}

// TestTrimTakesWholeChains: a chain that nobody used for long goes before images that were used later, and the built-in image stays.
func TestTrimTakesWholeChains(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	first := step(t, s, base.Digest, "me", 1)
	second := step(t, s, first.Digest, "me", 2)
	newer, err := s.Commit(t.Context(), image.CommitRequest{Name: "for/all", Layer: bytes.NewReader(tarball(t, file("a", noise(1<<16), 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	leftUnused(t, dir, first, second)
	used := filepath.Join(dir, "used", strings.TrimPrefix(newer.Digest, "sha256:"))
	if err := os.WriteFile(used, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, dir, newer.Image, 20*time.Minute)
	sizes := base.SizeBytes + newer.OwnBytes + newer.LayerBytes
	removed, _, err := s.Removal().Trim(t.Context(), sizes+1<<15, unused)
	if err != nil || len(removed) != 2 || removed[0] != second.Digest || removed[1] != first.Digest {
		t.Errorf("Trim removed %q, %v, want %s and %s", removed, err, second.Digest, first.Digest)
	}
	wantLayers(t, dir, newer)
}
