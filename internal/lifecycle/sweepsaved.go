package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	unknownSandbox    = "the database has no sandbox of this id"
	unknownCheckpoint = "the database has the sandbox, but not this saved state of it"
)

// sweepSaved removes the remains of interrupted operations from the checkpoint store. It moves
// complete saved states without a row into quarantine, because the database may be the wrong one.
func (s *Service) sweepSaved() {
	if _, err := s.saved.Checkpointer(); err != nil {
		return // nobody can tell here what is whole
	}
	found, err := s.saved.List()
	if err != nil {
		s.logSweep("list checkpoints", err)
		return
	}
	for owner, names := range found {
		b := s.boxes.ByID(owner)
		if b == nil && s.boxes.Has(owner) || b != nil && b.Busy() {
			continue
		}
		if err := s.sweepOwner(owner, b, names); err != nil {
			s.logSweep("saved states of "+string(owner), err)
		}
	}
	if err := s.saved.SweepForks(); err != nil {
		s.logSweep("remove checkpoints of forks", err)
	}
}

// sweepOwner is sweepSaved for the saved states of a single sandbox. b is its box, nil if the
// sandbox is not live.
func (s *Service) sweepOwner(owner sandbox.ID, b *entry, names []string) error {
	row, err := s.store.SandboxByID(s.ctx, owner)
	reason := unknownCheckpoint
	switch {
	case b == nil && sandbox.CodeOf(err) == sandbox.NotFound:
		reason = unknownSandbox
	case err != nil:
		return err
	case b == nil && row.State.Ended():
		reason = "" // its end removed what was saved, or was cut short
	case b == nil:
		return nil // sweepRows sees to it
	}
	keep := map[string]bool{}
	if b != nil {
		rows, err := s.saved.Records().List(s.ctx, owner)
		if err != nil {
			return err
		}
		for _, c := range rows {
			keep[string(c.ID)] = true
		}
		// A write may have had its effect although the store reported an error.
		keep[string(row.Saved)], keep[string(b.Sandbox().Saved)] = true, true
	}
	var errs []error
	for _, name := range names {
		if !keep[name] {
			errs = append(errs, s.sweepName(owner, sandbox.CheckpointID(name), reason))
		}
	}
	s.saved.RemoveOwner(owner)
	return errors.Join(errs...)
}

// sweepName removes a saved state without a row. It moves the state into quarantine instead if the
// state is complete, was not discarded, and reason is not empty.
func (s *Service) sweepName(owner sandbox.ID, id sandbox.CheckpointID, reason string) error {
	_, saved := sandbox.ParseID(string(id)) // unfinished states have other names
	if reason == "" || !saved || !s.saved.IsComplete(owner, id) {
		return s.saved.Remove(owner, id)
	}
	discarded, err := s.saved.Records().Discarded(s.ctx, id)
	if err != nil {
		return err
	}
	if discarded {
		return s.saved.Discard(s.ctx, owner, id)
	}
	if err := s.quarantine.Put(s.saved.Path(owner, id), owner, id, reason); err != nil {
		return err
	}
	s.log.Warn("a saved state that the database does not know is in quarantine; modbox quarantine ls shows it", "sandbox", owner, "checkpoint", id, "reason", reason)
	return nil
}

// returnSaved moves saved states out of quarantine that the rows of live sandboxes refer to,
// because the right database is back.
func (s *Service) returnSaved(ctx context.Context, rows []sandbox.Sandbox) error {
	entries, err := s.quarantine.List()
	if err != nil || len(entries) == 0 {
		return err
	}
	known := map[sandbox.CheckpointID]sandbox.ID{}
	for _, row := range rows {
		if row.Saved != "" {
			known[row.Saved] = row.ID
		}
		checkpoints, err := s.saved.Records().List(ctx, row.ID)
		if err != nil {
			return err
		}
		for _, c := range checkpoints {
			known[c.ID] = row.ID
		}
	}
	for _, e := range entries {
		if owner, ok := known[e.Checkpoint]; !ok || owner != e.Sandbox {
			continue
		}
		err := s.quarantine.Return(e.ID, s.saved.Path(e.Sandbox, e.Checkpoint))
		if errors.Is(err, fs.ErrExist) {
			continue // the sandbox has it, and this is another one
		}
		if err != nil {
			return fmt.Errorf("saved state of sandbox %s: %w", e.Sandbox, err)
		}
		s.log.Info("a saved state that the database knows is back from quarantine", "sandbox", e.Sandbox, "checkpoint", e.Checkpoint)
	}
	return nil
}
