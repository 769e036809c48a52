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

// Archive records that the saved state of a paused sandbox, of size bytes unless the sandbox's row has its size, is in the object
// store, and appends ev. It does nothing for a state that is recorded there. Errors: NotFound; Conflict when the sandbox is not paused with
// that state; QuotaExceeded.
func (s *Sandboxes) Archive(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		row, err := pausedWith(ctx, tx, id, saved)
		if err != nil || !row.ArchivedAt.IsZero() {
			return row, err
		}
		if row.SavedBytes > 0 {
			size = row.SavedBytes
		}
		if err := addArchive(ctx, tx, id, row.Workspace, saved, size, ev.Time, time.Time{}, a); err != nil {
			return row, err
		}
		return moved(ctx, tx, id, sandbox.Change{ArchivedAt: &ev.Time, SavedBytes: &size}, ev)
	})
}

// Fetched records that the saved state of an archived sandbox, of size bytes there, is on the server's disk again, and appends ev. It does nothing for a sandbox
// that is not archived. Errors: as of [Sandboxes.Archive].
func (s *Sandboxes) Fetched(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		row, err := pausedWith(ctx, tx, id, saved)
		if err != nil || row.ArchivedAt.IsZero() {
			return row, err
		}
		if err := admitDisk(ctx, tx, row.Workspace, size, a); err != nil {
			return row, err
		}
		if err := release(ctx, tx, id, ev.Time); err != nil {
			return row, err
		}
		return moved(ctx, tx, id, sandbox.Change{ArchivedAt: &time.Time{}, SavedBytes: &size}, ev)
	})
}

// Copied records that the saved state of a paused sandbox, of size bytes unless the sandbox's row has its size, is in the object store as well. It does nothing for a state that is
// recorded there. Errors: as of [Sandboxes.Archive].
func (s *Sandboxes) Copied(ctx context.Context, id sandbox.ID, saved sandbox.CheckpointID, size int64, at time.Time, a quota.Admission) error {
	err := s.write(ctx, id, func(ctx context.Context, tx *sql.Tx) error {
		row, err := pausedWith(ctx, tx, id, saved)
		if err != nil || !row.ArchivedAt.IsZero() {
			return err
		}
		if row.SavedBytes > 0 {
			size = row.SavedBytes
		}
		// Released, because the sandbox has its state on the disk: the bytes count in the quota of the disk as well, and the copy stays while the sandbox is paused with it.
		return addArchive(ctx, tx, id, row.Workspace, saved, size, at, at, a)
	})
	if err != nil {
		return fmt.Errorf("record the copy of the state of sandbox %s: %w", id, err)
	}
	return nil
}

