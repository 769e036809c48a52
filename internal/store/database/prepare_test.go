package database

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// copyOf returns the pages of a copy of a database.
func copyOf(t *testing.T, s *DB) [][]byte {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := s.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	within(t, to, func(db *sql.DB) error {
		var found string
		err := db.QueryRow("PRAGMA integrity_check").Scan(&found)
		if found != "ok" {
			t.Errorf("integrity_check of the copy = %q", found)
		}
		return err
	})
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(data, 4096))
}

// TestCopiesDifferWhereTheDatabaseChanged: a backup in a bucket sends the other parts only once.
func TestCopiesDifferWhereTheDatabaseChanged(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "m.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	insert := func(table string, n int) {
		t.Helper()
		if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < $1) INSERT INTO "+table+" (b) SELECT randomblob(1000) FROM c", n)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	within(t, s.engine.(*sqliteEngine).path, func(db *sql.DB) error {
		_, err := db.Exec("CREATE TABLE first (i INTEGER PRIMARY KEY, b BLOB); CREATE TABLE second (i INTEGER PRIMARY KEY, b BLOB)")
		return err
	})
	insert("first", 1000)
	insert("second", 1000)
	before := copyOf(t, s)
	insert("first", 12)
	after, changed := copyOf(t, s), 0
	for i, page := range before {
		if !bytes.Equal(page, after[i]) {
			changed++
		}
	}
	if len(after) <= len(before) || changed == 0 || changed > 10 {
		t.Errorf("%d of %d pages changed, and there are %d now", changed, len(before), len(after))
	}
}

// steppedContext calls step when a copy asks between two steps whether it is canceled.
type steppedContext struct {
	context.Context
	step func()
}

func (c *steppedContext) Err() error {
	c.step()
	return c.Context.Err()
}

// TestCopyWhileRowsAreWritten copies a database, whose rows always have the same sum, while they change: in another goroutine, and
// between two steps of the copy, which therefore waits for no writer, and no writer for it.
func TestCopyWhileRowsAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	within(t, path, func(db *sql.DB) error {
		_, err := db.Exec(`CREATE TABLE accounts (i INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
			WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 10000) INSERT INTO accounts SELECT i, 0, randomblob(1500) FROM c`)
		return err
	})
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var writes atomic.Int64
	writers.Go(func() {
		for ctx.Err() == nil {
			if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + CASE i WHEN 1 THEN 1 ELSE -1 END WHERE i IN (1, 10000)")
				return err
			}); err != nil {
				t.Error(err)
				return
			}
			writes.Add(1)
		}
	})
	defer writers.Wait()
	defer cancel()
	var between atomic.Int64 // writes in the middle of copies
	steps := &steppedContext{Context: t.Context(), step: func() {
		if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE accounts SET n = n + CASE i WHEN 2 THEN 1 ELSE -1 END WHERE i IN (2, 9999)")
			return err
		}); err != nil {
			t.Errorf("write in the middle of a copy: %v", err)
			return
		}
		between.Add(1)
	}}
	for range 3 {
		to := filepath.Join(t.TempDir(), "copy.db")
		if err := s.CopyTo(steps, to); err != nil {
			t.Fatal(err)
		}
		within(t, to, func(db *sql.DB) error {
			var sum, copied int
			var found string
			err := errors.Join(db.QueryRow("SELECT sum(n) FROM accounts").Scan(&sum), db.QueryRow("SELECT n FROM accounts WHERE i = 2").Scan(&copied),
				db.QueryRow("PRAGMA integrity_check").Scan(&found))
			if sum != 0 || found != "ok" {
				t.Errorf("the copy has the sum %d and integrity_check says %q", sum, found)
			}
			if n := int(between.Load()); copied >= n {
				t.Errorf("the copy has %d of the %d writes in the middle of copies; want that some came after it had begun", copied, n)
			}
			return err
		})
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := s.CopyTo(ended, to); !errors.Is(err, context.Canceled) {
		t.Errorf("CopyTo after its context ended = %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(to), ".*")); err != nil || len(left) > 0 {
		t.Errorf("beside the copy: %v, %v", left, err)
	}
}

// TestDamagedDatabaseIsNotCopied damages a page of a database in use.
func TestDamagedDatabaseIsNotCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	within(t, path, func(db *sql.DB) error {
		_, err := db.Exec(`CREATE TABLE filler (i INTEGER PRIMARY KEY, b BLOB);
			WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1000) INSERT INTO filler SELECT i, randomblob(1000) FROM c;
			PRAGMA wal_checkpoint(TRUNCATE)`)
		return err
	})
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, 4096), (info.Size()/4096-20)*4096)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := s.CopyTo(t.Context(), filepath.Join(to, "copy.db")); !errors.Is(err, ErrDamaged) {
		t.Errorf("CopyTo = %v, want ErrDamaged", err)
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
