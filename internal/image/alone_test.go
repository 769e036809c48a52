package image_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// commitAlone lays entries over a base without copying it.
func commitAlone(t *testing.T, s *image.Store, base string, entries ...entry) image.Committed {
	t.Helper()
	done, err := s.Commit(t.Context(), image.CommitRequest{Base: base, Layer: bytes.NewReader(tarball(t, entries...)), Alone: true})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// wantFiles compares the root filesystems that the store has, as files, with digests.
func (l *losing) wantFiles(digests ...string) {
	l.Helper()
	entries, err := os.ReadDir(filepath.Join(l.dir, "images"))
	if err != nil {
		l.Fatal(err)
	}
	if len(entries) != len(digests) {
		l.Errorf("%d root filesystems, want %d", len(entries), len(digests))
	}
	for _, digest := range digests {
		if _, err := os.Stat(filepath.Join(l.dir, "images", stack.FileName(digest))); err != nil {
			l.Error(err)
		}
		if _, _, err := l.Resolve(l.Context(), digest); err != nil {
			l.Error(err)
		}
	}
}

// TestLayersKeepTheirBase checks that no removal takes what a layer lies over, and that it goes with the
// last layer.
func TestLayersKeepTheirBase(t *testing.T) {
	l := newLosing(t, 0, 0)
	base := commit(t, l.Store, "", file("a", "a", 0o644), file("b", "b", 0o644))
	first := commitAlone(t, l.Store, base.Digest, file(".wh.a", "", 0))
	second := commitAlone(t, l.Store, first.Digest, file("c", "c", 0o644))
	if base.Alone || !first.Alone || !second.Alone || second.FileCount != 2 {
		t.Errorf("base %+v, first %+v, second %+v: want two layers, and 2 files", base, first, second)
	}
	if again := commitAlone(t, l.Store, first.Digest, file("c", "c", 0o644)); again.Digest != second.Digest {
		t.Errorf("the same layer has the digests %s and %s", second.Digest, again.Digest)
	}
	l.needed, l.dropped = []string{second.Digest}, []string{base.Digest, first.Digest}
	l.old("updated_at")
	l.prune()
	if _, err := l.Removal().PruneFor(t.Context(), image.PruneRequest{All: true, Lost: true}); err != nil {
		t.Fatal(err)
	}
	l.wantFiles(base.Digest, first.Digest, second.Digest)

	staged, err := l.StageBuilt(t.Context(), image.FinishRequest{Base: second.Digest, Name: "app", Tag: "v1", Owner: "ws", Config: v1.Config{Cmd: []string{"/c"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer staged.Discard()
	var adds int64
	built, err := staged.Publish(t.Context(), func(_ context.Context, add int64) error { adds = add; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := base.OwnBytes + first.OwnBytes + built.OwnBytes; adds < want {
		t.Errorf("the check before the image sees %d bytes, want %d with all below", adds, want)
	}
	l.needed, l.dropped = nil, []string{base.Digest, first.Digest, second.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles(base.Digest, first.Digest, built.Digest)
	if page, err := readFiles(t, l.Store, built.Digest, sandbox.SnapshotFileQuery{Path: "/"}); err != nil || len(page.Files) != 2 || page.Files[0].Path != "/b" {
		t.Errorf("files of the built image: %+v, %v, want /b and /c", page, err)
	}

	if images, _, err := l.Owned("ws"); err != nil || images < base.OwnBytes+first.OwnBytes+built.OwnBytes {
		t.Errorf("the workspace has %d bytes, %v, want the built image and all below", images, err)
	}

	if err := os.Remove(filepath.Join(l.dir, "images", stack.FileName(base.Digest))); err != nil {
		t.Fatal(err)
	}
	_, _, err = l.Resolve(t.Context(), built.Digest)
	wantCode(t, "Resolve without the base", err, sandbox.Unavailable)
	if msg := fmt.Sprint(err); !strings.Contains(msg, "image app:v1") || !strings.Contains(msg, base.Digest) {
		t.Errorf("Resolve without the base: %v, want the names of the image and of the base", err)
	}
}

// TestLayersGoWithTheLast checks that nothing of a chain of layers stays when nothing needs it.
func TestLayersGoWithTheLast(t *testing.T) {
	l := newLosing(t, 0, 0)
	base := commit(t, l.Store, "", file("a", "a", 0o644))
	over := commitAlone(t, l.Store, base.Digest, file("b", "b", 0o644))
	l.dropped = []string{base.Digest, over.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles()
}

// TestWhatCountsBelowSnapshots: a snapshot is a layer over any image, and what lies below counts for its workspace unless it is
// built in or counts for the workspace anyway.
func TestWhatCountsBelowSnapshots(t *testing.T) {
	s := open(t, t.TempDir(), &fake{})
	list := func(req image.CommitRequest) string {
		t.Helper()
		req.Layer = bytes.NewReader(tarball(t, file("a", req.Name+req.CacheKey+string(req.User), 0o644)))
		done, err := commitWith(t, s, nil, req)
		if err != nil {
			t.Fatal(err)
		}
		return done.Digest
	}
	unnamed, pulled := list(image.CommitRequest{}), list(image.CommitRequest{Name: "for/all"})
	owned, cached := list(image.CommitRequest{Name: "mine", Owner: "me"}), list(image.CommitRequest{CacheKey: "k", User: "me"})
	stepped := list(image.CommitRequest{Base: pulled, Owner: "me", CacheKey: "step", Alone: true}) // has the pulled image count for me
	foreign := list(image.CommitRequest{Base: pulled, User: "they", Alone: true})
	mine := list(image.CommitRequest{Base: foreign, User: "me", Alone: true})
	for _, c := range []struct {
		what, base string
		user       sandbox.WorkspaceID
		want       []string
	}{
		{"a pulled image", pulled, "me", []string{pulled}},
		{"files without a name", unnamed, "me", []string{unnamed}},
		{"an own image", owned, "me", nil},
		{"an image of others", owned, "they", []string{owned}},
		{"own dependencies", cached, "me", nil},
		{"dependencies of others", cached, "they", []string{cached}},
		{"an own image over a pulled image", stepped, "me", nil},
		{"an image of others over a pulled image", stepped, "they", []string{stepped, pulled}},
		{"a snapshot of others", foreign, "me", []string{foreign, pulled}},
		{"an own snapshot over a snapshot of others", mine, "me", []string{mine, foreign, pulled}},
		{"a built-in image", build(t, s, "other").Digest, "me", nil},
	} {
		done, err := commitWith(t, s, nil, image.CommitRequest{Base: c.base, User: c.user, Alone: true, Layer: bytes.NewReader(tarball(t, file("c", c.what, 0o644)))})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range done.Counted {
			got = append(got, b.Digest)
			if info, err := os.Stat(filepath.Join(filepath.Dir(done.Path), stack.FileName(b.Digest))); err != nil || info.Size() != b.SizeBytes {
				t.Errorf("over %s: %s is said to have %d bytes, %v", c.what, b.Digest, b.SizeBytes, err)
			}
		}
		if !done.Alone || !slices.Equal(got, c.want) {
			t.Errorf("over %s: a layer: %v, and %q counts, want %q", c.what, done.Alone, got, c.want)
		}
	}
}

// TestWhatCountsIsDecidedAtTheEnd: dependencies that a workspace leaves to others while the layer of its snapshot over them is
// made count for the snapshot, and dependencies that it does not leave do not.
func TestWhatCountsIsDecidedAtTheEnd(t *testing.T) {
	s, dir, install := shareStore(t, image.Options{})
	a, err := install("me", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CachedFor(t.Context(), "they", "a", 0); err != nil {
		t.Fatal(err)
	}
	forget(t, dir, "they", time.Hour)
	for user, counted := range map[sandbox.WorkspaceID][]sandbox.RootFS{"me": nil, "they": {{Digest: a.Digest, SizeBytes: a.OwnBytes}}} {
		staged, err := s.Stage(t.Context(), image.CommitRequest{Base: a.Digest, User: user, Alone: true, Layer: bytes.NewReader(tarball(t, file("c", string(user), 0o644)))})
		if err != nil {
			t.Fatal(err)
		}
		defer staged.Discard()
		if left, err := s.Removal().TrimBuildCache(t.Context(), user, 0); err != nil || (left == 0) != (user == "they") {
			t.Errorf("TrimBuildCache of %s = %d, %v", user, left, err)
		}
		done, err := staged.Publish(t.Context(), nil)
		if err != nil || !slices.Equal(done.Counted, counted) {
			t.Errorf("for the snapshot of %s counts %v, %v, want %v", user, done.Counted, err, counted)
		}
	}
}

// TestLongChainsOfSnapshotsAreMerged: beyond the bound a snapshot also has the files of all snapshots before, over the
// image below them alone.
func TestLongChainsOfSnapshotsAreMerged(t *testing.T) {
	s := open(t, t.TempDir(), &fake{})
	bottom := commit(t, s, "", file("image", "bottom", 0o644))
	base, err := s.Commit(t.Context(), image.CommitRequest{Base: bottom.Digest, Owner: "w", CacheKey: "step", Alone: true, Layer: bytes.NewReader(tarball(t, file("b", "image", 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	image := []string{base.Digest, bottom.Digest}
	at := base
	for i := range 2*stack.Max + 1 {
		name := fmt.Sprint("snapshot", i)
		entries := []entry{file(name, name, 0o644), file("b", name, 0o644)}
		if i > 0 {
			entries = append(entries, file(fmt.Sprint(".wh.snapshot", i-1), "", 0))
		}
		at = commitAlone(t, s, at.Digest, entries...)
		below, err := stack.ReadFile(at.Path)
		if want := 2 + i%(stack.Max-1); err != nil || !at.Alone || len(below) != want || !slices.Equal(below[len(below)-2:], image) {
			t.Errorf("snapshot %d lies over %q, %v, want %d, and the image last", i, below, err, want)
		}
		page, err := readFiles(t, s, at.Digest, sandbox.SnapshotFileQuery{Path: "/"})
		var names []string
		for _, f := range page.Files {
			names = append(names, f.Path)
		}
		if want := []string{"/b", "/image", "/" + name}; err != nil || !slices.Equal(names, want) {
			t.Errorf("snapshot %d has %q, %v, want %q", i, names, err, want)
		}
	}
}

// TestLayersOverSharedImages: a workspace with a snapshot over an image that others also use cannot leave it to
// them, and they can; it stays in the cache when the last of them ends.
func TestLayersOverSharedImages(t *testing.T) {
	s, dir, install := shareStore(t, image.Options{})
	a, err := install("me", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CachedFor(t.Context(), "they", "a", 0); err != nil {
		t.Fatal(err)
	}
	layer := image.CommitRequest{Base: a.Digest, User: "me", Alone: true, Layer: bytes.NewReader(tarball(t, file("c", "c", 0o644)))}
	if done, err := commitWith(t, s, nil, layer); err != nil || !done.Alone {
		t.Fatalf("over the image: %+v, %v", done, err)
	}
	forget(t, dir, "me", time.Hour)
	forget(t, dir, "they", time.Hour)
	for _, ws := range []sandbox.WorkspaceID{"me", "they"} { // in this order, so that there are two
		if left, err := s.EvictBuildCache(t.Context(), ws, 1); err != nil || left != (ws == "they") {
			t.Errorf("EvictBuildCache of %s = %v, %v", ws, left, err)
		}
	}
	if _, left, err := s.Owned("me"); err != nil || !near(left, a.OwnBytes) {
		t.Errorf("me has %d, %v, want the %d of the image", left, err, a.OwnBytes)
	}
	if err := s.ForgetBuilt(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Cached(t.Context(), "a", 0); err != nil {
		t.Errorf("below a layer after the last ended: %v", err)
	}
}

// TestOthersCountWhatTheyKeep: an image of a workspace that stays without its name and without a snapshot of the workspace, because
// a snapshot of another workspace lies over it, counts for the other alone; what the workspace uses again counts for it again.
func TestOthersCountWhatTheyKeep(t *testing.T) {
	l := newLosing(t, 0, 0)
	want := func(what string, images, left int64) { // with the compressed layers or without
		t.Helper()
		if gotImages, gotLeft, err := l.Owned("me"); err != nil || gotImages < images || gotImages > 2*images+8<<10 || gotLeft < left || gotLeft > 2*left+8<<10 {
			t.Errorf("%s: Owned = %d, %d, %v, want %d, %d", what, gotImages, gotLeft, err, images, left)
		}
	}
	first := step(t, l.Store, "", "me", 1)
	second := step(t, l.Store, first.Digest, "me", 2)
	img := finished(t, l.Store, second.Digest, "me", "v1")
	snapshot := func(base string, user sandbox.WorkspaceID) image.Committed {
		t.Helper()
		done, err := commitWith(t, l.Store, nil, image.CommitRequest{Base: base, User: user, Alone: true, Layer: bytes.NewReader(tarball(t, file("changed", string(user), 0o644)))})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	mine := snapshot(img.Digest, "me")
	theirs := snapshot(mine.Digest, "they")
	if len(mine.Counted) != 0 || len(theirs.Counted) != 3 {
		t.Errorf("below the snapshots count %v for me and %v for others, want nothing and all three", mine.Counted, theirs.Counted)
	}
	size := first.OwnBytes + second.OwnBytes
	want("with a name", size, 0)
	if _, err := l.Discard(t.Context(), image.Remover{Workspace: "me"}, "app:v1"); err != nil {
		t.Fatal(err)
	}
	l.needed = []string{mine.Digest, theirs.Digest}
	l.old("updated_at")
	l.prune()
	want("with a snapshot", 0, size)
	l.needed, l.dropped = []string{theirs.Digest}, []string{mine.Digest}
	l.prune()
	want("without a name and a snapshot", 0, 0)
	l.wantFiles(first.Digest, img.Digest, mine.Digest, theirs.Digest)

	if _, _, err := l.Cached(t.Context(), "me1", 0); err != nil {
		t.Errorf("a layer that others keep: %v, want it in the cache", err)
	}
	third := step(t, l.Store, first.Digest, "me", 3)
	want("used again", 0, first.OwnBytes+third.OwnBytes)
	leftUnused(t, l.dir, first, third)
	if left, err := l.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || left != 0 {
		t.Errorf("TrimBuildCache = %d, %v, want nothing that counts", left, err)
	}
	l.wantFiles(first.Digest, img.Digest, mine.Digest, theirs.Digest)
	l.needed, l.dropped = nil, []string{mine.Digest, theirs.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles()
}

// TestDependenciesThatOthersKeep: a workspace can leave dependencies that only a snapshot of another workspace keeps; they stay in the
// cache, and count for the workspace when it uses them again.
func TestDependenciesThatOthersKeep(t *testing.T) {
	s, dir, install := shareStore(t, image.Options{})
	a, err := install("me", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), image.CommitRequest{Base: a.Digest, User: "they", Alone: true, Layer: bytes.NewReader(newFile(t))}); err != nil {
		t.Fatal(err)
	}
	if left, err := s.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || left == 0 {
		t.Errorf("TrimBuildCache while it is used = %d, %v, want it to count", left, err)
	}
	forget(t, dir, "me", time.Hour)
	if left, err := s.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || left != 0 {
		t.Errorf("TrimBuildCache = %d, %v, want nothing", left, err)
	}
	if _, left, err := s.Owned("me"); err != nil || left != 0 {
		t.Errorf("Owned = %d, %v, want nothing", left, err)
	}
	if img, _, err := s.CachedFor(t.Context(), "me", "a", 0); err != nil || img.Digest != a.Digest {
		t.Errorf("CachedFor = %s, %v, want %s", img.Digest, err, a.Digest)
	}
	if _, left, err := s.Owned("me"); err != nil || !near(left, a.OwnBytes) {
		t.Errorf("used again: Owned = %d, %v, want %d", left, err, a.OwnBytes)
	}
}

// TestDependenciesThatCountForNoWorkspaceGo: dependencies that all workspaces have left go with the last snapshot over them, although they
// were made a short time ago.
func TestDependenciesThatCountForNoWorkspaceGo(t *testing.T) {
	l := newLosing(t, 0, 0)
	a, err := l.Commit(t.Context(), image.CommitRequest{User: "me", CacheKey: "a", Layer: bytes.NewReader(newFile(t))})
	if err != nil {
		t.Fatal(err)
	}
	over := commitAlone(t, l.Store, a.Digest, file("b", "b", 0o644))
	l.needed = []string{over.Digest}
	forget(t, l.dir, "me", time.Hour)
	if left, err := l.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || left != 0 {
		t.Errorf("TrimBuildCache = %d, %v, want nothing", left, err)
	}
	ago := time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	made := regexp.MustCompile(`"updated_at": "[^"]*"`)
	editIndex(t, l.dir, func(index []byte) []byte { return made.ReplaceAll(index, []byte(`"updated_at": "`+ago+`"`)) })
	l.prune()
	l.wantFiles(a.Digest, over.Digest)
	l.needed, l.dropped = nil, []string{over.Digest}
	l.prune()
	l.wantFiles()
}

// TestWhatLiesBelowIsNotLost: what a snapshot needs is not lost, and takes no space of what is.
func TestWhatLiesBelowIsNotLost(t *testing.T) {
	l := newLosing(t, 0, 0)
	base := commit(t, l.Store, "", file("a", "a", 0o644))
	over := commitAlone(t, l.Store, base.Digest, file("b", "b", 0o644))
	l.needed = []string{over.Digest}
	l.old("updated_at")
	l.prune()
	l.want()
	l.needed = nil
	l.prune()
	l.want(base.Digest, over.Digest)
	err := l.Removal().RemoveLost(t.Context(), base.Digest)
	if wantCode(t, "RemoveLost below a layer", err, sandbox.Conflict); !strings.Contains(err.Error(), over.Digest) {
		t.Errorf("RemoveLost below a layer: %v, want the layer's digest", err)
	}
	for _, digest := range []string{over.Digest, base.Digest} {
		if err := l.Removal().RemoveLost(t.Context(), digest); err != nil {
			t.Error(err)
		}
	}
	l.wantFiles()
}
