package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// openBatches opens a store with a table of words.
func openBatches(t *testing.T) *DB {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "modbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "CREATE TABLE words (word TEXT NOT NULL UNIQUE)")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// put returns a write of a word.
func put(word string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO words (word) VALUES ($1)", word)
		return err
	}
}

// words returns what is committed.
func words(t *testing.T, s *DB) []string {
	t.Helper()
	list, err := Collect(t.Context(), s.reader, func(row Scanner) (w string, err error) { return w, row.Scan(&w) }, "SELECT word FROM words ORDER BY rowid")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// together has writes wait until the first, of "first", is under way, so that they
// share the next transaction in their order, and returns their errors.
func together(t *testing.T, s *DB, writes ...func() error) []error {
	t.Helper()
	release := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			<-release
			return put("first")(ctx, tx)
		}); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	errs := make([]error, len(writes))
	for i, w := range writes {
		wg.Go(func() { errs[i] = w() })
		synctest.Wait()
	}
	close(release)
	wg.Wait()
	return errs
}

func TestWritesShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		var writes []func() error
		want := []string{"first"}
		for i := range maxBatch {
			word := fmt.Sprint("w", i)
			want = append(want, word)
			writes = append(writes, func() error { return s.Write(t.Context(), put(word)) })
		}
		before := s.batches.syncs.Load()
		for i, err := range together(t, s, writes...) {
			if err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		}
		if got := s.batches.syncs.Load() - before; got != 2 {
			t.Errorf("%d writes waited for the disk %d times, want 2: for the first, and for those that came meanwhile", len(want), got)
		}
		if d := cmp.Diff(want, words(t, s)); d != "" {
			t.Errorf("words (-want +got):\n%s", d)
		}
	})
}

func TestABatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		var writes []func() error
		for i := range 2*maxBatch + 1 {
			writes = append(writes, func() error { return s.Write(t.Context(), put(fmt.Sprint(i))) })
		}
		before := s.batches.syncs.Load()
		for i, err := range together(t, s, writes...) {
			if err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		}
		if got := s.batches.syncs.Load() - before; got != 4 {
			t.Errorf("waited for the disk %d times, want 4", got)
		}
		if n := len(words(t, s)); n != len(writes)+1 {
			t.Errorf("%d words, want %d", n, len(writes)+1)
		}
	})
}

func TestAWriteFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		refused := errors.New("refused")
		errs := together(t, s,
			func() error { return s.Write(t.Context(), put("a")) },
			func() error {
				return s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					return errors.Join(put("undone")(ctx, tx), refused)
				})
			},
			func() error { return s.Write(t.Context(), put("a")) }, // which it sees
			func() (err error) {
				defer func() {
					if v := recover(); v != nil {
						err = fmt.Errorf("panic: %.10s", v)
					}
				}()
				return s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					_ = put("undone, too")(ctx, tx)
					panic("surprising")
				})
			},
			func() error { return s.Write(t.Context(), put("b")) },
		)
		var exists *sqlite.Error
		if errs[0] != nil || !errors.Is(errs[1], refused) || !errors.As(errs[2], &exists) || exists.Code() != sqlite3.SQLITE_CONSTRAINT_UNIQUE ||
			errs[3] == nil || errs[3].Error() != "panic: surprising" || errs[4] != nil {
			t.Errorf("errors: %q", errs)
		}
		if d := cmp.Diff([]string{"first", "a", "b"}, words(t, s)); d != "" {
			t.Errorf("words (-want +got):\n%s", d)
		}
	})
}

// SQLite rolls back the whole transaction if the disk is full, so no write may report success.
func TestALostTransactionFailsAllItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		var pages int
		if err := s.writer.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages); err != nil {
			t.Fatal(err)
		}
		if _, err := s.writer.ExecContext(t.Context(), fmt.Sprint("PRAGMA max_page_count=", pages+1)); err != nil {
			t.Fatal(err)
		}
		errs := together(t, s,
			func() error { return s.Write(t.Context(), put("a")) },
			func() error { return s.Write(t.Context(), put(strings.Repeat("x", 1<<20))) },
			func() error { return s.Write(t.Context(), put("b")) },
		)
		for i, err := range errs {
			var full *sqlite.Error
			if !errors.As(err, &full) || full.Code() != sqlite3.SQLITE_FULL {
				t.Errorf("write %d: %v, want that the disk is full", i, err)
			}
		}
		if d := cmp.Diff([]string{"first"}, words(t, s)); d != "" {
			t.Errorf("words (-want +got):\n%s", d)
		}
		if err := s.Write(t.Context(), put("c")); err != nil {
			t.Errorf("the next write: %v", err)
		}
	})
}

func TestAWriteWhoseTurnDoesNotComeIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		release, slow := make(chan struct{}), make(chan error)
		go func() {
			slow <- s.Write(t.Context(), func(context.Context, *sql.Tx) error {
				<-release
				return nil
			})
		}()
		synctest.Wait()
		if err := s.Write(t.Context(), put("late")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a write whose turn does not come: %v", err)
		}
		time.Sleep(time.Second) // of the bubble's clock: past the deadline of the first as well
		close(release)
		if err := <-slow; err == nil {
			t.Error("a write that took longer than its deadline was committed")
		}
		if err := s.Write(t.Context(), put("next")); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]string{"next"}, words(t, s)); d != "" {
			t.Errorf("words (-want +got):\n%s", d)
		}
	})
}

func TestOnlyNotesDoNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openBatches(t)
		synchronous := func(want int) func(context.Context, *sql.Tx) error {
			return func(ctx context.Context, tx *sql.Tx) error {
				var got int
				if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&got); err != nil || got != want {
					t.Errorf("synchronous is %d, %v, want %d", got, err, want)
				}
				return put(fmt.Sprint(time.Now(), want, len(words(t, s))))(ctx, tx)
			}
		}
		const normal, full = 1, 2
		for _, c := range []struct {
			write func(context.Context, func(context.Context, *sql.Tx) error) error
			want  int
		}{{s.Write, full}, {s.Note, normal}, {s.Write, full}} {
			if err := c.write(t.Context(), synchronous(c.want)); err != nil {
				t.Error(err)
			}
		}
		before := s.batches.syncs.Load()
		for _, err := range together(t, s,
			func() error { return s.Note(t.Context(), put("a note")) },
			func() error { return s.Write(t.Context(), put("a write")) }) {
			if err != nil {
				t.Error(err)
			}
		}
		if got := s.batches.syncs.Load() - before; got != 2 {
			t.Errorf("waited for the disk %d times, want 2", got)
		}
	})
}
