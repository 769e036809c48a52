package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteEngine is SQLite, in one file.
type sqliteEngine struct {
	path   string  // without symbolic links
	writer *sql.DB // one connection; its transactions are immediate
}

func (e *sqliteEngine) begin(ctx context.Context, lazy bool) (*transaction, error) {
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &transaction{end: func() { _ = conn.Close() }} // returns it to the pool; it fails only if it is there already
	if lazy {
		if err := hurry(ctx, conn); err != nil {
			t.end()
			return nil, err
		}
		t.end = func() {
			calm(conn)
			_ = conn.Close()
		}
	}
	if t.tx, err = conn.BeginTx(ctx, nil); err != nil {
		t.end()
		return nil, err
	}
	release := t.end
	t.end = func() {
		_ = t.tx.Rollback() // does nothing after a commit
		release()
	}
	return t, nil
}

// hurry sets conn to commit without waiting for the disk.
func hurry(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "PRAGMA synchronous=NORMAL")
	return err
}

// calm reverses hurry; if it cannot, it closes conn, because a new connection waits for the disk.
func calm(conn *sql.Conn) {
	if _, err := conn.ExecContext(context.Background(), "PRAGMA synchronous=FULL"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

func (e *sqliteEngine) persist(_ context.Context, f func() error) error { return f() }

func (e *sqliteEngine) passing(error) bool { return false }

func (e *sqliteEngine) committed(_ context.Context, _ string, failed error) error { return failed }

func (e *sqliteEngine) explain(err error) error { return err }

func (e *sqliteEngine) isFull(err error) bool {
	var reason *sqlite.Error
	if !errors.As(err, &reason) {
		return false
	}
	switch reason.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return true
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		var st unix.Statfs_t
		if unix.Statfs(filepath.Dir(e.path), &st) != nil {
			return false
		}
		return int64(st.Bavail)*st.Bsize < nothingFree || st.Files > 0 && st.Ffree == 0
	}
	return false
}

func (e *sqliteEngine) reserveLog() error {
	f, err := os.OpenFile(e.path+"-wal", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) { // before the first write
		return nil
	}
	if err != nil {
		return fmt.Errorf("reserve log: %w", err)
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, logReserve)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reserve log: %w", err)
	}
	return nil
}

func (e *sqliteEngine) copyTo(ctx context.Context, path string) error {
	return copyTo(ctx, e.path, path)
}

func (e *sqliteEngine) vacuum(ctx context.Context, _ []string) error {
	if _, err := e.writer.ExecContext(ctx, "VACUUM"); err != nil {
		return fmt.Errorf("take clear text out of the database: %w", err)
	}
	var busy, frames, done int
	if err := e.writer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &done); err != nil || busy != 0 {
		return fmt.Errorf("take clear text out of the database's log: busy %d: %w", busy, err)
	}
	return nil
}

func (e *sqliteEngine) bytes() (n int64) {
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(e.path + suffix); err == nil {
			n += info.Size()
		}
	}
	return n
}
