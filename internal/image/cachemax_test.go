package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/archive"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/sizes"
	"github.com/modbox/modbox/internal/sandbox"
)

// cacheCopies adds copies of a cache entry with other keys to a store.
func cacheCopies(t *testing.T, dir, digest string, copies int) {
	t.Helper()
	type descriptor struct {
		Version int `json:"version"`
		index.Record
	}
	var of descriptor
	for _, name := range descriptors(t, dir) {
		var r descriptor
		if err := json.Unmarshal(readFile(t, name), &r); err != nil {
			t.Fatal(err)
		}
		if r.Digest == digest {
			of = r
		}
	}
	for n := range copies {
		of.CacheKey, of.Position = fmt.Sprint("copy ", n), int64(100+n)
		data, err := json.Marshal(of)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "records", of.Key()+".json"), data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	editIndex(t, dir, func(index []byte) []byte { return index })
}

// nameless makes an image without a name of a step.
func nameless(t *testing.T, s *image.Store, base string, cmd string) error {
	t.Helper()
	_, err := s.Finish(t.Context(), image.FinishRequest{Base: base, Config: v1.Config{Cmd: []string{cmd}}, Owner: "me"})
	return err
}

// TestBuildCacheHasSoManyEntries: an entry of the build cache of a workspace beyond the limit takes the place of the entry
// that was unused for longest, and is refused while all are in use.
func TestBuildCacheHasSoManyEntries(t *testing.T) {
	const most = 2000
	var used []string
	dir, s, base := storeWithBase(t, &used)
	old := step(t, s, base.Digest, "me", 1)
	leftUnused(t, dir, old)
	cacheCopies(t, dir, old.Digest, most-1)
	entries := func(what string, want int) {
		t.Helper()
		if got := len(descriptors(t, dir)) - 1; got != want {
			t.Errorf("%s: the cache has %d entries, want %d", what, got, want)
		}
	}
	entries("at first", most)
	second := step(t, s, base.Digest, "me", 2)
	entries("after another step", most)
	if err := nameless(t, s, second.Digest, "one"); err != nil {
		t.Fatal(err)
	}
	entries("after an image without a name", most)

	used = []string{old.Digest}
	if _, err := s.Removal().TrimBuildCache(t.Context(), "me", 1<<40); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("TrimBuildCache while all are in use or new: %v, want %s", err, sandbox.QuotaExceeded)
	}
	if err := nameless(t, s, second.Digest, "other"); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("another image without a name: %v, want %s", err, sandbox.QuotaExceeded)
	}
	entries("after refusals", most)
	step(t, s, base.Digest, "they", 1) // has a cache of its own
	used = nil
	step(t, s, base.Digest, "me", 3)
	entries("when they are unused again", most+1)
}

// TestLeftAsMeasured: the rest of a build cache is the same number whether the removed images are subtracted or all is measured again.
func TestLeftAsMeasured(t *testing.T) {
	dir, s, base := storeWithBase(t, new([]string))
	first := step(t, s, base.Digest, "me", 1)
	second := step(t, s, first.Digest, "me", 2)
	third := step(t, s, first.Digest, "me", 3)
	finished(t, s, second.Digest, "me", "v1")
	fourth := step(t, s, third.Digest, "me", 4)
	if err := nameless(t, s, fourth.Digest, "one"); err != nil { // it has the file of the fourth
		t.Fatal(err)
	}
	for _, key := range []string{"shared", "of mine"} {
		req := image.CommitRequest{Base: base.Digest, CacheKey: key, User: "me", Layer: bytes.NewReader(tarball(t, file("shared", noise(1<<16), 0o644)))}
		if _, err := s.Commit(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.CachedFor(t.Context(), "they", "shared", 0); err != nil {
		t.Fatal(err)
	}
	cacheCopies(t, dir, third.Digest, 2)

	layout, err := archive.OpenLayout(filepath.Join(dir, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := index.Open(t.Context(), index.Options{
		Dir: dir, Lock: filepath.Join(dir, "lock"), Images: filepath.Join(dir, "images"), Layout: layout, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	meter := sizes.NewMeter(table, layout)
	ix, unlock, err := table.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	left, err := meter.Left(ix, "me")
	if err != nil {
		t.Fatal(err)
	}
	for removed := 0; ; removed++ {
		want, err := meter.In(ix, "me")
		if err != nil || left.Bytes != want.Left || left.Images != ix.Cached("me") {
			t.Errorf("after %d removals: %d bytes of %d images, %v, want %d of %d", removed, left.Bytes, left.Images, err, want.Left, ix.Cached("me"))
		}
		lower := ix.Below(func(r *index.Record) bool { return r.IsOf("me") && !r.Current })
		n := slices.IndexFunc(ix.Images, func(r index.Record) bool { return r.CountsFor("me") && !r.Current && !lower[r.Digest] })
		if n < 0 {
			if removed < 8 || left.Images != 0 {
				t.Errorf("%d removals, %d images left", removed, left.Images)
			}
			return
		}
		victim := ix.Images[n]
		if err := left.Remove(&victim); err != nil {
			t.Fatal(err)
		}
		ix.Leave(&victim, "me")
	}
}
