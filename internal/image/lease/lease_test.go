package lease_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image/lease"
)

const digest = "sha256:0123"

// TestSince: uses of this process and holds of any process count from the moment they happen,
// although the time of the file is less precise.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	own, other := lease.New(dir, time.Hour), lease.New(dir, time.Hour)
	before := time.Now()
	if own.Since(digest, before) || !own.Last(digest).IsZero() {
		t.Error("an image was used before its first use")
	}
	if err := own.Note(digest); err != nil {
		t.Fatal(err)
	}
	if !own.Since(digest, before) || !other.Since(digest, before) {
		t.Error("the first use does not count")
	}
	asked := time.Now()
	if own.Since(digest, asked) || other.Since(digest, asked) {
		t.Error("an earlier use counts as later")
	}
	if err := own.Note(digest); err != nil {
		t.Fatal(err)
	}
	if !own.Since(digest, asked) {
		t.Error("a use that was not written does not count in its process")
	}
	if other.Since(digest, asked) {
		t.Error("each use writes the file")
	}
	release, err := own.Hold(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if !other.InUse(digest) {
		t.Error("a hold of another process does not count")
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if other.InUse(digest) || !other.Since(digest, asked) {
		t.Error("the end of a hold of another process does not count as a use")
	}
}

// TestHolds: several callers hold an image at the same time, until the last of them releases it.
func TestHolds(t *testing.T) {
	dir := t.TempDir()
	l := lease.New(dir, time.Hour)
	first, err := l.Hold(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	second, err := lease.New(dir, time.Hour).Hold(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	for i, release := range []func() error{first, second} {
		if !l.InUse(digest) {
			t.Errorf("after %d releases nobody holds the image", i)
		}
		if err := release(); err != nil {
			t.Error(err)
		}
		_ = release() // has no effect
	}
	if l.InUse(digest) {
		t.Error("the image is held after the last release")
	}
}
