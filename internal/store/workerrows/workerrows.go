// Package workerrows keeps the records of workers in the database. It has the SQL; package internal/driver/fleet has the
// rules.
package workerrows

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/worker"
)

// Rows are the records of workers in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

// New returns the rows in a database.
func New(db *database.DB) Rows { return Rows{db} }

// List returns all workers, the first that joined first.
func (r Rows) List(ctx context.Context) ([]worker.Record, error) {
	list, err := database.Collect(ctx, r.db.Reader(), scan,
		"SELECT id, name, key_digest, state, address, version, memory_bytes, cores, features, joined_at, seen_at FROM workers ORDER BY joined_at, id")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return list, nil
}

// Save records a worker, in place of its record before.
func (r Rows) Save(ctx context.Context, w worker.Record) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO workers (id, name, key_digest, state, address, version, memory_bytes, cores, features, joined_at, seen_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, key_digest = excluded.key_digest, state = excluded.state, address = excluded.address,
				version = excluded.version, memory_bytes = excluded.memory_bytes, cores = excluded.cores, features = excluded.features, seen_at = excluded.seen_at`,
			w.ID, w.Name, w.Key, w.Status, w.Address, w.Version, w.MemoryBytes, w.Cores, w.Features, database.Nanos(w.JoinedAt), database.Nanos(w.SeenAt))
		return err
	})
	if err != nil {
		return fmt.Errorf("record worker %s: %w", w.ID, err)
	}
	return nil
}

// Delete removes the record of a worker, if there is one.
func (r Rows) Delete(ctx context.Context, id string) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM workers WHERE id = $1", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove the record of worker %s: %w", id, err)
	}
	return nil
}

func scan(row database.Scanner) (worker.Record, error) {
	var w worker.Record
	var joined, seen int64
	err := row.Scan(&w.ID, &w.Name, &w.Key, &w.Status, &w.Address, &w.Version, &w.MemoryBytes, &w.Cores, &w.Features, &joined, &seen)
	w.JoinedAt, w.SeenAt = database.FromNanos(joined), database.FromNanos(seen)
	return w, err
}
