package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const checkpointColumns = "id, sandbox_id, name, image_digest, size_bytes, created_by, created_at"

// CreateCheckpoint records a checkpoint of a live sandbox and appends ev, in one
// transaction.
//
// Errors: Exists when the sandbox has one of that name; QuotaExceeded when it
// has limit of them, or its workspace no room for it.
func (s *Store) CreateCheckpoint(ctx context.Context, c sandbox.Checkpoint, limit int, ev sandbox.Event, a sandbox.Admission) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var all, same int
		err := tx.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = $1) FROM checkpoints WHERE sandbox_id = $2",
			c.Name, c.Sandbox).Scan(&all, &same)
		switch {
		case err != nil:
			return err
		case same > 0:
			return sandbox.Errorf(sandbox.Exists, "the sandbox has a checkpoint %q already", c.Name)
		case all >= limit:
			return sandbox.Errorf(sandbox.QuotaExceeded, "a sandbox has at most %d checkpoints; delete some", limit)
		}
		var ws sandbox.WorkspaceID
		if err := tx.QueryRowContext(ctx, "SELECT workspace_id FROM sandboxes WHERE id = $1", c.Sandbox).Scan(&ws); err != nil {
			return err
		}
		if err := admitDisk(ctx, tx, ws, c.SizeBytes, a); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO checkpoints ("+checkpointColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7)",
			c.ID, c.Sandbox, c.Name, c.ImageDigest, c.SizeBytes, c.CreatedBy, nanos(c.CreatedAt))
		if err != nil {
			return err
		}
		return insertEvent(ctx, tx, c.Sandbox, ev)
	})
	if err != nil {
		return fmt.Errorf("record checkpoint of sandbox %s: %w", c.Sandbox, err)
	}
	return nil
}

// Checkpoints returns a sandbox's checkpoints, the oldest first.
func (s *Store) Checkpoints(ctx context.Context, id sandbox.ID) ([]sandbox.Checkpoint, error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT "+checkpointColumns+" FROM checkpoints WHERE sandbox_id = $1 ORDER BY created_at, id", id)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of sandbox %s: %w", id, err)
	}
	defer func() { _ = rows.Close() }()
	var list []sandbox.Checkpoint
	for rows.Next() {
		var c sandbox.Checkpoint
		var created int64
		if err := rows.Scan(&c.ID, &c.Sandbox, &c.Name, &c.ImageDigest, &c.SizeBytes, &c.CreatedBy, &created); err != nil {
			return nil, fmt.Errorf("read checkpoint: %w", err)
		}
		c.CreatedAt = fromNanos(created)
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list checkpoints of sandbox %s: %w", id, err)
	}
	return list, nil
}

// DeleteCheckpoint forgets a checkpoint and appends ev. One that does not exist
// is no error, and then there is no event.
func (s *Store) DeleteCheckpoint(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM checkpoints WHERE id = $1 AND sandbox_id = $2", id, ev.Sandbox)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return insertEvent(ctx, tx, ev.Sandbox, ev)
	})
	if err != nil {
		return fmt.Errorf("delete checkpoint %s: %w", id, err)
	}
	return nil
}

// NoteActivity records when sandboxes were last used. Times only go forward.
func (s *Store) NoteActivity(ctx context.Context, at map[sandbox.ID]time.Time) error {
	if len(at) == 0 {
		return nil
	}
	err := s.note(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, t := range at {
			if _, err := tx.ExecContext(ctx, "UPDATE sandboxes SET last_activity_at = $1 WHERE id = $2 AND last_activity_at < $1",
				nanos(t), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record activity: %w", err)
	}
	return nil
}
