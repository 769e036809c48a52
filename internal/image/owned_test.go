package image_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// fullDisk is a check for a disk of so many bytes, with the images that the owner has.
func fullDisk(s *image.Store, owner sandbox.WorkspaceID, bytes int64) image.Check {
	return func(_ context.Context, add int64) error {
		images, left, err := s.Owned(owner)
		if err != nil {
			return err
		}
		q := quota.Limits{quota.LimitDisk: bytes}
		return q.AdmitsDisk(quota.DiskUse{Images: images, BuildCache: left}, add)
	}
}

// commitWith stages a layer and publishes it if check accepts it.
func commitWith(t *testing.T, s *image.Store, check image.Check, req image.CommitRequest) (image.Committed, error) {
	t.Helper()
	staged, err := s.Stage(t.Context(), req)
	if err != nil {
		return image.Committed{}, err
	}
	defer staged.Discard()
	return staged.Publish(t.Context(), check)
}

// storeWithBase makes a store, of whose images those used are in use, with one to build on.
func storeWithBase(t *testing.T, used *[]string) (dir string, s *image.Store, base spec.Image) {
	t.Helper()
	dir = t.TempDir()
	s, err := image.Open(dir, recipeFS(), image.Options{
		Bootstrapper: &fake{tar: small(t, "base")}, InUse: func(context.Context) ([]string, error) { return *used, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, s, build(t, s, "test/main")
}

// TestOwned: the images of a workspace's builds count for the workspace, each file once, and no
// files of others; an image that does not fit after the removal of the build cache is refused.
func TestOwned(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	owned := func() [2]int64 {
		t.Helper()
		images, left, err := s.Owned("me")
		if err != nil {
			t.Fatal(err)
		}
		return [2]int64{images, left}
	}
	commit := func(key string, room image.Check) (image.Committed, error) {
		return commitWith(t, s, room, image.CommitRequest{
			Base: base.Digest, Owner: "me", CacheKey: key,
			Layer: bytes.NewReader(tarball(t, file(key, noise(1<<20+len(key)), 0o644))),
		})
	}
	if got := owned(); got != [2]int64{} {
		t.Errorf("nothing built: %v", got)
	}
	first, err := commit("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := owned(), [2]int64{0, first.SizeBytes + first.LayerBytes}; got[0] != 0 || !near(got[1], want[1]) {
		t.Errorf("a layer: %v, want %v", got, want)
	}
	app, err := s.Finish(t.Context(), image.FinishRequest{Base: first.Digest, Config: v1.Config{}, Owner: "me", Name: "app", Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := owned(), [2]int64{app.SizeBytes + first.LayerBytes, 0}; !near(got[0], want[0]) || !near(got[1], 0) {
		t.Errorf("an image, which has the layer: %v, want %v", got, want)
	}
	if images, left, err := s.Owned("they"); images+left != 0 || err != nil {
		t.Errorf("others have %d, %d, %v", images, left, err)
	}

	old, err := commit("old", nil)
	if err != nil {
		t.Fatal(err)
	}
	// Images in use or new are not removed for it.
	before := owned()
	if _, err := commit("bb", fullDisk(s, "me", before[0]+before[1]+10)); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a commit on a full disk: %v", err)
	}
	if _, _, err := s.Cached(t.Context(), "bb", 0); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("what did not fit is there: %v", err)
	}
	again, err := s.StageBuilt(t.Context(), image.FinishRequest{Base: base.Digest, Config: v1.Config{}, Owner: "me", Name: "app", Tag: "v2"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Discard()
	if _, err := again.Publish(t.Context(), fullDisk(s, "me", before[0]+before[1])); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("an image on a full disk: %v", err)
	}
	if got := owned(); got != before {
		t.Errorf("after what did not fit: %v, want %v", got, before)
	}
	leftUnused(t, dir, first, old)
	second, err := commit("bb", fullDisk(s, "me", before[0]+before[1]+1<<10))
	if err != nil {
		t.Fatalf("a commit for which an old layer can go: %v", err)
	}
	for key, want := range map[string]sandbox.Code{"old": sandbox.NotFound, "a": ""} {
		if _, _, err := s.Cached(t.Context(), key, 0); sandbox.CodeOf(err) != want {
			t.Errorf("the layer %s: %v, want %q", key, err, want)
		}
	}
	if got, want := owned(), [2]int64{app.SizeBytes + first.LayerBytes, second.SizeBytes + second.LayerBytes}; !near(got[0], want[0]) || !near(got[1], want[1]) {
		t.Errorf("an image with its layer, and a layer: %v, want %v", got, want)
	}
}

// TestEvictBuildCache: nothing goes for what would not fit anyway, and only the owner's for what fits.
func TestEvictBuildCache(t *testing.T) {
	var used []string
	dir, s, base := storeWithBase(t, &used)
	var newest string
	for i, owner := range []sandbox.WorkspaceID{"me", "they", "me"} {
		done, err := s.Commit(t.Context(), image.CommitRequest{
			Base: base.Digest, Owner: owner, CacheKey: fmt.Sprint(i), Layer: bytes.NewReader(tarball(t, file(fmt.Sprint(i), noise(1<<20+i), 0o644))),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Cached(t.Context(), fmt.Sprint(i), 0); err != nil {
			t.Fatal(err)
		}
		age(t, dir, done.Image, time.Hour*time.Duration(10-i))
		newest = done.Digest
	}
	_, all, err := s.Owned("me")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		add   int64
		inUse []string
		want  bool
		gone  []string
	}{
		{1 << 40, nil, false, nil}, {all, []string{newest}, false, nil},
		{1, nil, true, []string{"0"}}, {1 << 20, nil, true, []string{"0", "2"}},
	} {
		used = tt.inUse
		made, err := s.EvictBuildCache(t.Context(), "me", tt.add)
		if made != tt.want || err != nil {
			t.Errorf("EvictBuildCache(%d) = %v, %v, want %v", tt.add, made, err, tt.want)
		}
		var gone []string
		for _, key := range []string{"0", "1", "2"} {
			index := readIndex(t, dir) // asking the store would be a use
			if !strings.Contains(string(index), fmt.Sprintf("\"cache_key\": %q", key)) {
				gone = append(gone, key)
			}
		}
		if fmt.Sprint(gone) != fmt.Sprint(tt.gone) {
			t.Errorf("after EvictBuildCache(%d) %v are gone, want %v", tt.add, gone, tt.gone)
		}
	}
}
