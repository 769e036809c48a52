package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
)

// Installation returns the id of the installation that the database belongs to, and its generation.
func (d *DB) Installation(ctx context.Context) (i installation.Identity, err error) {
	if err := d.reader.QueryRowContext(ctx, "SELECT id, generation FROM installation").Scan(&i.ID, &i.Generation); err != nil {
		return installation.Identity{}, fmt.Errorf("read installation: %w", err)
	}
	return i, nil
}

// PeekInstallation is [DB.Installation] of a database that is not open in any process,
// also on a full disk: it makes no file. Errors: NotFound when there is no database.
func PeekInstallation(ctx context.Context, path string) (i installation.Identity, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return i, sandbox.Errorf(sandbox.NotFound, "there is no database %s", path)
	}
	file := (&url.URL{Path: path}).EscapedPath()
	// In this mode SQLite uses memory in place of the file that processes share.
	db, err := sql.Open("sqlite", "file:"+file+"?mode=rw&_pragma=locking_mode(EXCLUSIVE)")
	if err != nil {
		return i, fmt.Errorf("read installation: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if err := db.QueryRowContext(ctx, "SELECT id, generation FROM installation").Scan(&i.ID, &i.Generation); err != nil {
		return i, fmt.Errorf("read installation: %w", asDamage(err))
	}
	return i, nil
}

// RenewInstallation assigns the database to a new installation and returns it. Files of the
// previous installation do not belong to the database any more. It also deletes the records
// of begun checkpoints: another database may know these checkpoints as complete.
func (d *DB) RenewInstallation(ctx context.Context) (installation.Identity, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	err := d.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE installation SET id = $1", hex.EncodeToString(id))
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM checkpoints_begun")
		}
		return err
	})
	if err != nil {
		return installation.Identity{}, fmt.Errorf("renew installation: %w", err)
	}
	return d.Installation(ctx)
}

// Advance raises the generation of the database and returns it with its installation. No other process gets the same generation.
func (d *DB) Advance(ctx context.Context) (installation.Identity, error) {
	if err := d.Write(ctx, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		return installation.Identity{}, fmt.Errorf("advance installation: %w", err)
	}
	return *d.reached.Load(), nil // not as the database has it now: other servers raise it as well
}

// OnAdvance registers f. After each write that raises the generation of the database, the
// store calls f with the new generation: after the commit, before the write returns, one
// call at a time. Call OnAdvance before the first write; f must not use the store.
func (d *DB) OnAdvance(f func(generation int64)) { d.advanced = f }

// advance raises the generation with a transaction.
func advance(ctx context.Context, tx *sql.Tx) (i installation.Identity, err error) {
	err = tx.QueryRowContext(ctx, "UPDATE installation SET generation = generation + 1 RETURNING id, generation").Scan(&i.ID, &i.Generation)
	if err != nil {
		return i, fmt.Errorf("advance installation: %w", err)
	}
	return i, nil
}
