package lifecycle_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
	outputs "github.com/modbox/modbox/internal/output"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestStoredOutput loses the files with the output of executions. It counts and is limited as before, is read from the object store, and is removed
// there with its execution.
func TestStoredOutput(t *testing.T) {
	e := newEnv(t)
	bucket := t.TempDir()
	e.output = outputs.Config{URL: "file://" + bucket, Store: true, Installation: "i"}
	stored := func() int {
		found, err := filepath.Glob(filepath.Join(bucket, "output", "i", "*", "*.00000"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	var list []sandbox.Execution
	for range 3 {
		list = append(list, s.ended(s.startExecution("a", shell("head -c 100000 /dev/zero")).ID))
	}
	eventually(t, "all output is stored", func() bool {
		for _, x := range list {
			if row, err := s.store.Execution(t.Context(), x.ID); err != nil || row.StoredBy != "i" {
				return false
			}
		}
		return stored() == len(list)
	})
	s.kill()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(e.dbPath), "streams")); err != nil {
		t.Fatal(err)
	}

	e.cfg.StreamTotalBytes = 250_000
	s = e.start()
	s.Purge()
	if _, err := s.Executions().Get(t.Context(), s.caller, list[0].ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the execution that ended first, beyond the limit: %v, want not_found", err)
	}
	eventually(t, "its output is removed", func() bool { return stored() == 2 })
	if n := s.Executions().StreamBytes(e.caller.Workspace); n < 200_000 || n > 250_000 {
		t.Errorf("the output counts as %d bytes, want that of two executions", n)
	}
	if _, _, err := s.Executions().OpenStream(t.Context(), string(list[0].Stdout.ID), 0, false); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("output of a deleted execution: %v, want not_found", err)
	}
	for _, x := range list[1:] {
		if got := s.read(x.Stdout.ID, 99_990); len(got) != 10 {
			t.Errorf("the end of the output has %d bytes, want 10", len(got))
		}
		if got := s.read(x.Stderr.ID, 0); got != "" {
			t.Errorf("the other output is %q", got)
		}
	}
	s.Purge()
	if n := s.Executions().StreamBytes(e.caller.Workspace); n > 250_000 {
		t.Errorf("fetched output counts as %d bytes", n)
	}
	s.store.faults.on(func(_ int, call string) error { // a reader fetches the output between the removal of its file and of the record
		if call == "store.DeleteExecution" && s.read(list[1].Stdout.ID, 99_990) == "" {
			t.Error("the output cannot be read until the record is deleted")
		}
		return nil
	}, nil)
	if err := s.Executions().Forget(t.Context(), s.caller, list[1].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(e.dbPath), "streams", string(list[1].Stdout.ID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the output of a forgotten execution is on the disk: %v", err)
	}
	eventually(t, "the output of a forgotten execution is removed", func() bool { return stored() == 1 })
}
