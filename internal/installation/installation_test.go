package installation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// Of the marks of servers with parts the newest counts, and a server removes the marks of servers that have had its ranges.
func TestMarksOfParts(t *testing.T) {
	dir := t.TempDir()
	write := func(r sandbox.Ranges, generation int64) *Marks {
		t.Helper()
		m, err := Write(Mark{Identity: Identity{ID: "0123", Generation: generation}, StateDir: dir}, r, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	want := func(generation int64, names ...string) {
		t.Helper()
		if m, found, err := Read(dir); !found || err != nil || m.Generation != generation || m.ID != "0123" || m.StateDir != dir {
			t.Errorf("Read() = %+v, %v, %v, want generation %d", m, found, err, generation)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range found {
			found[i] = filepath.Base(found[i])
		}
		if !slices.Equal(found, names) {
			t.Errorf("there are the marks %q, want %q", found, names)
		}
	}
	if _, found, err := Read(dir); found || err != nil {
		t.Errorf("Read() without a mark = %v, %v", found, err)
	}
	halves, quarters := sandbox.Parts(2), sandbox.Parts(4)
	write(sandbox.AllRanges, 1)
	lower, upper := write(halves[0], 2), write(halves[1], 3)
	want(3, "installation", "installation.0", "installation.8")
	if err := lower.Advance(5); err != nil {
		t.Error(err)
	}
	want(5, "installation", "installation.0", "installation.8")
	if err := upper.Advance(4); err != nil {
		t.Error(err)
	}
	want(5, "installation", "installation.0", "installation.8")
	write(quarters[0], 6)
	write(quarters[1], 7)
	want(7, "installation", "installation.0", "installation.4", "installation.8")
	write(halves[0], 8)
	want(8, "installation", "installation.0", "installation.8")
	dirs := Dirs{State: dir, Run: dir}
	marks, err := dirs.Marks()
	if err != nil {
		t.Fatal(err)
	}
	if err := dirs.Check(marks, Identity{ID: "0123", Generation: 7}); err == nil || !strings.Contains(err.Error(), "8 was reached") {
		t.Errorf("Check() of an older database = %v", err)
	}
	if err := dirs.Check(marks, Identity{ID: "0123", Generation: 8}); err != nil {
		t.Errorf("Check() = %v", err)
	}
	write(sandbox.AllRanges, 9)
	want(9, "installation")
	if err := os.WriteFile(filepath.Join(dir, "installation.4"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "installation.4 is damaged") {
		t.Errorf("Read() of a damaged mark = %v", err)
	}
}
