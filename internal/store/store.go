package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

//go:embed migrations/sqlite/*.sql
var migrations embed.FS

const maxReaders = 8

// Store is an open database. The package comment has the rules for all its methods.
type Store struct {
	writer  *sql.DB // one connection; its transactions are immediate
	reader  *sql.DB // read-only connections
	path    string  // without symbolic links
	keys    Keys    // nil without
	batches batches
	relief  relief

	advanced  func(generation int64) // may be nil
	committed broadcast.Broadcast    // sent after every commit of this process
}

// Open opens the database file at path; it creates and migrates it as needed. Before a
// migration it makes a copy, see [Copies]. The directory must exist. Only one process should
// open a database for writing; the writes of a second process wait for its transactions.
// Errors, with nothing changed: Unsupported if a newer program has changed the database;
// ErrDamaged.
func Open(ctx context.Context, path string, options ...Option) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	// SQLite would create the file readable by every user. The files -wal and -shm get its mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return open(ctx, path, prepare(path), options)
}

// OpenExisting opens the database file of a server that may be running. It neither creates
// nor migrates it, and its writes alternate with the writes of the server. Errors: NotFound
// if there is no database; Unsupported if its version is not the version of this program.
func OpenExisting(ctx context.Context, path string, options ...Option) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no database %s: no server has run with this state directory", path)
	} else if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return open(ctx, path, isCurrent, options)
}

// open opens the file after prepare has accepted it.
func open(ctx context.Context, path string, prepare func(context.Context, *sql.DB) error, options []Option) (_ *Store, err error) {
	s := &Store{}
	for _, o := range options {
		o(s)
	}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if s.writer, err = sql.Open("sqlite", dsn(s.path, "_txlock=immediate")); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s.writer.SetMaxOpenConns(1)
	if err := s.retry(func() error { return prepare(ctx, s.writer) }); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if s.reader, err = sql.Open("sqlite", dsn(s.path, "_pragma=query_only(1)")); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	s.reader.SetMaxOpenConns(maxReaders)
	s.reader.SetMaxIdleConns(maxReaders)
	return s, nil
}

// dsn names the database file with the settings of every connection and extra settings.
// Transactions that write must be immediate: a deferred transaction that becomes a
// write fails with busy at once, despite busy_timeout. With synchronous=FULL a commit
// returns when it is on the disk; with NORMAL a later commit would write it there. SQLite
// overwrites deleted rows, because they can contain secrets.
func dsn(path, extra string) string {
	file := (&url.URL{Path: path}).EscapedPath()
	return "file:" + file + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=secure_delete(1)&_pragma=foreign_keys(1)" +
		fmt.Sprintf("&_pragma=journal_size_limit(%d)&", logReserve) + extra
}

// isCurrent returns an error unless the database has the newest version.
func isCurrent(ctx context.Context, db *sql.DB) error {
	p, err := migrator(db)
	if err != nil {
		return err
	}
	have, want, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if have != want {
		return sandbox.Errorf(sandbox.Unsupported,
			"the database is of version %d and this program of version %d; use the program that the server runs", have, want)
	}
	return nil
}

// migrator returns the migrations for db; closing it would close db.
func migrator(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations/sqlite")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files)
}

// Close closes the database. No method may be called afterwards.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Check reports whether the database can be written, for health checks.
func (s *Store) Check(ctx context.Context) error {
	return s.note(ctx, func(context.Context, *sql.Tx) error { return nil })
}

// querier is the part of a database or a transaction that reads use.
type querier interface {
	// QueryContext runs a query that returns rows; see [sql.DB.QueryContext].
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	// QueryRowContext runs a query that returns at most one row; see [sql.DB.QueryRowContext].
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// nanos returns the stored form of a time; the zero time is 0.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// fromNanos reverses nanos. The result is in UTC and has no monotonic reading.
func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
