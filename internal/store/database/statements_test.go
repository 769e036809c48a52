package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// opened returns a pool with one connection and a table of words.
func opened(t *testing.T) (db *sql.DB, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "modbox.db")
	db, err := openPool(dsn(path, "_txlock=immediate"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE words (word TEXT NOT NULL UNIQUE)"); err != nil {
		t.Fatal(err)
	}
	return db, path
}

// idle returns the texts of the statements that the connection of db keeps.
func idle(t *testing.T, db *sql.DB) (texts []string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	err = conn.Raw(func(c any) error {
		for text := range c.(*statements).idle {
			texts = append(texts, text)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(texts)
	return texts
}

func TestStatementsAreKept(t *testing.T) {
	const insert, list = "INSERT INTO words VALUES ($1)", "SELECT word FROM words WHERE word > $1 ORDER BY word"
	db, _ := opened(t)
	for _, word := range []string{"a", "b", "c"} {
		if _, err := db.ExecContext(t.Context(), insert, word); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), insert, "a"); err == nil {
		t.Error("a word is there twice")
	}
	if got := idle(t, db); len(got) != 0 {
		t.Errorf("kept after a failure: %q", got)
	}
	if _, err := db.ExecContext(t.Context(), insert, "d"); err != nil {
		t.Errorf("after a failure: %v", err)
	}
	for range 2 {
		for from, want := range map[string]string{"": "[a b c d]", "b": "[c d]", "z": "[]"} {
			got, err := Collect(t.Context(), db, scanWord, list, from)
			if err != nil || fmt.Sprint(got) != want {
				t.Errorf("words after %q: %v, %v; want %s", from, got, err, want)
			}
		}
	}
	if got := idle(t, db); !slices.Equal(got, []string{insert, list}) {
		t.Errorf("kept: %q", got)
	}
}

func scanWord(row Scanner) (word string, err error) { return word, row.Scan(&word) }

// TestSameStatementTwiceAtOnce runs a query while rows of the same query are open, and leaves them half read.
func TestSameStatementTwiceAtOnce(t *testing.T) {
	db, _ := opened(t)
	if _, err := db.ExecContext(t.Context(), "INSERT INTO words VALUES ('a'), ('b')"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	const list = "SELECT word FROM words ORDER BY word"
	for range 2 {
		outer, err := tx.QueryContext(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		if !outer.Next() {
			t.Fatal(outer.Err())
		}
		inner, err := Collect(t.Context(), tx, scanWord, list)
		if err != nil || len(inner) != 2 {
			t.Errorf("inner query: %v, %v", inner, err)
		}
		var word string
		if !outer.Next() || outer.Scan(&word) != nil || word != "b" {
			t.Errorf("outer query after the inner: %q, %v", word, outer.Err())
		}
		if err := errors.Join(outer.Close(), outer.Close()); err != nil { //nolint:sqlclosecheck // the test is about closing twice
			t.Error(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := idle(t, db); !slices.Contains(got, list) {
		t.Errorf("kept: %q", got)
	}
}

// TestSettingsChangeEachTime changes a setting often: SQLite changes it while it prepares the statement.
func TestSettingsChangeEachTime(t *testing.T) {
	db, _ := opened(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	level := func() (n int) {
		if err := conn.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 3 {
		if err := hurry(t.Context(), conn); err != nil || level() != 1 {
			t.Fatalf("hurry: %v, level %d", err, level())
		}
		calm(conn)
		if level() != 2 {
			t.Fatalf("calm: level %d", level())
		}
	}
}

func TestKeptStatementsSeeChangesOfTheSchema(t *testing.T) {
	db, _ := opened(t)
	columns := func() []string {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM words") //nolint:rowserrcheck // no row is read
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	columns()
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE words ADD COLUMN language TEXT"); err != nil {
		t.Fatal(err)
	}
	if got := columns(); !slices.Equal(got, []string{"word", "language"}) {
		t.Errorf("columns: %q", got)
	}
	if _, err := db.ExecContext(t.Context(), "DROP TABLE words"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.QueryContext(t.Context(), "SELECT * FROM words"); err == nil { //nolint:rowserrcheck,sqlclosecheck // there are none
		t.Error("a table that was dropped has rows")
	}
}

func TestKeptStatementsAreBounded(t *testing.T) {
	db, path := opened(t)
	for n := range 2*maxStatements + 10 {
		var got int
		if err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d", n)).Scan(&got); err != nil || got != n {
			t.Fatalf("statement %d: %d, %v", n, got, err)
		}
	}
	if got := len(idle(t, db)); got == 0 || got > maxStatements {
		t.Errorf("%d statements are kept", got)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	// SQLite removes the log when the last connection closes, which it does not with an open statement.
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the database is open after Close: %v", err)
	}
}

func TestStatementOfAnEndedContext(t *testing.T) {
	const endless = "WITH RECURSIVE n(i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
	db, _ := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	var n int
	if err := db.QueryRowContext(ctx, endless, 1).Scan(&n); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if err := db.QueryRowContext(t.Context(), "SELECT 7").Scan(&n); err != nil || n != 7 {
		t.Errorf("after it: %d, %v", n, err)
	}
}
