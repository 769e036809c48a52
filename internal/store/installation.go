package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// Installation returns which installation the database is of, and how far it has come.
func (s *Store) Installation(ctx context.Context) (i sandbox.Installation, err error) {
	if err := s.reader.QueryRowContext(ctx, "SELECT id, generation FROM installation").Scan(&i.ID, &i.Generation); err != nil {
		return sandbox.Installation{}, fmt.Errorf("read installation: %w", err)
	}
	return i, nil
}

// RenewInstallation makes the database that of a new installation and returns it. What
// belonged to the database before, or to others of the same id, does not any more.
func (s *Store) RenewInstallation(ctx context.Context) (sandbox.Installation, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE installation SET id = $1", hex.EncodeToString(id))
		return err
	})
	if err != nil {
		return sandbox.Installation{}, fmt.Errorf("renew installation: %w", err)
	}
	return s.Installation(ctx)
}

// Advance raises the generation of the database and returns it with its installation.
func (s *Store) Advance(ctx context.Context) (sandbox.Installation, error) {
	if err := s.write(ctx, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		return sandbox.Installation{}, fmt.Errorf("advance installation: %w", err)
	}
	return s.Installation(ctx)
}

// OnAdvance has f called with the generation of the database whenever a write has
// raised it, after the commit and before the write returns, one call at a time. It must
// be called while nobody writes, and f must not use the store.
func (s *Store) OnAdvance(f func(generation int64)) { s.advanced = f }

// advance raises the generation with a transaction.
func advance(ctx context.Context, tx *sql.Tx) (generation int64, err error) {
	err = tx.QueryRowContext(ctx, "UPDATE installation SET generation = generation + 1 RETURNING generation").Scan(&generation)
	if err != nil {
		return 0, fmt.Errorf("advance installation: %w", err)
	}
	return generation, nil
}
