package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Transition moves a sandbox from one state to the other, with the changes of c, and appends ev, in one
// transaction. The checkpoints and variables of a sandbox that ends are forgotten. UpdatedAt becomes ev's time.
// It returns the row as written.
//
// Errors: NotFound; Conflict, with nothing written, when the sandbox is not in
// state from or the move is not legal.
func (s *Sandboxes) Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error) {
	if err := sandbox.CheckTransition(from, to); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		row, err := transition(ctx, tx, id, from, to, c, ev)
		if err == nil && (to == sandbox.Paused || to == sandbox.Destroying || to.Ended()) {
			err = s.db.TellReleased(ctx, tx)
		}
		return row, err
	})
}

// ResumeSandbox is [Sandboxes.Transition] of a paused sandbox to resuming, unless the
// quota of its workspace or the capacity of the installation is too small: then nothing is
// recorded. Errors: NotFound; Conflict if it is not paused; QuotaExceeded.
func (s *Sandboxes) ResumeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		row, err := sandboxRowByID(ctx, tx, id)
		if err != nil {
			return row, err
		}
		if row.State != sandbox.Paused {
			return row, notInState(row.State, sandbox.Paused)
		}
		if err := admit(ctx, tx, row.Workspace, row.Resources, 1, a, &row.Sandbox); err != nil {
			return row, err
		}
		return transition(ctx, tx, id, sandbox.Paused, sandbox.Resuming, c, ev)
	})
}

// SetBox records the digest of a provisioning sandbox's root filesystem and the driver's
// handle.
//
// Errors: NotFound; Conflict if the sandbox is not provisioning any more.
func (s *Sandboxes) SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		return updateInState(ctx, tx, id, sandbox.Provisioning, replacing(sandbox.Change{ImageDigest: &digest, Handle: &handle}))
	})
}

// StartAgain takes one of the starts that a provisioning sandbox has left, and appends ev, in one transaction. UpdatedAt becomes ev's time.
//
// Errors: NotFound; Conflict if the sandbox has none left, or is not provisioning any more.
func (s *Sandboxes) StartAgain(ctx context.Context, id sandbox.ID, ev sandbox.Event) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		u := &sandboxUpdate{columns: []string{"starts_left = starts_left - 1"}}
		u.set("updated_at", database.Nanos(ev.Time))
		u.And("starts_left > 0")
		row, err := updateInState(ctx, tx, id, sandbox.Provisioning, u)
		if err != nil {
			return row, err
		}
		return row, insertEvent(ctx, tx, id, ev)
	})
}

// ChangeSandbox makes the changes of c to a live sandbox and appends ev, in one transaction. UpdatedAt becomes
// ev's time. It returns the row as written.
//
// Errors: NotFound; Ended, also while the sandbox is being destroyed.
func (s *Sandboxes) ChangeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error) {
	return s.change(ctx, id, func(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
		u := replacing(c)
		u.set("updated_at", database.Nanos(ev.Time))
		u.Where("id = ", id)
		u.And(isNamed)
		row, err := u.run(ctx, tx)
		if errors.Is(err, sql.ErrNoRows) {
			if _, err := sandboxRowByID(ctx, tx, id); err != nil {
				return row, err
			}
			return row, sandbox.Errorf(sandbox.Ended, "the sandbox has ended")
		}
		if err != nil {
			return row, err
		}
		return row, insertEvent(ctx, tx, id, ev)
	})
}

// change commits a change of a sandbox and returns its row as written.
func (s *Sandboxes) change(ctx context.Context, id sandbox.ID, write func(context.Context, *sql.Tx) (sandboxRow, error)) (sandbox.Sandbox, error) {
	var row sandboxRow
	err := s.write(ctx, id, func(ctx context.Context, tx *sql.Tx) (err error) {
		row, err = write(ctx, tx)
		return err
	})
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = s.open(row)
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("change sandbox %s: %w", id, err)
	}
	return sb, nil
}

