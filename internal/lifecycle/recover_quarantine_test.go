package lifecycle_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// exec changes the database. No server runs meanwhile.
func (e *env) exec(query string, args ...any) {
	e.t.Helper()
	db := storetest.Raw(e.t, e.dbPath)
	defer func() { _ = db.Close() }() // before the next server
	if _, err := db.ExecContext(e.t.Context(), query, args...); err != nil {
		e.t.Fatal(err)
	}
}

// quarantined returns the saved states in quarantine, as sandbox/checkpoint.
func (e *env) quarantined() (names []string) {
	e.t.Helper()
	list, err := quarantine.New(filepath.Join(filepath.Dir(e.cfg.CheckpointDir), "quarantine")).List()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, entry := range list {
		names = append(names, string(entry.Sandbox)+"/"+string(entry.Checkpoint))
	}
	return names
}

func (e *env) wantQuarantined(names ...string) {
	e.t.Helper()
	if diff := cmp.Diff(names, e.quarantined()); diff != "" {
		e.t.Errorf("in quarantine (-want +got):\n%s", diff)
	}
}

// copyDatabase returns what puts the database back as it is now. No server runs meanwhile.
func (e *env) copyDatabase() (putBack func()) {
	e.t.Helper()
	data, err := os.ReadFile(e.dbPath)
	if err != nil {
		e.t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(e.dbPath, data, 0o600); err != nil {
			e.t.Fatal(err)
		}
	}
}

func TestSavedStateWithoutARowIsQuarantinedAndComesBackWithIt(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	s.write("p", "/tmp/a", "before")
	saved := s.pause("p").Saved
	s.stop()
	putBack := e.copyDatabase()

	e.exec("DROP TRIGGER released_sandbox") // a database that never had the row has no trace of it
	e.exec("DELETE FROM sandboxes WHERE id = $1", sb.ID)
	s = e.start()
	s.Sweep()
	if names := e.saved(string(sb.ID)); len(names) != 0 {
		t.Errorf("in the checkpoint store: %v, want nothing", names)
	}
	e.wantQuarantined(string(sb.ID) + "/" + string(saved))
	s.Sweep()
	s.stop()
	e.wantQuarantined(string(sb.ID) + "/" + string(saved)) // also after another one

	putBack()
	s = e.start()
	e.wantQuarantined()
	s.resume("p")
	if got := s.readFile("p", "/tmp/a"); got != "before" {
		t.Errorf("the file after all that: %q", got)
	}
	s.Sweep()
	e.wantQuarantined()
}

func TestCheckpointThatALiveSandboxDoesNotHaveIsQuarantined(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	cp, err := s.Checkpoints().Create(t.Context(), e.caller, "p", "c")
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	e.exec("DROP TRIGGER released_checkpoint")
	e.exec("DELETE FROM checkpoints")
	s = e.start()
	s.Sweep()
	e.wantQuarantined(string(sb.ID) + "/" + string(cp.ID))
}

// Discarded states are removed although a crash left their files, and so are incomplete states.
func TestWhatRowsGaveUpIsNotQuarantined(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "p"})
	gone := s.run(lifecycle.CreateRequest{Name: "gone"})
	if _, err := s.Checkpoints().Create(t.Context(), e.caller, "p", "c"); err != nil {
		t.Fatal(err)
	}
	s.pause("p")
	s.pause("gone")
	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(e.cfg.CheckpointDir)); err != nil {
		t.Fatal(err)
	}
	s.resume("p")
	if err := s.Checkpoints().Delete(t.Context(), e.caller, "p", "c"); err != nil {
		t.Fatal(err)
	}
	s.destroy("gone")
	s.stop()
	if err := os.RemoveAll(e.cfg.CheckpointDir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(e.cfg.CheckpointDir, os.DirFS(kept)); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(e.cfg.CheckpointDir, string(sb.ID), string(sandbox.NewCheckpointID()))
	if err := os.Mkdir(part, 0o700); err != nil {
		t.Fatal(err)
	}
	if names := e.saved(string(sb.ID)); len(names) != 3 || len(e.saved(string(gone.ID))) != 1 {
		t.Fatalf("put back: %v", names)
	}
	s = e.start()
	s.Sweep()
	e.wantQuarantined()
	if names := append(e.saved(string(sb.ID)), e.saved(string(gone.ID))...); len(names) != 0 {
		t.Errorf("in the checkpoint store: %v, want nothing", names)
	}
}
