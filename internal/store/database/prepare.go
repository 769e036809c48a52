package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// CopiesDir is the directory, beside the database, of the copies that Open makes before migrations.
	CopiesDir = "backups"
	// keptCopies is the number of such copies that stay: the newest.
	keptCopies = 3
	// checkTime bounds the search for damaged pages at a start. It reads some 500 MB a second.
	checkTime = 20 * time.Second

	// copyStep is the number of pages that are copied before the copy can be canceled.
	copyStep = 1024

	copyPrefix, copySuffix = "before-migration-", ".db"
)

// ErrDamaged is wrapped by errors about a database with damaged pages.
var ErrDamaged = errors.New("the database is damaged")

// prepare makes a database ready for [Open]. Before it writes anything, it refuses a
// database that is damaged or that a newer program has changed. It migrates an older
// database after it has made a copy.
func prepare(path string) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error {
		p, err := Migrator(db)
		if err != nil {
			return err
		}
		have, want, err := p.GetVersions(ctx)
		if err != nil {
			return asDamage(err)
		}
		if have > want {
			return sandbox.Errorf(sandbox.Unsupported,
				"a newer modbox has used the database: it is of version %d, and this program knows versions up to %d. Start the newer program again; or go back to the state before the upgrade with \"modbox restore\" and a backup, or the copy in %s that was made then",
				have, want, filepath.Join(filepath.Dir(path), CopiesDir))
		}
		if err := quickCheck(ctx, db, checkTime); err != nil {
			return err
		}
		if have == want {
			return nil
		}
		if have > 0 {
			if err := copyBefore(ctx, path, have); err != nil {
				return fmt.Errorf("copy the database before its migration: %w", err)
			}
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate: %w", asDamage(err))
		}
		return nil
	}
}

// quickCheck searches for damaged pages for at most checkTime. Errors: ErrDamaged.
func quickCheck(ctx context.Context, db *sql.DB, most time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var found string
	err := db.QueryRowContext(bounded, "PRAGMA quick_check(1)").Scan(&found)
	switch {
	case err == nil && found == "ok":
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s", ErrDamaged, strings.ReplaceAll(found, "\n", " "))
	case ctx.Err() == nil && bounded.Err() != nil: // the database is large, and the pages read so far are intact
		return nil
	}
	return asDamage(err)
}

// asDamage adds ErrDamaged to an error of SQLite that reports a damaged file.
func asDamage(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) {
		if code := e.Code() & 0xff; code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return err
}

// copyBefore makes a copy of a database before its migration from a version, and removes the oldest copies.
func copyBefore(ctx context.Context, path string, version int64) error {
	dir := filepath.Join(filepath.Dir(path), CopiesDir)
	if err := durable.MkdirAll(dir); err != nil {
		return err
	}
	name := fmt.Sprintf("%s%s-v%d%s", copyPrefix, time.Now().UTC().Format("20060102T150405.000Z"), version, copySuffix)
	if err := copyTo(ctx, path, filepath.Join(dir, name)); err != nil {
		return err
	}
	names, err := Copies(filepath.Dir(path))
	if err != nil {
		return err
	}
	var errs []error
	for _, old := range names[min(len(names), keptCopies):] {
		errs = append(errs, os.Remove(old))
	}
	return errors.Join(errs...)
}

// Copies returns the paths of the copies that Open made before migrations of the database in
// a state directory, the newest first.
func Copies(stateDir string) ([]string, error) {
	dir := filepath.Join(stateDir, CopiesDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), copyPrefix) && strings.HasSuffix(e.Name(), copySuffix) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(names) // by time
	slices.Reverse(names)
	return names, nil
}

// CopyTo writes a consistent copy of the database to a new file that only this user can
// read. This and other processes may use the database meanwhile. If CopyTo returns nil, the
// complete copy is on the disk; else there is no copy. Errors: Unsupported for PostgreSQL.
func (d *DB) CopyTo(ctx context.Context, path string) error {
	return d.engine.copyTo(ctx, path)
}

func copyTo(ctx context.Context, from, path string) (err error) {
	// On a connection of its own: other writes wait for the writer.
	// With _error_rc, the error of a copy does not have the text of an earlier error.
	db, err := sql.Open("sqlite", dsn(from, "_error_rc=1"))
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	// SQLite accepts an empty or missing file, and would create it readable by every user.
	f, err := os.CreateTemp(filepath.Dir(path), ".copy-*")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err := copyPages(ctx, db, f.Name()); err != nil {
		return fmt.Errorf("copy the database: %w", asDamage(err))
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(path))
}

// copyPages copies all pages of a database, as of one time, to the same places of an empty file: the copies of a database that
// changed little differ little. It does not delay other connections. db is closed afterwards: its transaction stays open.
func copyPages(ctx context.Context, db *sql.DB, to string) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// While its connection reads, the copy has the database of that time; else it would begin again after each change. The
	// transaction is deferred because SQLite copies nothing in a transaction that writes.
	if _, err := conn.ExecContext(ctx, "BEGIN DEFERRED"); err != nil {
		return err
	}
	// The copy does not look at the pages: backups of a damaged database would displace good backups.
	var found string
	if err := conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("%w: %s", ErrDamaged, strings.ReplaceAll(found, "\n", " "))
	}
	return conn.Raw(func(c any) error {
		source, ok := c.(interface {
			NewBackup(uri string) (*sqlite.Backup, error)
		})
		if !ok {
			return fmt.Errorf("a connection %T cannot copy its database", c)
		}
		// After a failure nobody uses the file.
		b, err := source.NewBackup("file:" + (&url.URL{Path: to}).EscapedPath() + "?_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)")
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			if more, err = b.Step(copyStep); ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
		return cmp.Or(err, b.Finish())
	})
}