// transition moves a sandbox from one state to the other as [Sandboxes.Transition] does.
func transition(ctx context.Context, tx *sql.Tx, id sandbox.ID, from, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sandboxRow, error) {
	u := replacing(c)
	u.set("state", to)
	u.set("updated_at", database.Nanos(ev.Time))
	if to.Ended() { // an ended sandbox does not need its secrets
		u.set("env", "{}")
	}
	if from == sandbox.Paused {
		u.set("archived_at", 0)
		if err := release(ctx, tx, id, ev.Time); err != nil {
			return sandboxRow{}, err
		}
	}
	row, err := updateInState(ctx, tx, id, from, u)
	if err != nil {
		return row, err
	}
	if to.Ended() {
		if err := releaseCheckpoint(ctx, tx, id, "", ev.Time); err != nil {
			return row, err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM checkpoints WHERE sandbox_id = $1", id); err != nil {
			return row, err
		}
	}
	if ev.Type == "" {
		return row, nil
	}
	return row, insertEvent(ctx, tx, id, ev)
}

// updateInState updates a row that is in state from. Errors: NotFound, Conflict.
func updateInState(ctx context.Context, tx *sql.Tx, id sandbox.ID, from sandbox.State, u *sandboxUpdate) (sandboxRow, error) {
	// The condition on the state makes this a compare-and-set.
	u.Where("id = ", id)
	u.Where("state = ", from)
	row, err := u.run(ctx, tx)
	if !errors.Is(err, sql.ErrNoRows) {
		return row, err
	}
	if row, err = sandboxRowByID(ctx, tx, id); err != nil {
		return row, err
	}
	return row, notInState(row.State, from)
}

func notInState(is, from sandbox.State) error {
	if is == from {
		return sandbox.Errorf(sandbox.Conflict, "the start of the sandbox is not begun again")
	}
	return sandbox.Errorf(sandbox.Conflict, "the sandbox is %s, not %s any more", is, from)
}

// sandboxUpdate is an UPDATE of the row of a sandbox.
type sandboxUpdate struct {
	database.Query
	columns []string
	err     error
}

// replacing returns the update for the fields of c.
func replacing(c sandbox.Change) *sandboxUpdate {
	u := &sandboxUpdate{}
	if c.Cause != nil {
		u.set("cause_code", c.Cause.Code)
		u.set("cause_message", c.Cause.Message)
	}
	replace(u, "image_digest", c.ImageDigest)
	replace(u, "handle", c.Handle)
	replace(u, "saved", c.Saved)
	replace(u, "saved_bytes", c.SavedBytes)
	replace(u, "memory_lost", c.MemoryLost)
	if c.FilesOnly != nil {
		u.set("files_only", database.Number(*c.FilesOnly))
	}
	u.replaceTime("started_at", c.StartedAt)
	u.replaceTime("paused_at", c.PausedAt)
	u.replaceTime("archived_at", c.ArchivedAt)
	u.replaceTime("ended_at", c.EndedAt)
	u.replaceTime("last_activity_at", c.LastActivityAt)
	u.replaceTime("ttl_from", c.TTLFrom)
	if c.TTL != nil {
		u.set("ttl", int64(*c.TTL))
	}
	if c.NetworkEnabled != nil {
		u.set("network_enabled", database.Number(*c.NetworkEnabled))
	}
	if c.Published != nil {
		ports, err := marshalPorts(*c.Published)
		u.err = err
		u.set("ports", ports)
	}
	if c.Rules != nil {
		u.set("network_rules", marshalRules(*c.Rules))
	}
	return u
}

func (u *sandboxUpdate) set(column string, v any) {
	u.columns = append(u.columns, column+" = "+u.Arg(v))
}

// replaceTime sets a column to *at unless at is nil.
func (u *sandboxUpdate) replaceTime(column string, at *time.Time) {
	if at != nil {
		u.set(column, database.Nanos(*at))
	}
}

// replace sets a column to *v unless v is nil.
func replace[T any](u *sandboxUpdate, column string, v *T) {
	if v != nil {
		u.set(column, *v)
	}
}

// run updates the only row that meets the conditions and returns it. Errors: [sql.ErrNoRows] if none does.
func (u *sandboxUpdate) run(ctx context.Context, tx *sql.Tx) (sandboxRow, error) {
	if u.err != nil {
		return sandboxRow{}, u.err
	}
	return scanSandboxRow(tx.QueryRowContext(ctx, "UPDATE sandboxes SET "+strings.Join(u.columns, ", ")+
		" WHERE "+strings.Join(u.Conditions, " AND ")+" RETURNING "+sandboxColumns, u.Args...))
}
