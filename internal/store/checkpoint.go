package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const checkpointColumns = "id, sandbox_id, name, image_digest, size_bytes, created_by, created_at, parent_id"

// Checkpoints are the saved states of sandboxes in a store.
type Checkpoints struct{ db *database.DB }

// Begin records that the checkpoint id of a sandbox is being made, as a copy of the checkpoint
// copyOf unless that is "". [Checkpoints.Create],
// [Checkpoints.Abandon], a change of the sandbox that makes id its saved state, and the
// deletion of the sandbox's row delete the record. The change to a copy makes copyOf, or the
// parent of an automatic copyOf, the parent of the next checkpoint.
func (c *Checkpoints) Begin(ctx context.Context, id sandbox.CheckpointID, owner sandbox.ID, copyOf sandbox.CheckpointID, at time.Time) error {
	return c.exec(ctx, "begin checkpoint "+string(id), "INSERT INTO checkpoints_begun (id, sandbox_id, begun_at, copy_of) VALUES ($1, $2, $3, $4)",
		id, owner, database.Nanos(at), copyOf)
}

// Abandon deletes the record of a begun checkpoint. Idempotent.
func (c *Checkpoints) Abandon(ctx context.Context, id sandbox.CheckpointID) error {
	return c.exec(ctx, "abandon checkpoint "+string(id), "DELETE FROM checkpoints_begun WHERE id = $1", id)
}

func (c *Checkpoints) exec(ctx context.Context, what, query string, args ...any) error {
	return c.write(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

// write is [database.DB.Write]; its error names the operation that failed.
func (c *Checkpoints) write(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	if err := c.db.Write(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// writeOf is write of a sandbox. Errors: Unavailable for a sandbox of another owner.
func (c *Checkpoints) writeOf(ctx context.Context, id sandbox.ID, what string, f func(context.Context, *sql.Tx) error) error {
	return c.write(ctx, what, func(ctx context.Context, tx *sql.Tx) error {
		if err := c.db.Owner().Check(id); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// Begun returns the ids and sandboxes of the checkpoints that were begun and neither
// recorded nor abandoned.
func (c *Checkpoints) Begun(ctx context.Context) ([]sandbox.Checkpoint, error) {
	return database.Collect(ctx, c.db.Reader(), func(row database.Scanner) (b sandbox.Checkpoint, err error) {
		return b, row.Scan(&b.ID, &b.Sandbox)
	}, "SELECT id, sandbox_id FROM checkpoints_begun")
}

// Discarded reports whether the files of a checkpoint without a row may be deleted: a
// trigger of the database recorded that a row released it a short time ago, the
// checkpoint was begun and never recorded, or it was an automatic checkpoint that has a copy.
func (c *Checkpoints) Discarded(ctx context.Context, id sandbox.CheckpointID) (bool, error) {
	return database.Exists(ctx, c.db.Reader(), "SELECT 1 FROM released WHERE name = $1 UNION SELECT 1 FROM checkpoints_begun WHERE id = $1"+
		" UNION SELECT 1 FROM automatic_copies WHERE checkpoint_id = $1", id)
}

// Create records a checkpoint of a live sandbox, sets its parent, and appends ev, in one
// transaction.
//
// Errors: Exists if the sandbox has a checkpoint of that name; QuotaExceeded if it has
// limit checkpoints, or if the quota of its workspace has too little disk left.
func (c *Checkpoints) Create(ctx context.Context, cp *sandbox.Checkpoint, limit int, ev sandbox.Event, a quota.Admission) error {
	return c.writeOf(ctx, cp.Sandbox, "record checkpoint of sandbox "+string(cp.Sandbox), func(ctx context.Context, tx *sql.Tx) error {
		var all, same int
		err := tx.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = $1) FROM checkpoints WHERE sandbox_id = $2 AND name <> ''",
			cp.Name, cp.Sandbox).Scan(&all, &same)
		switch {
		case err != nil:
			return err
		case same > 0:
			return sandbox.Errorf(sandbox.Exists, "the sandbox has a checkpoint %q already", cp.Name)
		case all >= limit:
			return sandbox.Errorf(sandbox.QuotaExceeded, "a sandbox has at most %d checkpoints; delete some", limit)
		}
		if err := insertCheckpoint(ctx, tx, cp, a); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE sandboxes SET checkpoint_id = $1 WHERE id = $2", cp.ID, cp.Sandbox); err != nil {
			return err
		}
		return insertEvent(ctx, tx, cp.Sandbox, ev)
	})
}

// insertCheckpoint records cp, whose parent it sets, if the quota of its workspace allows it.
func insertCheckpoint(ctx context.Context, tx *sql.Tx, cp *sandbox.Checkpoint, a quota.Admission) error {
	var ws sandbox.WorkspaceID
	err := tx.QueryRowContext(ctx, `SELECT s.workspace_id, s.checkpoint_id, coalesce(c.name, '')
		FROM sandboxes AS s LEFT JOIN checkpoints AS c ON c.id = s.checkpoint_id WHERE s.id = $1`, cp.Sandbox).Scan(&ws, &cp.Parent, &cp.ParentName)
	if err != nil {
		return err
	}
	if err := admitDisk(ctx, tx, ws, cp.SizeBytes, a); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO checkpoints ("+checkpointColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
		cp.ID, cp.Sandbox, cp.Name, cp.ImageDigest, cp.SizeBytes, cp.CreatedBy, database.Nanos(cp.CreatedAt), cp.Parent)
	return err
}

// ReplaceAutomatic records the automatic checkpoint of a live sandbox and deletes the
// record of the previous automatic checkpoint. Errors: QuotaExceeded; then the previous
// checkpoint stays.
func (c *Checkpoints) ReplaceAutomatic(ctx context.Context, cp sandbox.Checkpoint, a quota.Admission) error {
	return c.writeOf(ctx, cp.Sandbox, "record automatic checkpoint of sandbox "+string(cp.Sandbox), func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM checkpoints WHERE sandbox_id = $1 AND name = ''", cp.Sandbox); err != nil {
			return err
		}
		if err := insertCheckpoint(ctx, tx, &cp, a); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET last_checkpoint_at = $1 WHERE id = $2", database.Nanos(cp.CreatedAt), cp.Sandbox)
		return err
	})
}

// SetInterval records the interval of the automatic checkpoints of a sandbox and appends ev.
func (c *Checkpoints) SetInterval(ctx context.Context, id sandbox.ID, d time.Duration, ev sandbox.Event) error {
	return c.write(ctx, "record checkpoint interval of sandbox "+string(id), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET checkpoint_interval = $1, updated_at = $2 WHERE id = $3", int64(d), database.Nanos(ev.Time), id)
		if err != nil {
			return err
		}
		return insertEvent(ctx, tx, id, ev)
	})
}

// CountRestore counts a restart of a lost sandbox from its automatic checkpoint and returns
// the number of such restarts.
func (c *Checkpoints) CountRestore(ctx context.Context, id sandbox.CheckpointID) (n int, err error) {
	err = c.write(ctx, "count restore of checkpoint "+string(id), func(ctx context.Context, tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, "UPDATE checkpoints SET restores = restores + 1 WHERE id = $1 RETURNING restores", id).Scan(&n)
	})
	return n, err
}

