package archive_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/sandbox"
)

const server = "server"

// source is a state in a directory.
func source(id sandbox.CheckpointID, dir string) archive.Source {
	return archive.Source{Owner: "owner", ID: id, Installation: server, Dir: dir}
}

// open opens the store at a URL.
func open(t *testing.T, url string, key *object.Key) (*archive.Store, *object.Store) {
	t.Helper()
	o, err := object.Open(t.Context(), url, object.Options{Create: true, Key: key, Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return archive.New(o, ballast.NewBudget(0)), o
}

// state makes the directory of a state, with holes.
func state(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	memory := make([]byte, 2*object.ChunkBytes+100)
	_, _ = rand.Read(memory) // never fails
	for name, data := range map[string][]byte{"manifest.json": []byte("{}"), "layer/upper.tar": []byte("files"), "empty": nil, "pages.img": memory} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "pages.img"), 6*object.ChunkBytes+1); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tree returns the files in a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		files[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func testStateComesBack(t *testing.T, url string, key *object.Key) {
	s, _ := open(t, url, key)
	dir, id := state(t), sandbox.NewCheckpointID()
	st, sent, err := s.Put(t.Context(), source(id, dir))
	if err != nil || sent.Sent == 0 || len(st.Files) != 4 {
		t.Fatalf("Put = %+v, %v", sent, err)
	}
	if _, sent, err := s.Put(t.Context(), source(id, dir)); err != nil || sent.Sent != 0 {
		t.Errorf("Put again = %+v, %v, want nothing sent", sent, err)
	}
	to := filepath.Join(t.TempDir(), "fetched")
	for range 2 { // the second time does nothing
		if err := s.Fetch(t.Context(), id, to, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !cmp.Equal(tree(t, dir), tree(t, to)) {
		t.Error("the fetched state is another")
	}
	if entries, err := os.ReadDir(filepath.Dir(to)); err != nil || len(entries) != 1 {
		t.Errorf("beside the state: %v, %v", entries, err)
	}
	if err := s.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := s.Fetch(t.Context(), id, to+"2", nil); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Fetch after Remove = %v, want code not_found", err)
	}
}

func TestStateComesBack(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testStateComesBack(t, "file://"+t.TempDir(), nil) })
	t.Run("encrypted", func(t *testing.T) { testStateComesBack(t, "file://"+t.TempDir(), &object.Key{1}) })
}

func TestS3StateComesBack(t *testing.T) {
	testStateComesBack(t, objecttest.Start(t).URL("archives"), &object.Key{1})
}

func TestAzureStateComesBack(t *testing.T) {
	testStateComesBack(t, objecttest.StartAzure(t).URL("archives"), &object.Key{1})
}

// TestDamagedStateIsNotFetched removes and damages objects.
func TestDamagedStateIsNotFetched(t *testing.T) {
	bucket := t.TempDir()
	s, _ := open(t, "file://"+bucket, nil)
	dir, id := state(t), sandbox.NewCheckpointID()
	st, _, err := s.Put(t.Context(), source(id, dir))
	if err != nil {
		t.Fatal(err)
	}
	var name string
	for _, f := range st.Files {
		if f.Name == "pages.img" {
			name = f.Blobs[1].String()
		}
	}
	blob := filepath.Join(bucket, "blobs", name[:2], name)
	parent := t.TempDir()
	for _, tt := range []struct {
		damage func() error
		want   sandbox.Code
	}{
		{func() error { return os.Truncate(blob, 100) }, sandbox.Invalid},
		{func() error { return os.Remove(blob) }, sandbox.NotFound},
		{func() error {
			return os.WriteFile(filepath.Join(bucket, archive.Prefix, string(id)), []byte("x"), 0o600)
		}, sandbox.Invalid},
	} {
		if err := tt.damage(); err != nil {
			t.Fatal(err)
		}
		if err := s.Fetch(t.Context(), id, filepath.Join(parent, "fetched"), nil); sandbox.CodeOf(err) != tt.want {
			t.Errorf("Fetch = %v, want code %s", err, tt.want)
		}
		if got := tree(t, parent); len(got) > 0 {
			t.Errorf("left: %v", got)
		}
	}
	// The local files are there: storing them again mends the state.
	if _, sent, err := s.Put(t.Context(), source(id, dir)); err != nil || sent.Sent != 1 {
		t.Errorf("Put = %+v, %v, want one blob sent", sent, err)
	}
	if err := s.Fetch(t.Context(), id, filepath.Join(parent, "fetched"), nil); err != nil {
		t.Error(err)
	}
}

// TestDamagedBlobIsSentAgain stores a state whose memory the bucket has, damaged, of another state.
func TestDamagedBlobIsSentAgain(t *testing.T) {
	bucket := t.TempDir()
	s, _ := open(t, "file://"+bucket, &object.Key{1})
	dir := state(t)
	st, _, err := s.Put(t.Context(), source(sandbox.NewCheckpointID(), dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range st.Files {
		if f.Name == "pages.img" {
			name := f.Blobs[1].String()
			if err := os.WriteFile(filepath.Join(bucket, "blobs", name[:2], name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	unverified := source(sandbox.NewCheckpointID(), dir)
	unverified.Unverified = true
	if _, sent, err := s.Put(t.Context(), unverified); err != nil || sent.Sent != 0 {
		t.Errorf("Put without a look at the blobs = %+v, %v, want nothing sent", sent, err)
	}
	id, to := sandbox.NewCheckpointID(), filepath.Join(t.TempDir(), "fetched")
	if _, sent, err := s.Put(t.Context(), source(id, dir)); err != nil || sent.Sent != 1 {
		t.Errorf("Put = %+v, %v, want one blob sent", sent, err)
	}
	if err := s.Fetch(t.Context(), id, to, nil); err != nil || !cmp.Equal(tree(t, dir), tree(t, to)) {
		t.Errorf("Fetch = %v, or another state", err)
	}
}

// TestFetchedStateHasHoles fetches a file of one byte for each blob.
func TestFetchedStateHasHoles(t *testing.T) {
	s, _ := open(t, "file://"+t.TempDir(), nil)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "layer.tar"), bytes.Repeat(append(make([]byte, object.ChunkBytes-1), 1), 4), 0o600); err != nil {
		t.Fatal(err)
	}
	id, to := sandbox.NewCheckpointID(), filepath.Join(t.TempDir(), "fetched")
	if _, _, err := s.Put(t.Context(), source(id, dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Fetch(t.Context(), id, to, nil); err != nil || !cmp.Equal(tree(t, dir), tree(t, to)) {
		t.Fatalf("Fetch = %v, or another state", err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(to, "layer.tar"), &st); err != nil || st.Blocks*512 > 1<<20 {
		t.Errorf("it takes %d bytes of the disk, %v, want only the blocks with data", st.Blocks*512, err)
	}
}

// TestFetchKeepsSpaceFree fetches to a disk on which more is to stay free than it has.
func TestFetchKeepsSpaceFree(t *testing.T) {
	s, o := open(t, "file://"+t.TempDir(), nil)
	id, parent := sandbox.NewCheckpointID(), t.TempDir()
	if _, _, err := s.Put(t.Context(), source(id, state(t))); err != nil {
		t.Fatal(err)
	}
	err := archive.New(o, ballast.NewBudget(1<<60)).Fetch(t.Context(), id, filepath.Join(parent, "fetched"), nil)
	if left := tree(t, parent); sandbox.CodeOf(err) != sandbox.DiskFull || len(left) > 0 {
		t.Errorf("Fetch = %v, and leaves %v, want disk_full and nothing", err, left)
	}
}

// TestInterruptedPutIsNoState ends the context in the middle; the next attempt sends the rest.
func TestInterruptedPutIsNoState(t *testing.T) {
	s, o := open(t, "file://"+t.TempDir(), nil)
	dir, id := state(t), sandbox.NewCheckpointID()
	if err := os.Symlink("pages.img", filepath.Join(dir, "zz")); err != nil { // no file of a state, after all others
		t.Fatal(err)
	}
	if _, _, err := s.Put(t.Context(), source(id, dir)); err == nil {
		t.Fatal("Put of a symbolic link succeeded")
	}
	if _, err := s.Get(t.Context(), id); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Get = %v, want code not_found", err)
	}
	if err := os.Remove(filepath.Join(dir, "zz")); err != nil {
		t.Fatal(err)
	}
	if _, sent, err := s.Put(t.Context(), source(id, dir)); err != nil || sent.Sent != 0 || sent.Blobs == 0 {
		t.Errorf("Put = %+v, %v, want nothing sent again", sent, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Put(ended, source(sandbox.NewCheckpointID(), dir)); !errors.Is(err, context.Canceled) {
		t.Errorf("Put after its context ended = %v", err)
	}
	n := 0
	if err := o.List(t.Context(), archive.Prefix, func(object.Object) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("%d descriptions, %v, want 1", n, err)
	}
}

// TestBlobsOfStatesAreInUse collects with and without a state.
func TestBlobsOfStatesAreInUse(t *testing.T) {
	s, o := open(t, "file://"+t.TempDir(), nil)
	dir, kept, gone := state(t), sandbox.NewCheckpointID(), sandbox.NewCheckpointID()
	for id, dir := range map[sandbox.CheckpointID]string{kept: dir, gone: state(t)} {
		if _, _, err := s.Put(t.Context(), source(id, dir)); err != nil {
			t.Fatal(err)
		}
	}
	known := func(id sandbox.CheckpointID) (bool, error) { return id == kept, nil }
	if ids, err := s.Strays(t.Context(), server, time.Now().Add(-time.Hour), known); err != nil || len(ids) != 0 {
		t.Errorf("young strays = %v, %v", ids, err)
	}
	if ids, err := s.Strays(t.Context(), "another", time.Now().Add(time.Hour), known); err != nil || len(ids) != 0 {
		t.Errorf("strays of another server = %v, %v", ids, err)
	}
	ids, err := s.Strays(t.Context(), server, time.Now().Add(time.Hour), known)
	if err != nil || len(ids) != 1 || ids[0] != gone {
		t.Fatalf("strays = %v, %v, want %s", ids, err, gone)
	}
	if err := s.Remove(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	c, err := o.Collect(t.Context(), 0, func(ctx context.Context) (map[object.Name]bool, error) {
		used := map[object.Name]bool{}
		return used, archive.Reach(ctx, o, used)
	})
	if err != nil || c.Removed != 3 || c.Kept == 0 {
		t.Errorf("Collect = %+v, %v, want the three blobs of memory removed", c, err)
	}
	to := filepath.Join(t.TempDir(), "fetched")
	if err := s.Fetch(t.Context(), kept, to, nil); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(tree(t, dir), tree(t, to)) {
		t.Error("the fetched state is another")
	}
}

// TestPartsOfWorkersStay fetches a state with parts to a server whose workers have them.
func TestPartsOfWorkersStay(t *testing.T) {
	s, _ := open(t, "file://"+t.TempDir(), nil)
	src := source(sandbox.NewCheckpointID(), state(t))
	part := filepath.Join(t.TempDir(), "agent.erofs")
	if err := os.WriteFile(part, []byte("agent"), 0o600); err != nil {
		t.Fatal(err)
	}
	src.Parts = []string{part}
	if _, _, err := s.Put(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "fetched")
	if err := s.Fetch(t.Context(), src.ID, to, nil); err != nil || !cmp.Equal(tree(t, src.Dir), tree(t, to)) {
		t.Errorf("Fetch = %v, or another state", err)
	}
}