// addArchive adds the row of a stored state of a sandbox, unless it has one, with at and released for the times. Errors: QuotaExceeded.
func addArchive(ctx context.Context, tx *sql.Tx, owner sandbox.ID, ws sandbox.WorkspaceID, saved sandbox.CheckpointID, size int64, at, released time.Time, a quota.Admission) error {
	limits, err := effective(ctx, tx, ws, a.Limits)
	if err != nil {
		return err
	}
	var use quota.Use // without what is stored of this state already
	err = tx.QueryRowContext(ctx, "SELECT coalesce(sum(size_bytes), 0) FROM archives WHERE workspace_id = $1 AND checkpoint_id <> $2", ws, saved).Scan(&use.ArchiveBytes)
	if err != nil {
		return err
	}
	if err := limits.AdmitsArchive(use, size); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO archives (checkpoint_id, sandbox_id, workspace_id, size_bytes, archived_at, released_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (checkpoint_id) DO UPDATE SET size_bytes = $4, archived_at = $5, released_at = $6`, saved, owner, ws, size, database.Nanos(at), database.Nanos(released))
	return err
}

// pausedWith returns the row of a sandbox that is paused with that state. Errors: NotFound; Conflict.
func pausedWith(ctx context.Context, tx *sql.Tx, id sandbox.ID, saved sandbox.CheckpointID) (sandboxRow, error) {
	row, err := sandboxRowByID(ctx, tx, id)
	switch {
	case err != nil:
		return row, err
	case row.State != sandbox.Paused:
		return row, notInState(row.State, sandbox.Paused)
	case row.Saved != saved:
		return row, sandbox.Errorf(sandbox.Conflict, "the sandbox was resumed and paused again meanwhile")
	}
	return row, nil
}

// moved records a change of where the state of a paused sandbox is.
func moved(ctx context.Context, tx *sql.Tx, id sandbox.ID, c sandbox.Change, ev sandbox.Event) (sandboxRow, error) {
	u := replacing(c)
	u.set("updated_at", database.Nanos(ev.Time))
	row, err := updateInState(ctx, tx, id, sandbox.Paused, u)
	if err != nil {
		return row, err
	}
	return row, insertEvent(ctx, tx, id, ev)
}

// release records that a paused sandbox does not need its state in the object store any more, from which its time there counts, also if
// the state is on the disk as well.
func release(ctx context.Context, tx *sql.Tx, id sandbox.ID, at time.Time) error {
	_, err := tx.ExecContext(ctx, `UPDATE archives SET released_at = $1 WHERE sandbox_id = $2
		AND (released_at = 0 OR checkpoint_id = (SELECT saved FROM sandboxes WHERE id = $2))`, database.Nanos(at), id)
	return err
}

// Archives are the saved states in the object store.
func (s *Sandboxes) Archives() *Archives { return &Archives{s.db} }

// Archives are the records of the saved states in the object store.
type Archives struct{ db *database.DB }

// unneeded are the released states that may be removed. A sandbox that is paused with its state on the disk keeps the stored copy, and the
// row: without the row, the copy would count for no quota when the sandbox goes on. So does a checkpoint, and an automatic checkpoint that was replaced, until a later one has a copy.
const unneeded = "released_at > 0 AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE saved = archives.checkpoint_id AND " + isLive + ")" +
	" AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE id = archives.checkpoint_id)" +
	" AND NOT EXISTS (SELECT 1 FROM automatic_copies WHERE automatic_copies.checkpoint_id = archives.checkpoint_id)"

// Released returns at most limit states that no sandbox is paused with, that no checkpoint has, and that were released before a time, of one workspace or, with "",
// of all, the first released first.
func (s *Archives) Released(ctx context.Context, ws sandbox.WorkspaceID, before time.Time, limit int) ([]sandbox.CheckpointID, error) {
	return database.Column[sandbox.CheckpointID](ctx, s.db.Reader(), `SELECT checkpoint_id FROM archives
		WHERE `+unneeded+` AND released_at < $1 AND ($2 = '' OR workspace_id = $2) ORDER BY released_at LIMIT $3`, database.Nanos(before), ws, limit)
}

// Forget deletes the record of a released state, unless a sandbox is paused with it or a checkpoint has it. It reports whether it did.
func (s *Archives) Forget(ctx context.Context, id sandbox.CheckpointID) (found bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		found, err = database.Exists(ctx, tx, "SELECT 1 FROM archives WHERE checkpoint_id = $1 AND "+unneeded, id)
		if err == nil && found {
			_, err = tx.ExecContext(ctx, "DELETE FROM archives WHERE checkpoint_id = $1", id)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("forget the archived state %s: %w", id, err)
	}
	return found, nil
}

// Known reports whether the state has a record, a sandbox is paused with it, or a checkpoint has it.
func (s *Archives) Known(ctx context.Context, id sandbox.CheckpointID) (bool, error) {
	return database.Exists(ctx, s.db.Reader(), "SELECT 1 FROM archives WHERE checkpoint_id = $1 UNION SELECT 1 FROM checkpoints WHERE id = $1 UNION SELECT 1 FROM automatic_copies WHERE checkpoint_id = $1"+
		" UNION SELECT 1 FROM sandboxes WHERE saved = $1 AND "+isLive, id)
}

// Stored returns the bytes that the record of a state counts; 0 without a record.
func (s *Archives) Stored(ctx context.Context, id sandbox.CheckpointID) (n int64, err error) {
	err = s.db.Reader().QueryRowContext(ctx, "SELECT coalesce(sum(size_bytes), 0) FROM archives WHERE checkpoint_id = $1", id).Scan(&n)
	return n, err
}

// Uncopied returns the states of paused sandboxes that have no record.
func (s *Archives) Uncopied(ctx context.Context) ([]sandbox.CheckpointID, error) {
	return database.Column[sandbox.CheckpointID](ctx, s.db.Reader(), `SELECT saved FROM sandboxes WHERE state = 'paused' AND archived_at = 0 AND saved <> '' AND `+isLive+`
		AND NOT EXISTS (SELECT 1 FROM archives WHERE checkpoint_id = sandboxes.saved)`)
}

// Images returns the digests of the root filesystems of sandboxes that are paused with a state in the object store, and of checkpoints that have a copy there.
func (s *Archives) Images(ctx context.Context) ([]string, error) {
	return database.Column[string](ctx, s.db.Reader(), `SELECT DISTINCT image_digest FROM sandboxes
		WHERE (archived_at > 0 OR state = 'paused' AND EXISTS (SELECT 1 FROM archives WHERE checkpoint_id = sandboxes.saved)) AND `+isLive+`
		UNION SELECT image_digest FROM checkpoints WHERE image_digest <> '' AND EXISTS (SELECT 1 FROM archives WHERE checkpoint_id = checkpoints.id)
		UNION SELECT image_digest FROM automatic_copies WHERE image_digest <> ''`)
}

// Any reports whether any state, output of an execution or image was stored, or anything was sent since the last ClearSent.
func (s *Archives) Any(ctx context.Context) (bool, error) {
	return database.Exists(ctx, s.db.Reader(), "SELECT 1 FROM archives UNION ALL SELECT 1 FROM workspaces WHERE archive_sent_bytes > 0 UNION ALL SELECT 1 FROM executions WHERE "+isThere+" UNION ALL SELECT 1 FROM stored_files LIMIT 1")
}

// Sent returns the bytes that a workspace has sent to the object store since the last ClearSent; 0 for a workspace that does not exist.
func (s *Archives) Sent(ctx context.Context, ws sandbox.WorkspaceID) (n int64, err error) {
	err = s.db.Reader().QueryRowContext(ctx, "SELECT coalesce(sum(archive_sent_bytes), 0) FROM workspaces WHERE id = $1", ws).Scan(&n)
	return n, err
}

// AddSent adds to the bytes that a workspace has sent.
func (s *Archives) AddSent(ctx context.Context, ws sandbox.WorkspaceID, n int64) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE workspaces SET archive_sent_bytes = archive_sent_bytes + $1 WHERE id = $2", n, ws)
		return err
	})
}

// ClearSent makes the sent bytes of all workspaces 0.
func (s *Archives) ClearSent(ctx context.Context) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE workspaces SET archive_sent_bytes = 0 WHERE archive_sent_bytes > 0")
		return err
	})
}

// Use returns the number of stored states that sandboxes need, and the bytes of all stored states.
func (s *Archives) Use(ctx context.Context) (archived, bytes int64, err error) {
	err = s.db.Reader().QueryRowContext(ctx, "SELECT count(*) FILTER (WHERE released_at = 0), coalesce(sum(size_bytes), 0) FROM archives").Scan(&archived, &bytes)
	return archived, bytes, err
}
