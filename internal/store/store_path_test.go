package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/store"
)

// SQLite has its files beside the file that a symbolic link leads to.
func TestDatabaseBehindSymbolicLink(t *testing.T) {
	real, link := filepath.Join(t.TempDir(), "real.db"), filepath.Join(t.TempDir(), "modbox.db")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	check := func(s *store.Store) {
		t.Helper()
		change := audit.Change{Begun: []audit.Intent{{ID: "one", Record: []byte("{}")}}}
		if _, err := s.Audit.ChangeAudit(t.Context(), &change); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(real + "-wal"); err != nil {
			t.Error(err)
		}
	}
	first, err := store.Open(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	check(first)
	s, err := store.OpenExisting(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check(s)
}
