package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// made makes a database with some rows and returns its path.
func made(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if _, err := s.writer.ExecContext(t.Context(), "INSERT INTO users (id, name, created_at) VALUES ($1, $2, 1)", fmt.Sprint("u", i), fmt.Sprint(i, strings.Repeat("n", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// within does something to a database file that nobody has open.
func within(t *testing.T, path string, f func(db *sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn(path, ""))
	if err == nil {
		err = errors.Join(f(db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func users(t *testing.T, path string) (n int) {
	t.Helper()
	within(t, path, func(db *sql.DB) error { return db.QueryRow("SELECT count(*) FROM users").Scan(&n) })
	return n
}

func TestOpenRefusesANewerDatabase(t *testing.T) {
	path := made(t)
	within(t, path, func(db *sql.DB) error {
		_, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)")
		return err
	})
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), path)
	if sandbox.CodeOf(err) != sandbox.Unsupported || !strings.Contains(err.Error(), "99999") || !strings.Contains(err.Error(), "modbox restore") {
		t.Errorf("Open of a newer database = %v, want unsupported with its version and what to do", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the database was changed, or %v", err)
	}
}

func TestOpenCopiesBeforeAMigration(t *testing.T) {
	path := made(t)
	if copies, err := Copies(filepath.Dir(path)); err != nil || len(copies) != 0 {
		t.Errorf("copies of a new database: %v, %v", copies, err)
	}
	for round := range keptCopies + 2 {
		within(t, path, func(db *sql.DB) error {
			m, err := Migrator(db)
			if err != nil {
				return err
			}
			_, err = m.Down(t.Context())
			return err
		})
		s, err := Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		copies, err := Copies(filepath.Dir(path))
		if err != nil || len(copies) != min(round+1, keptCopies) {
			t.Fatalf("after %d migrations there are the copies %v, %v", round+1, copies, err)
		}
		if n := users(t, copies[0]); n != 2000 {
			t.Errorf("the copy has %d users, want 2000", n)
		}
		if info, err := os.Stat(copies[0]); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of the copy: %v, %v", info, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), CopiesDir, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("beside the copies: %v, %v", left, err)
	}
}

func TestOpenFindsDamagedPages(t *testing.T) {
	for name, at := range map[string]int64{"header": 0, "page": 40 * 4096} {
		path := made(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(strings.Repeat("\xa5", 4096)), at)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), path)
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: Open = %v, want ErrDamaged", name, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

func TestQuickCheckIsBounded(t *testing.T) {
	path := made(t)
	within(t, path, func(db *sql.DB) error {
		if err := quickCheck(t.Context(), db, time.Nanosecond); err != nil {
			t.Errorf("quickCheck out of time = %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := quickCheck(ended, db, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("quickCheck after its context ended = %v", err)
		}
		return nil
	})
}

func TestCopyOfADatabaseInUse(t *testing.T) {
	path := made(t)
	server, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	second, err := OpenExisting(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := second.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if n := users(t, to); n != 2000 {
		t.Errorf("the copy has %d users, want 2000", n)
	}
	if err := second.CopyTo(t.Context(), filepath.Join(t.TempDir(), "no", "such")); err == nil {
		t.Error("CopyTo a directory that is not there succeeded")
	}
}
