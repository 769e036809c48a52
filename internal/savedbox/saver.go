package savedbox

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// Saver writes the states of boxes to files. It changes the state of no sandbox.
type Saver struct {
	driver          driver.Driver
	saved           *checkpoint.Store
	fetch           func(context.Context, *box.Box) error
	interrupter     *execution.Interrupter
	transferTimeout time.Duration
}

// NewSaver returns a saver, whose interrupter ends the processes of a box whose memory is not saved. Fetch brings the state of a
// paused box to the disk. It waits
// for transferTimeout for transfers of files, whose connections a save breaks.
func NewSaver(d driver.Driver, saved *checkpoint.Store, fetch func(context.Context, *box.Box) error, interrupter *execution.Interrupter, transferTimeout time.Duration) *Saver {
	return &Saver{driver: d, saved: saved, fetch: fetch, interrupter: interrupter, transferTimeout: transferTimeout}
}

// SaveError means that the driver began to save a box and could not.
type SaveError struct {
	ID  sandbox.ID
	Err error
}

func (e *SaveError) Error() string { return fmt.Sprintf("save sandbox %s: %v", e.ID, e.Err) }
func (e *SaveError) Unwrap() error { return e.Err }

// Exclusively runs f, which saves a box, as an operation on it, see [box.Box.Exclusively]. If the driver saves only a few boxes at a time,
// calls into the sandbox and other operations go on until it is the turn of the box.
func (s *Saver) Exclusively(ctx context.Context, b *box.Box, kind box.OperationKind, f func() error) error {
	d, ok := s.driver.(driver.SaveReserver)
	if !ok {
		return b.Exclusively(ctx, kind, f)
	}
	turn := func(ctx context.Context) (release func(), err error) {
		return d.ReserveSave(ctx, b.ID, b.View().Sandbox.Workspace)
	}
	return b.ExclusivelyInTurn(ctx, kind, turn, f)
}

// CheckFiles returns the reason why the files of a box cannot be saved; nil if it does not find out in time.
// Errors: as [checkpoint.Store.CheckFiles].
func (s *Saver) CheckFiles(b *box.Box) error {
	ctx, cancel := context.WithTimeout(b.Context(), saveTimeout)
	defer cancel()
	return s.saved.CheckFiles(ctx, b.ID)
}

// Save writes a checkpoint of a started box, without a layer when the disk has no space for it. Errors: also
// [SaveError].
func (s *Saver) Save(b *box.Box, path string, opts driver.CheckpointOptions) error {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.Context(), saveTimeout)
	defer cancel()
	// The estimate is the present use: the box is frozen, so its memory does not grow.
	stats, err := s.driver.Stats(ctx, b.ID)
	if err != nil {
		return fmt.Errorf("measure sandbox %s: %w", b.ID, err)
	}
	if opts.FilesOnly {
		stats.MemoryBytes = 0
	}
	opts.Layer = opts.Layer && s.saved.CheckSpace(stats.MemoryBytes+2*stats.DiskBytes) == nil
	if err := s.saved.CheckSpace(stats.MemoryBytes + stats.DiskBytes); err != nil {
		return err
	}
	if err := s.saved.MakeOwner(path); err != nil {
		return err
	}
	b.Transfers.Wait(ctx, s.transferTimeout) // no calls begin while the box is taken
	if opts.FilesOnly {
		s.interrupter.EndAll(ctx, b)
	}
	sb := b.Sandbox()
	opts.Workspace, opts.MaxBytes = sb.Workspace, driver.MaxCheckpoint(sb.Resources)
	end := b.BeginSave()
	err = saver.Checkpoint(ctx, b.ID, path, opts)
	b.Agent.Reset() // its connections do not outlive a checkpoint
	end()
	if err != nil {
		return &SaveError{ID: b.ID, Err: err}
	}
	return nil
}

// SaveTo writes the state of a running or paused box. A running box continues afterwards.
func (s *Saver) SaveTo(b *box.Box, path string, opts driver.CheckpointOptions) error {
	switch sb := b.Sandbox(); sb.State {
	case sandbox.Running:
		return s.Save(b, path, opts)
	case sandbox.Paused:
		if err := s.fetch(b.Context(), b); err != nil {
			return err
		}
		return s.saved.Copy(s.saved.Path(b.ID, sb.Saved), path)
	default:
		return box.StateError(&sb)
	}
}
