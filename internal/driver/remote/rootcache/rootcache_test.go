package rootcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

func open(t *testing.T, dir string) *Cache {
	t.Helper()
	c, err := Open(dir, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// image returns a root filesystem over others, and its digest.
func image(t *testing.T, seed byte, below ...string) ([]byte, string) {
	t.Helper()
	content := make([]byte, 64<<10)
	rand.NewChaCha8([32]byte{seed}).Read(content)
	if len(below) > 0 {
		f, err := os.Create(filepath.Join(t.TempDir(), "layer"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := stack.Write(f, below); err != nil {
			t.Fatal(err)
		}
		list, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		copy(content, list)
	}
	sum := sha256.Sum256(content)
	return content, "sha256:" + hex.EncodeToString(sum[:])
}

func (c *Cache) mustAdd(t *testing.T, content []byte, digest string) {
	t.Helper()
	if err := c.Add(digest, int64(len(content)), bytes.NewReader(content)); err != nil {
		t.Fatalf("Add() = %v", err)
	}
}

// wantLacks checks what the cache lacks of digests.
func (c *Cache) wantLacks(t *testing.T, digests []string, want ...string) {
	t.Helper()
	lacks, release, err := c.Hold(t.Context(), digests)
	if err != nil {
		t.Fatalf("Hold() = %v", err)
	}
	release()
	if !slices.Equal(lacks, want) {
		t.Errorf("Hold(%q) lacks %q, want %q", digests, lacks, want)
	}
}

func wantFiles(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "images"))
	if err != nil || len(entries) != want {
		t.Errorf("there are the files %v (%v), want %d", entries, err, want)
	}
	records, err := os.ReadDir(filepath.Join(dir, "verified"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if _, err := os.Stat(filepath.Join(dir, "images", r.Name()+".erofs")); err != nil {
			t.Errorf("the record that %s is undamaged stays without its file: %v", r.Name(), err)
		}
	}
}

// TestAddLies: nothing remains of a file that is another than its digest says, that breaks off, or is too long.
func TestAddLies(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	content, digest := image(t, 1)
	other, _ := image(t, 2)
	broken := errors.New("broken")
	for name, r := range map[string]io.Reader{
		"another": bytes.NewReader(other), "short": bytes.NewReader(content[1:]), "long": bytes.NewReader(append(content, 0)),
		"broken": io.MultiReader(bytes.NewReader(content[:100]), errReader{broken}),
	} {
		err := c.Add(digest, int64(len(content)), r)
		if name == "broken" != errors.Is(err, broken) || name != "broken" && sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("Add() of a file that is %s = %v", name, err)
		}
		wantFiles(t, dir, 0)
	}
	if err := c.Add("sha256:../x", 1, bytes.NewReader(content)); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Add() of no digest = %v", err)
	}
	c.wantLacks(t, []string{digest}, digest)
	c.mustAdd(t, content, digest)
	c.wantLacks(t, []string{digest})
	open(t, dir).wantLacks(t, []string{digest})
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestDamage: a file that has changed is removed when it is asked for.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	content, digest := image(t, 1)
	c.mustAdd(t, content, digest)
	path := c.Path(digest)
	if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, content[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	c.wantLacks(t, []string{digest}, digest)
	wantFiles(t, dir, 0)
	c.mustAdd(t, content, digest)
	c.wantLacks(t, []string{digest})
}

// TestLeastRecentlyUsedGoes: space is made from what nothing uses, also after a restart, and no more than is needed.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	var digests []string
	var below string
	for seed := range byte(5) {
		content, digest := image(t, seed)
		if seed == 4 { // over the first
			content, digest = image(t, seed, below)
		}
		if seed == 0 {
			below = digest
		}
		c.mustAdd(t, content, digest)
		digests = append(digests, digest)
	}
	for _, digest := range digests { // the order of uses
		c.wantLacks(t, []string{digest})
	}
	id := sandbox.NewID()
	path, _, err := c.Use(id, digests[4])
	if err != nil || path != c.Path(digests[4]) {
		t.Fatalf("Use() = %q, %v", path, err)
	}
	c = open(t, dir)
	_, release, err := c.Hold(t.Context(), digests[1:2])
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := c.removeOldest(); !removed || err != nil {
		t.Fatalf("removeOldest() = %v, %v", removed, err)
	}
	c.wantLacks(t, digests, digests[2]) // the first and the last are of a box, and the second is held
	c.wantLacks(t, digests[3:4])
	if removed, err := c.removeOldest(); !removed || err != nil {
		t.Fatalf("removeOldest() = %v, %v", removed, err)
	}
	if removed, err := c.removeOldest(); removed || err != nil {
		t.Errorf("removeOldest() removes what is in use: %v", err)
	}
	// More than there is.
	release()
	c.Unuse(id)
	free, err := ballast.Free(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reserve(2*free.Bytes+1<<40, 0); sandbox.CodeOf(err) != sandbox.DiskFull {
		t.Errorf("Reserve() of more than the disk has = %v", err)
	}
	wantFiles(t, dir, 3) // nothing is gained by their removal
}

// TestUseOfAFileThatWasNotCompared: after a start of the process no box gets a file that Hold has not looked at.
func TestUseOfAFileThatWasNotCompared(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	content, digest := image(t, 1)
	c.mustAdd(t, content, digest)
	if err := errors.Join(os.Chmod(c.Path(digest), 0o600), os.WriteFile(c.Path(digest), content[1:], 0o600)); err != nil {
		t.Fatal(err)
	}
	c = open(t, dir)
	if _, _, err := c.Use(sandbox.NewID(), digest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Use() = %v", err)
	}
}

// TestReserveInSum: what is reserved together does not exceed what is free, and is free again afterwards.
func TestReserveInSum(t *testing.T) {
	c := open(t, t.TempDir())
	free, err := ballast.Free(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	part := free.Usable() / 10
	var all sync.WaitGroup
	got := make(chan *ballast.Reservation, 100)
	for range cap(got) {
		all.Go(func() {
			if r, err := c.Reserve(part, free.Usable()/4); err == nil {
				got <- r
			} else if sandbox.CodeOf(err) != sandbox.DiskFull {
				t.Errorf("Reserve() = %v", err)
			}
		})
	}
	all.Wait()
	close(got)
	if n := len(got); n == 0 || n > 8 {
		t.Errorf("%d tenths of the disk were reserved beside a quarter", n)
	}
	for r := range got {
		r.Wrote(1)
		r.Release()
		r.Release()
	}
	if r, err := c.Reserve(part, 0); err != nil {
		t.Errorf("Reserve() afterwards = %v", err)
	} else {
		r.Release()
	}
}

// TestUse: a box uses all files of a stack or none, an undone use leaves the one before, and boxes that are gone use nothing.
func TestUse(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	base, baseDigest := image(t, 1)
	top, topDigest := image(t, 2, baseDigest)
	c.mustAdd(t, top, topDigest)
	id := sandbox.NewID()
	if _, _, err := c.Use(id, topDigest); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Use() without the base = %v", err)
	}
	c.mustAdd(t, base, baseDigest)
	for _, bad := range []sandbox.ID{"", "../x", sandbox.ID(strings.ToUpper(string(id)))} {
		if _, _, err := c.Use(bad, topDigest); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("Use() of box %q = %v", bad, err)
		}
	}
	if _, _, err := c.Use(id, topDigest); err != nil {
		t.Fatal(err)
	}
	_, undo, err := c.Use(id, baseDigest)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if r := c.boxes[id]; r.top != topDigest || c.files[topDigest].pins != 1 || c.files[baseDigest].pins != 1 {
		t.Errorf("after the undo it uses %+v", r)
	}
	c = open(t, dir)
	c.Retain([]sandbox.ID{id})
	if c.files[baseDigest].pins != 1 {
		t.Error("a box of the process before does not use its root filesystem")
	}
	c.Retain(nil)
	if c = open(t, dir); len(c.boxes) != 0 || c.files[baseDigest].pins != 0 {
		t.Error("a box that is gone uses something")
	}
}

// TestInterrupted: what a killed process has left is removed.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	for _, name := range []string{"images/.new-1", "images/x.erofs", "boxes/x", "boxes/" + string(sandbox.NewID()), "used/x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	for _, sub := range []string{"images", "boxes", "used"} {
		if entries, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(entries) != 0 {
			t.Errorf("in %s: %v, %v", sub, entries, err)
		}
	}
}
