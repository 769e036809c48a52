package quarantine_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
)

// state is a state directory with a quarantine.
type state struct {
	*testing.T
	dir string
	*quarantine.Store
}

func newState(t *testing.T) *state {
	dir := t.TempDir()
	return &state{t, dir, quarantine.New(filepath.Join(dir, "quarantine"))}
}

// save makes a saved state with a file of that many bytes and returns its path.
func (s *state) save(sb sandbox.ID, cp sandbox.CheckpointID, bytes int) string {
	s.Helper()
	dir := filepath.Join(s.dir, "checkpoints", string(sb), string(cp))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "pages"), make([]byte, bytes), 0o600)); err != nil {
		s.Fatal(err)
	}
	return dir
}

func (s *state) put(sb sandbox.ID, cp sandbox.CheckpointID, bytes int) {
	s.Helper()
	if err := s.Put(s.save(sb, cp, bytes), sb, cp, "no row has it"); err != nil {
		s.Fatal(err)
	}
}

func (s *state) ids() (ids []string) {
	s.Helper()
	list, err := s.List()
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	return ids
}

func (s *state) want(ids ...string) {
	s.Helper()
	if diff := cmp.Diff(ids, s.ids()); diff != "" {
		s.Errorf("in quarantine (-want +got):\n%s", diff)
	}
}

func TestSavedStatesGoAndComeBack(t *testing.T) {
	s := newState(t)
	s.want()
	path := s.save("sb", "cp", 8<<10)
	if err := s.Put(path, "sb", "cp", "no row has it"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was put in quarantine is still at its place: %v", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %v, %v, want one", list, err)
	}
	if e := list[0]; e.Sandbox != "sb" || e.Checkpoint != "cp" || e.From != path || e.Reason != "no row has it" || e.At.IsZero() || e.SizeBytes < 8<<10 {
		t.Errorf("entry = %+v", e)
	}
	s.save("sb", "cp", 1)
	if err := s.Return("sb-cp", path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Return to where something is = %v, want ErrExist", err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := s.Return("sb-cp", path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(path, "pages")); err != nil || info.Size() != 8<<10 {
		t.Errorf("what came back: %v, %v", info, err)
	}
	s.want()
}

func TestRemove(t *testing.T) {
	s := newState(t)
	s.put("sb", "cp", 1)
	for _, id := range []string{"", ".", "..", "../checkpoints", "other"} {
		if err := s.Remove(id); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Remove(%q) = %v, want not_found", id, err)
		}
	}
	if err := s.Remove("sb-cp"); err != nil {
		t.Fatal(err)
	}
	s.want()
}

func TestQuarantineIsBounded(t *testing.T) {
	s := newState(t)
	s.put("a", "1", 100<<10)
	s.put("b", "2", 100<<10)
	s.put("c", "3", 100<<10)
	now := time.Now()
	for _, tc := range []struct {
		limits quarantine.Limits
		at     time.Time
		want   []string
	}{
		{quarantine.Limits{}, now.Add(10000 * time.Hour), []string{"a-1", "b-2", "c-3"}},
		{quarantine.Limits{MaxAge: time.Hour, MaxBytes: 1 << 30}, now, []string{"a-1", "b-2", "c-3"}},
		{quarantine.Limits{MaxBytes: 250 << 10}, now, []string{"b-2", "c-3"}},
		{quarantine.Limits{MaxAge: time.Hour}, now.Add(2 * time.Hour), nil},
	} {
		if _, err := s.Trim(t.Context(), tc.limits, tc.at); err != nil {
			t.Fatal(err)
		}
		s.want(tc.want...)
	}
}

func TestTheOldestGoFirst(t *testing.T) {
	s := newState(t)
	for _, id := range []sandbox.ID{"a", "b", "c"} {
		s.put(id, "1", 100<<10)
	}
	removed, err := s.RemoveOldest(t.Context(), 150<<10)
	if err != nil || len(removed) != 2 {
		t.Fatalf("RemoveOldest = %v, %v, want two", removed, err)
	}
	s.want("c-1")
	if removed, err := s.RemoveOldest(t.Context(), 0); err != nil || len(removed) != 0 {
		t.Errorf("RemoveOldest(0) = %v, %v, want none", removed, err)
	}
}

// A server that ends does not wait for the removal of many large saved states.
func TestRemovalsStopWithTheContext(t *testing.T) {
	s := newState(t)
	for _, id := range []sandbox.ID{"a", "b"} {
		s.put(id, "1", 1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if removed, err := s.RemoveOldest(ctx, 1<<30); !errors.Is(err, context.Canceled) || len(removed) != 0 {
		t.Errorf("RemoveOldest = %v, %v, want none, and context.Canceled", removed, err)
	}
	if removed, err := s.Trim(ctx, quarantine.Limits{MaxBytes: 1}, time.Now()); !errors.Is(err, context.Canceled) || len(removed) != 0 {
		t.Errorf("Trim = %v, %v, want none, and context.Canceled", removed, err)
	}
	s.want("a-1", "b-1")
}

// Remains of a crash: a note without a saved state, an interrupted removal, and a note that was
// only half written.
func TestWhatACrashLeaves(t *testing.T) {
	s := newState(t)
	s.put("sb", "cp", 1)
	dir := filepath.Join(s.dir, "quarantine")
	if err := errors.Join(
		os.Mkdir(filepath.Join(dir, "note-only"), 0o700), os.WriteFile(filepath.Join(dir, "note-only", "entry.json"), []byte("{}"), 0o600),
		os.MkdirAll(filepath.Join(dir, "gone-1.part", "saved"), 0o700),
		os.WriteFile(filepath.Join(dir, "sb-cp", "entry.json"), []byte(`{"sand`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	s.want("sb-cp")
	if _, err := s.Trim(t.Context(), quarantine.Limits{MaxAge: time.Hour}, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.want("sb-cp")
	if _, err := os.Stat(filepath.Join(dir, "gone-1.part")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is left of a removal stays: %v", err)
	}
	// The same saved state is put there again after the note was.
	s.put("note", "only", 1)
	s.want("sb-cp", "note-only")
}