// List returns a sandbox's checkpoints, including the automatic checkpoint, the oldest first.
func (c *Checkpoints) List(ctx context.Context, id sandbox.ID) ([]sandbox.Checkpoint, error) {
	list, err := database.Collect(ctx, c.db.Reader(), func(row database.Scanner) (cp sandbox.Checkpoint, err error) {
		var created, copied int64
		err = row.Scan(&cp.ID, &cp.Sandbox, &cp.Name, &cp.ImageDigest, &cp.SizeBytes, &cp.CreatedBy, &created, &cp.Parent, &cp.ParentName, &copied)
		cp.CreatedAt, cp.CopiedAt = database.FromNanos(created), database.FromNanos(copied)
		return cp, err
	}, "SELECT "+checkpointColumns+`, coalesce((SELECT name FROM checkpoints AS p WHERE p.id = c.parent_id), ''),
		coalesce((SELECT archived_at FROM archives WHERE checkpoint_id = c.id), 0)
		FROM checkpoints AS c WHERE sandbox_id = $1 ORDER BY created_at, id`, id)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints of sandbox %s: %w", id, err)
	}
	return list, nil
}

// Delete deletes the record of a checkpoint and appends ev. If the checkpoint does not
// exist, Delete does nothing.
func (c *Checkpoints) Delete(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error {
	return c.writeOf(ctx, ev.Sandbox, "delete checkpoint "+string(id), func(ctx context.Context, tx *sql.Tx) error {
		if err := releaseCheckpoint(ctx, tx, ev.Sandbox, id, ev.Time); err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "DELETE FROM checkpoints WHERE id = $1 AND sandbox_id = $2", id, ev.Sandbox)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE sandboxes SET last_checkpoint_at = 0 WHERE id = $1 AND last_checkpoint_at > 0
			AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE sandbox_id = $1 AND name = '')`, ev.Sandbox)
		if err != nil {
			return err
		}
		return insertEvent(ctx, tx, ev.Sandbox, ev)
	})
}
