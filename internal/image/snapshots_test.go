package image_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
)

// TestSnapshotsOverPulledImages: a snapshot over a pulled image is a layer that keeps what lies below it when the image is
// removed and its tag names a newer image, and frees it in the end. Layers that images share count once below snapshots.
func TestSnapshotsOverPulledImages(t *testing.T) {
	reg, c := registrytest.New(t), newChainStore(t, t.TempDir())
	lib, runtime, small := gzipped(t, file("lib", noise(2_000_001), 0o644)), gzipped(t, file("runtime", noise(3_000_000), 0o644)), gzipped(t, file("a", "a", 0o644))
	language := reg.Push(t, "language:v1", imageOf(t, v1.Config{}, lib, runtime))
	first, _ := c.pull(language)
	second, _ := c.pull(reg.Push(t, "app:v1", imageOf(t, v1.Config{}, lib, runtime, small)))
	below := map[string]int64{} // as the database has it
	snap := func(base string, n int) image.Committed {
		t.Helper()
		done, err := c.Commit(t.Context(), image.CommitRequest{
			Base: base, User: "me", Alone: true, Layer: bytes.NewReader(tarball(t, file("changed", string(rune('0'+n)), 0o644), file(".wh.lib", "", 0))),
		})
		if err != nil {
			t.Fatal(err)
		}
		if !done.Alone || done.OwnBytes > 1<<16 {
			t.Errorf("a snapshot has %d bytes, and is a layer: %v", done.OwnBytes, done.Alone)
		}
		for _, b := range done.Counted {
			below[b.Digest] = b.SizeBytes
		}
		return done
	}
	list := []image.Committed{snap(first.Digest, 0), snap(first.Digest, 1), snap(second.Digest, 2)}
	files, bytes := c.erofs()
	var counted int64
	for _, b := range below {
		counted += b
	}
	for _, sn := range list {
		bytes -= sn.OwnBytes
	}
	if len(below) != files-len(list) || counted != bytes {
		t.Errorf("%d files of %d bytes count, want each of the %d files of the images once, with %d bytes", len(below), counted, files-len(list), bytes)
	}
	if again := snap(first.Digest, 1); again.Digest != list[1].Digest || len(again.Counted) != 2 {
		t.Errorf("the same snapshot again: %s over %v, want %s over both files", again.Digest, again.Counted, list[1].Digest)
	}

	reg.Push(t, "language:v1", imageOf(t, v1.Config{}, small))
	c.pull(language)
	for _, ref := range []string{language, reg.Host + "/app:v1"} {
		if err := c.Removal().Remove(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	c.needed = []string{list[1].Digest}
	c.dropped = []string{list[0].Digest, list[2].Digest}
	longAgo := func() {
		t.Helper()
		times := regexp.MustCompile(`"updated_at": "\d{4}`)
		editIndex(t, c.dir, func(index []byte) []byte { return times.ReplaceAll(index, []byte(`"updated_at": "2001`)) })
		uses, err := filepath.Glob(filepath.Join(c.dir, "used", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, last := range uses {
			if err := os.Remove(last); err != nil {
				t.Fatal(err)
			}
		}
	}
	longAgo()
	c.prune()
	if files, _ := c.erofs(); files != 3 {
		t.Errorf("%d root filesystems are left, want the last snapshot and two below it", files)
	}
	c.want(list[1].Image, map[string]string{"changed": "1", "lib": "", "runtime": noise(3_000_000)})
	c.needed, c.dropped = nil, append(c.dropped, list[1].Digest)
	longAgo()
	c.prune()
	c.wantEmpty("after the last snapshot")
	if images, left, err := c.Owned("me"); err != nil || images+left != 0 {
		t.Errorf("Owned = %d, %d, %v, want nothing: the database counts snapshots", images, left, err)
	}
}
