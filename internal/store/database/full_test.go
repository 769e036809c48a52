package database

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
)

// tiny opens a store on a file system of a few megabytes, which a file fills.
func tiny(t *testing.T) (s *DB, full string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts a file system, which takes root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	s, err := Open(t.Context(), filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, filepath.Join(dir, "filler")
}

// fill takes all space of the file system.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// grow writes a row that needs 1 MiB.
func grow(s *DB) error {
	return s.Write(context.Background(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS filler (b BLOB)")
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO filler VALUES (zeroblob($1))", 1<<20)
		}
		return err
	})
}

func TestWritesGoOnInTheReservedLogWhenTheDiskIsFull(t *testing.T) {
	s, full := tiny(t)
	if err := s.ReserveLog(); err != nil {
		t.Fatal(err)
	}
	fill(t, full)
	done := 0
	var err error
	for ; done < 100 && err == nil; done++ {
		err = grow(s)
	}
	if done < 5 || !errors.Is(err, sandbox.ErrNoSpace) || sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatalf("after %d writes: %v, want some to work and then code unavailable", done, err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := grow(s); err != nil {
		t.Errorf("with space again: %v", err)
	}
}

func TestWriteIsTriedAgainWhenSpaceWasMade(t *testing.T) {
	s, full := tiny(t)
	fill(t, full)
	released := 0
	s.OnFull(func() bool {
		released++
		if released == 1 {
			return os.Truncate(full, 0) == nil
		}
		return false
	})
	for range 20 { // more than the log has at once
		if err := grow(s); err != nil {
			t.Fatalf("with space that can be made: %v", err)
		}
	}
	if released != 1 {
		t.Errorf("space was made %d times, want once", released)
	}
}

func TestSpaceIsMadeOnceForWritesThatFailTogether(t *testing.T) {
	r := &relief{}
	if r.since(r.count()) {
		t.Error("without anything to give up there is space")
	}
	n := 0
	r.release = func() bool {
		n++
		if !r.mu.TryLock() {
			t.Error("release is called under the lock")
			return true
		}
		r.mu.Unlock()
		return true
	}
	before := r.count()
	for range 3 {
		if !r.since(before) {
			t.Error("no space")
		}
	}
	if n != 1 {
		t.Errorf("released %d times, want once", n)
	}
}

// TestOneCallMakesSpaceAtATime: writes that find the disk full while space is being made wait for that. After a call that made
// none each of them calls.
func TestOneCallMakesSpaceAtATime(t *testing.T) {
	for _, makes := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const writes = 3
			r, calls, atOnce := &relief{}, 0, 0
			r.release = func() bool {
				if atOnce++; atOnce > 1 {
					t.Error("two calls at once")
				}
				calls++
				time.Sleep(time.Second)
				atOnce--
				return makes
			}
			before := r.count()
			var all sync.WaitGroup
			for range writes {
				all.Go(func() {
					if r.since(before) != makes {
						t.Errorf("since = %v, want %v", !makes, makes)
					}
				})
			}
			all.Wait()
			if want := map[bool]int{true: 1, false: writes}[makes]; calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
		})
	}
}
