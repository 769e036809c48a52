package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// replacedAt is the time of release of the copy of an automatic checkpoint that a later copy replaces: such copies are removed before all
// others, and without a grace period, because there may be many.
const replacedAt = 1

// UncopiedCheckpoints returns the checkpoints of live sandboxes, named and automatic, that have no copy in the object store.
func (s *Archives) UncopiedCheckpoints(ctx context.Context) ([]sandbox.Checkpoint, error) {
	return database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (cp sandbox.Checkpoint, err error) {
		var created int64
		err = row.Scan(&cp.ID, &cp.Sandbox, &cp.Name, &cp.ImageDigest, &cp.SizeBytes, &created)
		cp.CreatedAt = database.FromNanos(created)
		return cp, err
	}, `SELECT id, sandbox_id, name, image_digest, size_bytes, created_at FROM checkpoints
		WHERE NOT EXISTS (SELECT 1 FROM archives WHERE checkpoint_id = checkpoints.id)`)
}

// BeginCopy records that the copy of an automatic checkpoint is being made, in place of an earlier one of the sandbox that was begun and not
// recorded. Errors: Conflict if the checkpoint has been replaced or deleted.
func (s *Archives) BeginCopy(ctx context.Context, id sandbox.CheckpointID) error {
	return s.write(ctx, "begin the copy of the checkpoint "+string(id), func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `INSERT INTO automatic_copies (checkpoint_id, sandbox_id, image_digest, created_at)
			SELECT id, sandbox_id, image_digest, created_at FROM checkpoints WHERE id = $1 AND name = '' ON CONFLICT (checkpoint_id) DO UPDATE SET created_at = excluded.created_at`, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errCheckpointGone)
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM automatic_copies WHERE checkpoint_id <> $1 AND sandbox_id = (SELECT sandbox_id FROM automatic_copies WHERE checkpoint_id = $1)
			AND NOT EXISTS (SELECT 1 FROM archives WHERE archives.checkpoint_id = automatic_copies.checkpoint_id)`, id)
		return err
	})
}

var errCheckpointGone = sandbox.Errorf(sandbox.Conflict, "the checkpoint was deleted or replaced meanwhile")

// CheckpointCopied records that a checkpoint, whose files have size bytes unless its row has their size, is in the object store as well. The copy of an automatic checkpoint replaces the
// earlier copy, also when a later checkpoint has replaced the checkpoint meanwhile. Errors: Conflict if the checkpoint was deleted; QuotaExceeded.
func (s *Archives) CheckpointCopied(ctx context.Context, id sandbox.CheckpointID, size int64, at time.Time, a quota.Admission) error {
	return s.write(ctx, "record the copy of the checkpoint "+string(id), func(ctx context.Context, tx *sql.Tx) error {
		var owner sandbox.ID
		var ws sandbox.WorkspaceID
		var recorded int64
		err := tx.QueryRowContext(ctx, `SELECT sandboxes.id, workspace_id, coalesce(c.size_bytes, 0) FROM sandboxes LEFT JOIN checkpoints AS c ON c.id = $1 AND c.sandbox_id = sandboxes.id
			WHERE sandboxes.id IN (SELECT sandbox_id FROM checkpoints WHERE id = $1 AND name <> '' UNION SELECT sandbox_id FROM automatic_copies WHERE checkpoint_id = $1)`, id).Scan(&owner, &ws, &recorded)
		if errors.Is(err, sql.ErrNoRows) {
			return errCheckpointGone
		}
		if err != nil {
			return err
		}
		if recorded > 0 {
			size = recorded
		}
		// Released, as the copy of the state of a paused sandbox is: the files on the disk count in the quota of the disk, and the copy stays while the checkpoint has a row.
		if err := addArchive(ctx, tx, owner, ws, id, size, at, at, a); err != nil {
			return err
		}
		const earlier = `sandbox_id = $1 AND checkpoint_id <> $2 AND EXISTS (SELECT 1 FROM automatic_copies WHERE checkpoint_id = $2)`
		if _, err := tx.ExecContext(ctx, `UPDATE archives SET released_at = $3 WHERE checkpoint_id IN (SELECT checkpoint_id FROM automatic_copies WHERE `+earlier+")", owner, id, replacedAt); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM automatic_copies WHERE "+earlier, owner, id)
		return err
	})
}

// AutomaticCopy returns the automatic checkpoint of a sandbox whose copy in the object store is the latest; nil for none. A later checkpoint may have replaced it.
func (s *Archives) AutomaticCopy(ctx context.Context, id sandbox.ID) (*sandbox.Checkpoint, error) {
	list, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (cp sandbox.Checkpoint, err error) {
		var created int64
		err = row.Scan(&cp.ID, &cp.Sandbox, &cp.ImageDigest, &cp.SizeBytes, &created)
		cp.CreatedAt = database.FromNanos(created)
		return cp, err
	}, `SELECT c.checkpoint_id, c.sandbox_id, c.image_digest, a.size_bytes, c.created_at FROM automatic_copies AS c JOIN archives AS a ON a.checkpoint_id = c.checkpoint_id
		WHERE c.sandbox_id = $1 ORDER BY c.created_at DESC LIMIT 1`, id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

func (s *Archives) write(ctx context.Context, what string, f func(context.Context, *sql.Tx) error) error {
	if err := s.db.Write(ctx, f); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// releaseCheckpoint records that the copy of a checkpoint is needed no more. With an automatic checkpoint go the copies of earlier automatic checkpoints of the sandbox. The row of the checkpoint is
// there still. With "" it does so for all checkpoints of the sandbox.
func releaseCheckpoint(ctx context.Context, tx *sql.Tx, owner sandbox.ID, id sandbox.CheckpointID, at time.Time) error {
	const automatic = "sandbox_id = $1 AND ($2 = '' OR EXISTS (SELECT 1 FROM checkpoints WHERE id = $2 AND name = ''))"
	_, err := tx.ExecContext(ctx, `UPDATE archives SET released_at = $3 WHERE checkpoint_id IN (SELECT id FROM checkpoints WHERE sandbox_id = $1 AND ($2 = '' OR id = $2)
		UNION SELECT checkpoint_id FROM automatic_copies WHERE `+automatic+")", owner, id, database.Nanos(at))
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM automatic_copies WHERE "+automatic, owner, id)
	}
	return err
}
