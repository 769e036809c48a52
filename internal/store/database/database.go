package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sync/singleflight"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/migrations"

	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

const maxReaders = 8

// DB is an open database.
type DB struct {
	engine  engine
	writer  *sql.DB // one connection
	reader  *sql.DB // read-only connections
	batches batches
	// timeout bounds the time that a write waits in the queue, and then its transaction.
	timeout time.Duration
	// lastSequence reads the last value of the column seq of a table, also when its row was deleted.
	lastSequence string
	metrics      commitMetrics
	relief       relief

	advanced func(generation int64) // may be nil
	// reached is the state of the database after the last write that is on the disk; before the first, [Postgres.Reached], or nil.
	reached atomic.Pointer[installation.Identity]
	others  func() (installation.Identity, error) // [Postgres.Others]
	host    writerHost                            // of PostgreSQL
	checks  singleflight.Group
	owner   *sandbox.Ownership // of shards

	committed broadcast.Broadcast // sent after every commit of this process, and of servers that own other parts of the shards
	released  broadcast.Broadcast // see ReleasedElsewhere
	unfollow  func()              // ends the connection that hears of the commits of others; nil for none
}

// Open opens the database file at path; it creates and migrates it as needed. Before a
// migration it makes a copy, see [Copies]. The directory must exist. Only one process should
// open a database for writing; the writes of a second process wait for its transactions.
// Errors, with nothing changed: Unsupported if a newer program has changed the database;
// ErrDamaged.
func Open(ctx context.Context, path string) (*DB, error) {
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
	return open(ctx, path, prepare(path))
}

// OpenExisting opens the database file of a server that may be running. It neither creates
// nor migrates it, and its writes alternate with the writes of the server. Errors: NotFound
// if there is no database; Unsupported if its version is not the version of this program.
func OpenExisting(ctx context.Context, path string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no database %s: no server has run with this state directory", path)
	} else if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return open(ctx, path, isCurrent)
}

// open opens the file after prepare has accepted it.
func open(ctx context.Context, path string, prepare func(context.Context, *sql.DB) error) (_ *DB, err error) {
	e := &sqliteEngine{}
	d := &DB{metrics: newCommitMetrics(), engine: e, timeout: writeTimeout, owner: sandbox.Own(sandbox.AllRanges), lastSequence: "SELECT seq FROM sqlite_sequence WHERE name = $1"}
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if e.path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if d.writer, err = openPool(dsn(e.path, "_txlock=immediate")); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	d.writer.SetMaxOpenConns(1)
	e.writer = d.writer
	if err := d.retry(func() error { return prepare(ctx, d.writer) }); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	if d.reader, err = openPool(dsn(e.path, "_pragma=query_only(1)")); err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	d.reader.SetMaxOpenConns(maxReaders)
	d.reader.SetMaxIdleConns(maxReaders)
	return d, nil
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
	p, err := Migrator(db)
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

// Migrator returns the migrations for db; closing it would close db.
func Migrator(db *sql.DB) (*goose.Provider, error) {
	files, err := migrations.SQLite()
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files)
}

// Close closes the database. No method may be called afterwards.
func (d *DB) Close() error {
	if d.unfollow != nil {
		d.unfollow()
	}
	var errs []error
	for _, db := range []*sql.DB{d.reader, d.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Reader is for reads outside of transactions.
func (d *DB) Reader() *sql.DB { return d.reader }

// Committed returns a channel that the next commit closes: of this process, and, for a server that owns a part of the shards, of the
// other servers. A notification of theirs may be missing; then a later one, or the next of some seconds, closes it. A caller that must
// miss no change calls it before it reads.
func (d *DB) Committed() <-chan struct{} { return d.committed.Wait() }

// Vacuum takes the text of deleted rows of tables out of the files of the database, but not out of the log of PostgreSQL.
func (d *DB) Vacuum(ctx context.Context, tables ...string) error {
	return d.engine.vacuum(ctx, tables)
}

// LastSequence returns the last value of the column seq of a table; 0 before the first row.
func (d *DB) LastSequence(ctx context.Context, table string) (seq int64, err error) {
	err = d.reader.QueryRowContext(ctx, d.lastSequence, table).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return seq, err
}

// Check reports whether the database can be written, for health checks. It waits no longer than ctx, and calls at the same time
// share a write.
func (d *DB) Check(ctx context.Context) error {
	checked := d.checks.DoChan("", func() (any, error) {
		return nil, d.Note(context.WithoutCancel(ctx), func(context.Context, *sql.Tx) error { return nil })
	})
	select {
	case result := <-checked:
		return result.Err
	case <-ctx.Done():
		return fmt.Errorf("the database has not answered yet: %w", ctx.Err())
	}
}
