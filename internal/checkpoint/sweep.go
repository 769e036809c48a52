package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	unknownSandbox    = "the database has no sandbox of this id"
	unknownCheckpoint = "the database has the sandbox, but not this saved state of it"
)

// Owners knows the sandboxes that saved states belong to. It is safe for concurrent use.
type Owners interface {
	// Owner returns the owner of saved states; false while the sandbox is being made or changed.
	Owner(id sandbox.ID) (Owner, bool)
	// SandboxByID returns a sandbox in any state, from its row. Errors: NotFound.
	SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error)
}

// Owner is the owner of saved states.
type Owner struct {
	// Live says that the sandbox has not ended.
	Live bool
	// Saved is the state that the sandbox is paused with; "" for none.
	Saved sandbox.CheckpointID
}

// Sweeper removes saved states that no row refers to, or moves them into quarantine.
type Sweeper struct {
	store      *Store
	quarantine *quarantine.Store
	owners     Owners
}

// NewSweeper returns a sweeper of a store.
func NewSweeper(store *Store, q *quarantine.Store, owners Owners) *Sweeper {
	return &Sweeper{store: store, quarantine: q, owners: owners}
}

// Sweep removes the remains of interrupted operations. It moves complete saved states without a row
// into quarantine, because the database may be the wrong one. It returns the errors of all states
// that it could not examine; the next sweep tries them again.
func (w *Sweeper) Sweep(ctx context.Context) error {
	if _, err := w.store.Checkpointer(); err != nil {
		return nil // without the driver's help nothing shows which states are complete
	}
	found, err := w.store.List()
	if err != nil {
		return fmt.Errorf("list checkpoints: %w", err)
	}
	var errs []error
	for id, names := range found {
		owner, settled := w.owners.Owner(id)
		if !settled || owner.Live && len(names) == 0 { // the empty directory of a sandbox that was paused stays
			continue
		}
		if err := w.sweepOwner(ctx, id, owner, names); err != nil {
			errs = append(errs, fmt.Errorf("saved states of %s: %w", id, err))
		}
	}
	if err := w.store.SweepForks(); err != nil {
		errs = append(errs, fmt.Errorf("remove checkpoints of forks: %w", err))
	}
	return errors.Join(errs...)
}

// sweepOwner is Sweep for the saved states of a single sandbox.
func (w *Sweeper) sweepOwner(ctx context.Context, id sandbox.ID, owner Owner, names []string) error {
	row, err := w.owners.SandboxByID(ctx, id)
	reason := unknownCheckpoint
	switch {
	case !owner.Live && sandbox.CodeOf(err) == sandbox.NotFound:
		reason = unknownSandbox
	case err != nil:
		return err
	case !owner.Live && row.State.Ended():
		reason = "" // its end removed the saved states, or was interrupted
	case !owner.Live:
		return nil // the sweep of rows ends it
	}
	keep := map[string]bool{}
	if owner.Live {
		rows, err := w.store.Records().List(ctx, id)
		if err != nil {
			return err
		}
		for _, c := range rows {
			keep[string(c.ID)] = true
		}
		// A write may have had its effect although the store reported an error.
		keep[string(row.Saved)], keep[string(owner.Saved)] = true, true
	}
	var errs []error
	for _, name := range names {
		if !keep[name] {
			errs = append(errs, w.remove(ctx, id, sandbox.CheckpointID(name), reason))
		}
	}
	if !owner.Live { // a pause or a fetch of a live sandbox may be about to write into its directory
		w.store.RemoveOwner(id)
	}
	return errors.Join(errs...)
}

// remove removes a saved state without a row. It moves the state into quarantine instead if the
// state is complete, was not discarded, and reason is not empty.
func (w *Sweeper) remove(ctx context.Context, owner sandbox.ID, id sandbox.CheckpointID, reason string) error {
	_, saved := sandbox.ParseID(string(id)) // unfinished states have other names
	if reason == "" || !saved || !w.store.IsComplete(owner, id) {
		return w.store.Remove(owner, id)
	}
	discarded, err := w.store.Records().Discarded(ctx, id)
	if err != nil {
		return err
	}
	if discarded {
		return w.store.Discard(ctx, owner, id)
	}
	if err := w.quarantine.Put(w.store.Path(owner, id), owner, id, reason); err != nil {
		return err
	}
	w.store.log.Warn("a saved state that the database does not know is in quarantine; modbox quarantine ls shows it", "sandbox", owner, "checkpoint", id, "reason", reason)
	return nil
}

// Return moves saved states out of quarantine that the rows of live sandboxes refer to, because the
// right database is back.
func (w *Sweeper) Return(ctx context.Context, live []sandbox.Sandbox) error {
	entries, err := w.quarantine.List()
	if err != nil || len(entries) == 0 {
		return err
	}
	known := map[sandbox.CheckpointID]sandbox.ID{}
	for _, row := range live {
		if row.Saved != "" {
			known[row.Saved] = row.ID
		}
		checkpoints, err := w.store.Records().List(ctx, row.ID)
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
		err := w.quarantine.Return(e.ID, w.store.Path(e.Sandbox, e.Checkpoint))
		if errors.Is(err, fs.ErrExist) {
			continue // the sandbox has a state of that id, and this is another
		}
		if err != nil {
			return fmt.Errorf("saved state of sandbox %s: %w", e.Sandbox, err)
		}
		w.store.log.Info("a saved state that the database knows is back from quarantine", "sandbox", e.Sandbox, "checkpoint", e.Checkpoint)
	}
	return nil
}
