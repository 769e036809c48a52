package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Records are the saved states of sandboxes. Internal/store has one.
type Records interface {
	// Begin records that a checkpoint of a sandbox is being made. The record ends when the
	// checkpoint is recorded, by Create or as the saved state of its sandbox, and with Abandon.
	Begin(ctx context.Context, id sandbox.CheckpointID, owner sandbox.ID, at time.Time) error
	// Abandon ends the record of a checkpoint that was begun; idempotent.
	Abandon(ctx context.Context, id sandbox.CheckpointID) error
	// Begun returns the ids and sandboxes of all that were begun and neither recorded nor abandoned.
	Begun(ctx context.Context) ([]sandbox.Checkpoint, error)
	// Create records a named checkpoint with its event. Errors: Exists, QuotaExceeded when
	// the sandbox has limit of them, or its workspace's quota is used up.
	Create(ctx context.Context, c sandbox.Checkpoint, limit int, ev sandbox.Event, a sandbox.Admission) error
	// List returns a sandbox's named checkpoints, the oldest first.
	List(ctx context.Context, id sandbox.ID) ([]sandbox.Checkpoint, error)
	// Delete forgets a named checkpoint, with an event; idempotent.
	Delete(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error
	// Discarded reports of a checkpoint that no row has whether a row had it and gave it up
	// a short time ago, or whether it was begun and never recorded.
	Discarded(ctx context.Context, id sandbox.CheckpointID) (bool, error)
}

// Make has save make the files of the checkpoint id of a sandbox. The record that it is
// being made comes first, so that a server that finds the files knows that nothing needs
// them; Make itself ends that record only when save fails.
func (v *Vault) Make(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID, save func(path string) error) error {
	if err := v.records.Begin(ctx, id, owner, time.Now()); err != nil {
		return err
	}
	err := save(v.Path(owner, id))
	if err != nil {
		v.DiscardOrLog(ctx, owner, id)
	}
	return err
}

// Discard removes the files of a checkpoint that no row has, and then the record that it
// was begun.
func (v *Vault) Discard(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID) error {
	if err := v.Remove(owner, id); err != nil {
		return err
	}
	return v.records.Abandon(ctx, id)
}

// DiscardOrLog is discard; the sweep and the next server try again what fails.
func (v *Vault) DiscardOrLog(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID) {
	if err := v.Discard(ctx, owner, id); err != nil && ctx.Err() == nil {
		v.log.Error("unfinished checkpoint not removed, trying again later", "sandbox", owner, "checkpoint", id, "error", err)
	}
}

// RemoveBegun removes the checkpoints that the server before was making when it ended.
func (v *Vault) RemoveBegun(ctx context.Context) error {
	list, err := v.records.Begun(ctx)
	if err != nil {
		return fmt.Errorf("list unfinished checkpoints: %w", err)
	}
	for _, c := range list {
		v.DiscardOrLog(ctx, c.Sandbox, c.ID)
	}
	return nil
}
