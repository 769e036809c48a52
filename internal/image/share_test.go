package image_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// shareStore is a store with a base, and a function that makes what is shared by its key.
func shareStore(t *testing.T, o image.Options) (s *image.Store, dir string, install func(user sandbox.WorkspaceID, key string, room image.Check) (image.Committed, error)) {
	t.Helper()
	dir = t.TempDir()
	o.Bootstrapper = &fake{tar: small(t, "base")}
	if o.InUse == nil {
		o.InUse = func(context.Context) ([]string, error) { return nil, nil }
	}
	s, err := image.Open(dir, recipeFS(), o)
	if err != nil {
		t.Fatal(err)
	}
	base := build(t, s, "test/main")
	return s, dir, func(user sandbox.WorkspaceID, key string, room image.Check) (image.Committed, error) {
		return commitWith(t, s, room, image.CommitRequest{
			Base: base.Digest, User: user, CacheKey: key, Alone: true,
			Layer: bytes.NewReader(tarball(t, file(key, noise(1<<20+len(key)), 0o644))),
		})
	}
}

// TestSharedCounts: an image that several workspaces use exists once, counts for each of them until
// the workspace needs the space, and is removed with the last of them.
func TestSharedCounts(t *testing.T) {
	s, dir, install := shareStore(t, image.Options{})
	left := func(ws sandbox.WorkspaceID) int64 {
		t.Helper()
		images, left, err := s.Owned(ws)
		if err != nil || images != 0 {
			t.Fatalf("Owned(%s) = %d, %d, %v", ws, images, left, err)
		}
		return left
	}
	a, err := install("me", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	size := a.OwnBytes + a.LayerBytes
	if got, others := left("me"), left("they"); !near(got, size) || others != 0 {
		t.Errorf("who installed it has %d and others %d, want %d and 0", got, others, size)
	}
	if _, _, err := s.Cached(t.Context(), "a", 0); err != nil || left("they") != 0 {
		t.Errorf("after a look for nobody: %v, others have %d", err, left("they"))
	}
	for range 2 {
		if img, _, err := s.CachedFor(t.Context(), "they", "a", 0); err != nil || img.Digest != a.Digest {
			t.Fatalf("CachedFor = %s, %v, want %s", img.Digest, err, a.Digest)
		}
	}
	if got, others := left("me"), left("they"); !near(got, size) || !near(others, size) {
		t.Errorf("both count %d and %d, want %d", got, others, size)
	}

	// A new image needs space, and images in use now are not removed for it.
	if _, err := install("me", "bb", fullDisk(s, "me", left("me")+10)); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("on a full disk: %v", err)
	}
	forget(t, dir, "me", time.Hour)
	b, err := install("me", "bb", fullDisk(s, "me", left("me")+10))
	if err != nil {
		t.Fatalf("when something old makes room: %v", err)
	}
	if got, others := left("me"), left("they"); !near(got, b.OwnBytes+b.LayerBytes) || !near(others, size) {
		t.Errorf("after one left it to the other they have %d and %d", got, others)
	}
	if _, _, err := s.Resolve(t.Context(), a.Digest); err != nil {
		t.Errorf("what another uses is gone: %v", err)
	}
	if made, err := s.EvictBuildCache(t.Context(), "they", size); made || err != nil {
		t.Errorf("the last user's made room although it was used now: %v", err)
	}
	forget(t, dir, "they", time.Hour)
	age(t, dir, a.Image, time.Hour)
	if made, err := s.EvictBuildCache(t.Context(), "they", size); !made || err != nil || left("they") != 0 {
		t.Errorf("EvictBuildCache of the last user = %v, %v, who has %d", made, err, left("they"))
	}
	if _, _, err := s.CachedFor(t.Context(), "they", "a", 0); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("what nobody uses: %v, want it gone", err)
	}
}

