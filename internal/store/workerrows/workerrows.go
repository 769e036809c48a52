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

const columns = "id, name, key_digest, state, address, version, memory_bytes, cores, features, home, connected_at, boxes, promised_bytes, joined_at, seen_at"

// List returns all workers, the first that joined first.
func (r Rows) List(ctx context.Context) ([]worker.Record, error) {
	list, err := database.Collect(ctx, r.db.Reader(), scan,
		"SELECT "+columns+" FROM workers ORDER BY joined_at, id")
	if err != nil {
		return nil, fmt.Errorf("list workers: %w", err)
	}
	return list, nil
}

// Save records a worker, in place of its record before.
func (r Rows) Save(ctx context.Context, w worker.Record) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO workers ("+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
			ON CONFLICT (id) DO UPDATE SET name = excluded.name, key_digest = excluded.key_digest, state = excluded.state, address = excluded.address,
				version = excluded.version, memory_bytes = excluded.memory_bytes, cores = excluded.cores, features = excluded.features, home = excluded.home,
				connected_at = excluded.connected_at, boxes = excluded.boxes, promised_bytes = excluded.promised_bytes, seen_at = excluded.seen_at`, values(w)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("record worker %s: %w", w.ID, err)
	}
	return nil
}

// Add records a worker that has no record, while there are so many records of workers that were not supplied, and reports whether it did.
func (r Rows) Add(ctx context.Context, w worker.Record, records int) (added bool, err error) {
	err = r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var now int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM workers WHERE id LIKE 'worker-%'").Scan(&now); err != nil {
			return err
		}
		if added = now == records; !added {
			return nil
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO workers ("+columns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)", values(w)...)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record the new worker %s: %w", w.ID, err)
	}
	return added, nil
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

// values returns the values of the columns.
func values(w worker.Record) []any {
	return []any{
		w.ID, w.Name, w.Key, w.Status, w.Address, w.Version, w.MemoryBytes, w.Cores, w.Features, w.Home,
		database.Nanos(w.Use.ConnectedAt), w.Use.Boxes, w.Use.PromisedBytes, database.Nanos(w.JoinedAt), database.Nanos(w.SeenAt),
	}
}

func scan(row database.Scanner) (worker.Record, error) {
	var w worker.Record
	var connected, joined, seen int64
	err := row.Scan(&w.ID, &w.Name, &w.Key, &w.Status, &w.Address, &w.Version, &w.MemoryBytes, &w.Cores, &w.Features, &w.Home,
		&connected, &w.Use.Boxes, &w.Use.PromisedBytes, &joined, &seen)
	w.Use.ConnectedAt, w.JoinedAt, w.SeenAt = database.FromNanos(connected), database.FromNanos(joined), database.FromNanos(seen)
	return w, err
}
