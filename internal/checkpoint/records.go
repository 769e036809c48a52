package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Records are the rows of saved states. Internal/store implements it.
type Records interface {
	// Begin records that a checkpoint of a sandbox is being made, as a copy of the checkpoint copyOf
	// unless that is "". The record ends when the checkpoint is recorded, by Create or as the saved
	// state of its sandbox, and with Abandon. A copy that becomes the saved state takes the sandbox back
	// to copyOf: the next checkpoint has copyOf as its parent.
	Begin(ctx context.Context, id sandbox.CheckpointID, owner sandbox.ID, copyOf sandbox.CheckpointID, at time.Time) error
	// Abandon ends the record of a checkpoint that was begun; idempotent.
	Abandon(ctx context.Context, id sandbox.CheckpointID) error
	// Begun returns the ids and sandboxes of all checkpoints that were begun and neither recorded nor
	// abandoned.
	Begun(ctx context.Context) ([]sandbox.Checkpoint, error)
	// Create records a named checkpoint with its event, and sets its parent. Errors: Exists;
	// QuotaExceeded when the sandbox has limit checkpoints, or its workspace's quota is used up.
	Create(ctx context.Context, c *sandbox.Checkpoint, limit int, ev sandbox.Event, a quota.Admission) error
	// ReplaceAutomatic records the automatic checkpoint of a sandbox in place of the previous. Errors:
	// QuotaExceeded.
	ReplaceAutomatic(ctx context.Context, c sandbox.Checkpoint, a quota.Admission) error
	// SetInterval records the interval of a sandbox's automatic checkpoints, with an event.
	SetInterval(ctx context.Context, id sandbox.ID, d time.Duration, ev sandbox.Event) error
	// CountRestore counts that a lost sandbox goes on from its automatic checkpoint, and returns the
	// count.
	CountRestore(ctx context.Context, id sandbox.CheckpointID) (int, error)
	// List returns a sandbox's checkpoints, including the automatic checkpoint, oldest first.
	List(ctx context.Context, id sandbox.ID) ([]sandbox.Checkpoint, error)
	// Delete forgets a checkpoint, with an event; idempotent.
	Delete(ctx context.Context, id sandbox.CheckpointID, ev sandbox.Event) error
	// Discarded reports, for a checkpoint without a row, whether a row had it a short time ago, or
	// whether it was begun and never recorded.
	Discarded(ctx context.Context, id sandbox.CheckpointID) (bool, error)
}

// Make calls save to make the files of the checkpoint id of a sandbox. It records first that the
// checkpoint is being made, so that a server that finds the files knows that nothing needs them; it
// removes that record only when save fails.
func (s *Store) Make(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID, save func(path string) error) error {
	return s.make(ctx, owner, id, "", save)
}

// make is Make, of a copy of the checkpoint copyOf unless that is "".
func (s *Store) make(ctx context.Context, owner sandbox.ID, id, copyOf sandbox.CheckpointID, save func(path string) error) error {
	if err := s.records.Begin(ctx, id, owner, copyOf, time.Now()); err != nil {
		return err
	}
	err := save(s.Path(owner, id))
	if err != nil {
		s.DiscardOrLog(ctx, owner, id)
	}
	return err
}

// Find returns the named checkpoint of a sandbox with an id or name. Errors: NotFound.
func (s *Store) Find(ctx context.Context, id sandbox.ID, ref string) (sandbox.Checkpoint, error) {
	list, err := s.records.List(ctx, id)
	if err != nil {
		return sandbox.Checkpoint{}, err
	}
	for _, match := range []func(*sandbox.Checkpoint) bool{
		func(c *sandbox.Checkpoint) bool { return string(c.ID) == ref },
		func(c *sandbox.Checkpoint) bool { return c.Name == ref },
	} {
		for i := range list {
			if !list[i].Automatic() && match(&list[i]) {
				return list[i], nil
			}
		}
	}
	return sandbox.Checkpoint{}, sandbox.Errorf(sandbox.NotFound, "the sandbox has no checkpoint %q", sandbox.Excerpt(ref))
}

// Branch copies a checkpoint. It fails unless memory or files can be restored and are as they were
// saved: the sandbox gives up its present state for the copy.
func (s *Store) Branch(ctx context.Context, c sandbox.Checkpoint) (sandbox.CheckpointID, error) {
	path := s.Path(c.Sandbox, c.ID)
	lost, err := s.Restorable(path, sandbox.MemoryPrefer)
	if err != nil {
		return "", err
	}
	if err := s.Verify(ctx, path, lost); err != nil {
		return "", err
	}
	id := sandbox.NewCheckpointID()
	return id, s.make(ctx, c.Sandbox, id, c.ID, func(to string) error { return s.Copy(path, to) })
}

// Discard removes the files of a checkpoint without a row, and then the record that it was begun.
func (s *Store) Discard(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID) error {
	if err := s.Remove(owner, id); err != nil {
		return err
	}
	return s.records.Abandon(ctx, id)
}

// DiscardOrLog is Discard; the sweep and the next server retry a failure.
func (s *Store) DiscardOrLog(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID) {
	if err := s.Discard(ctx, owner, id); err != nil && ctx.Err() == nil {
		s.log.Error("unfinished checkpoint not removed, trying again later", "sandbox", owner, "checkpoint", id, "error", err)
	}
}

// Forget removes a checkpoint whose record is in doubt, row first.
func (s *Store) Forget(ctx context.Context, c sandbox.Checkpoint) {
	ev := sandbox.Event{Sandbox: c.Sandbox, Time: time.Now().UTC(), Type: sandbox.EventCheckpointDeleted, Message: "saving it did not work"}
	if err := s.records.Delete(ctx, c.ID, ev); err != nil {
		s.log.Error("checkpoint in doubt stays", "sandbox", c.Sandbox, "checkpoint", c.ID, "error", err)
		return
	}
	s.DiscardOrLog(ctx, c.Sandbox, c.ID)
}

// RemoveBegun removes the checkpoints that the previous server was making when it ended. Checkpoints of sandboxes of other servers stay: these
// servers may be making them.
func (s *Store) RemoveBegun(ctx context.Context) error {
	list, err := s.records.Begun(ctx)
	if err != nil {
		return fmt.Errorf("list unfinished checkpoints: %w", err)
	}
	for _, c := range list {
		if !s.owner.Owns(c.Sandbox) {
			continue
		}
		s.DiscardOrLog(ctx, c.Sandbox, c.ID)
	}
	return nil
}