// TestSharedOfWorkspacesThatEnd counts for the others alone, and is garbage after the last.
func TestSharedOfWorkspacesThatEnd(t *testing.T) {
	s, _, install := shareStore(t, image.Options{})
	if _, err := install("me", "a", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.CachedFor(t.Context(), "they", "a", 0); err != nil {
		t.Fatal(err)
	}
	for _, ws := range []sandbox.WorkspaceID{"me", "they"} {
		if _, _, err := s.Cached(t.Context(), "a", 0); err != nil {
			t.Errorf("before %s ended: %v", ws, err)
		}
		if err := s.ForgetBuilt(t.Context(), ws); err != nil {
			t.Fatal(err)
		}
		if _, left, err := s.Owned(ws); left != 0 || err != nil {
			t.Errorf("%s, which ended, has %d, %v", ws, left, err)
		}
	}
	if _, _, err := s.Cached(t.Context(), "a", 0); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("after the last: %v, want it gone", err)
	}
}

// TestSharedByEarlierVersions has no users, counts for nobody until it is used, and stays.
func TestSharedByEarlierVersions(t *testing.T) {
	s, _, install := shareStore(t, image.Options{})
	a, err := install("", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, left, err := s.Owned("me"); left != 0 || err != nil {
		t.Errorf("before it is used: %d, %v", left, err)
	}
	if _, _, err := s.CachedFor(t.Context(), "me", "a", 0); err != nil {
		t.Fatal(err)
	}
	if _, left, err := s.Owned("me"); !near(left, a.OwnBytes+a.LayerBytes) || err != nil {
		t.Errorf("once it is used: %d, %v, want %d", left, err, a.OwnBytes+a.LayerBytes)
	}
	// The same made again keeps its users.
	if _, err := install("they", "a", nil); err != nil {
		t.Fatal(err)
	}
	for _, ws := range []sandbox.WorkspaceID{"me", "they"} {
		if _, left, err := s.Owned(ws); !near(left, a.OwnBytes+a.LayerBytes) || err != nil {
			t.Errorf("%s, after it was made again: %d, %v", ws, left, err)
		}
	}
}

// TestTrimIsFair: who fills the store loses its own first, however old what others have is.
func TestTrimIsFair(t *testing.T) {
	s, dir, install := shareStore(t, image.Options{})
	for i, c := range []struct {
		user sandbox.WorkspaceID
		key  string
	}{{"they", "old"}, {"", "ancient"}, {"me", "1"}, {"me", "2"}, {"me", "3"}, {"me", "4"}, {"me", "5"}} {
		done, err := install(c.user, c.key, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Cached(t.Context(), c.key, 0); err != nil {
			t.Fatal(err)
		}
		forget(t, dir, c.user, time.Hour)
		age(t, dir, done.Image, time.Duration(20-i)*time.Hour)
	}
	none := func(context.Context) ([]string, error) { return nil, nil }
	// All are about 2 MiB: an equal part of 11 MiB is not two of them.
	removed, _, err := s.Removal().Trim(t.Context(), 11<<20, none)
	if err != nil || len(removed) == 0 {
		t.Fatalf("Trim = %v, %v", removed, err)
	}
	var there []string
	for _, key := range []string{"old", "ancient", "1", "2", "3", "4", "5"} {
		if _, _, err := s.Cached(t.Context(), key, 0); err == nil {
			there = append(there, key)
		}
	}
	if fmt.Sprint(there) != "[old ancient 3 4 5]" {
		t.Errorf("there are %v, of %d that went, want the oldest of who has most gone", there, len(removed))
	}
}

// TestDependenciesInPlaceOfOthers: evicted dependencies counted with the image below them, which then counts with the new
// dependencies. The store evicts other dependencies until there is space.
func TestDependenciesInPlaceOfOthers(t *testing.T) {
	l := newLosing(t, 0, 0)
	pulled, err := l.Commit(t.Context(), image.CommitRequest{Name: "for/all", Layer: bytes.NewReader(tarball(t, file("image", noise(1<<20), 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Commit(t.Context(), image.CommitRequest{Name: "for/others", Layer: bytes.NewReader(tarball(t, file("other", noise(1<<16), 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	install := func(key, base string, bytesOf int, check image.Check) (image.Committed, error) {
		return commitWith(t, l.Store, check, image.CommitRequest{
			Base: base, User: "me", CacheKey: key, Alone: true, Layer: bytes.NewReader(tarball(t, file(key, noise(bytesOf), 0o644))),
		})
	}
	oldest, err := install("oldest", pulled.Digest, 1<<16, nil)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := install("newer", other.Digest, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	forget(t, l.dir, "me", time.Hour)
	leftUnused(t, l.dir, newer)
	leftUnused(t, l.dir, oldest)
	age(t, l.dir, oldest.Image, 2*time.Hour)
	_, left, err := l.Owned("me")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install("new", pulled.Digest, 1<<18, fullDisk(l.Store, "me", left)); err != nil {
		t.Errorf("it has no space although all others can go: %v", err)
	}
}

// TestDependenciesOverAPulledImage: dependencies are a layer over their image, which counts for each workspace that uses them, once,
// and stays until the last of them is removed. A snapshot over them adds itself.
func TestDependenciesOverAPulledImage(t *testing.T) {
	l := newLosing(t, 0, 0)
	pulled, err := l.Commit(t.Context(), image.CommitRequest{Name: "for/all", Layer: bytes.NewReader(tarball(t, file("image", noise(1<<20), 0o644)))})
	if err != nil {
		t.Fatal(err)
	}
	var layers []image.Committed
	for _, key := range []string{"a", "b"} {
		var added int64
		done, err := commitWith(t, l.Store, func(_ context.Context, add int64) error { added = add; return nil }, image.CommitRequest{
			Base: pulled.Digest, User: "me", CacheKey: key, Alone: true, Layer: bytes.NewReader(tarball(t, file(key, noise(1<<16), 0o644))),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := done.OwnBytes + done.LayerBytes
		if len(layers) == 0 {
			want += pulled.OwnBytes
		}
		if done.OwnBytes > 1<<18 || added != want {
			t.Errorf("%s has %d bytes and adds %d, want %d", key, done.OwnBytes, added, want)
		}
		layers = append(layers, done)
	}
	if _, _, err := l.CachedFor(t.Context(), "they", "a", 0); err != nil {
		t.Fatal(err)
	}
	left := func(ws sandbox.WorkspaceID, of ...image.Committed) {
		t.Helper()
		var want int64
		for i, m := range of {
			if want += m.OwnBytes; i > 0 {
				want += m.LayerBytes
			}
		}
		if images, left, err := l.Owned(ws); err != nil || images != 0 || !near(left, want) {
			t.Errorf("%s has %d, %d, %v, want %d", ws, images, left, err, want)
		}
	}
	left("me", pulled, layers[0], layers[1])
	left("they", pulled, layers[0])
	snapshot, err := l.Commit(t.Context(), image.CommitRequest{Base: layers[0].Digest, User: "they", Alone: true, Layer: bytes.NewReader(newFile(t))})
	if err != nil || len(snapshot.Counted) != 0 {
		t.Errorf("below a snapshot over dependencies count %v, %v", snapshot.Counted, err)
	}
	if err := l.Removal().Remove(t.Context(), "for/all"); err != nil {
		t.Fatal(err)
	}
	l.needed = []string{snapshot.Digest}
	l.prune()
	l.wantFiles(pulled.Digest, layers[0].Digest, layers[1].Digest, snapshot.Digest)
	forget(t, l.dir, "me", time.Hour)
	leftUnused(t, l.dir, layers...)
	if bytes, err := l.Removal().TrimBuildCache(t.Context(), "me", 0); err != nil || bytes != 0 {
		t.Errorf("TrimBuildCache = %d, %v, want nothing", bytes, err)
	}
	left("me")
	l.needed, l.dropped = nil, []string{snapshot.Digest}
	l.old("updated_at")
	l.prune()
	l.wantFiles()
}

// forget has a workspace have used what it shares so long ago, whatever it is.
func forget(t *testing.T, dir string, ws sandbox.WorkspaceID, by time.Duration) {
	t.Helper()
	then := fmt.Sprintf("%q: %q", ws, time.Now().Add(-by).UTC().Format(time.RFC3339))
	uses := regexp.MustCompile(fmt.Sprintf(`"%s": "[^"]*"`, ws))
	editIndex(t, dir, func(index []byte) []byte { return uses.ReplaceAll(index, []byte(then)) })
}
