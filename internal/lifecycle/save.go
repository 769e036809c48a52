package lifecycle

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

// saver writes the states of boxes to files. It changes the state of no sandbox.
type saver struct {
	driver driver.Driver
	saved  *checkpoint.Store
	// interrupter ends the processes of a box whose memory is not saved.
	interrupter *execution.Interrupter
	// transferTimeout is how long a save waits for transfers of files, whose connections it breaks.
	transferTimeout time.Duration
}

// save writes a checkpoint of a started box, without a layer when the disk has no space for it.
func (s *saver) save(b *entry, path string, opts driver.CheckpointOptions) error {
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
		s.interrupter.EndAll(ctx, b.Box)
	}
	end := b.BeginSave()
	err = saver.Checkpoint(ctx, b.ID, path, opts)
	b.Agent.Reset() // its connections do not outlive a checkpoint
	end()
	if opts.FilesOnly {
		b.doubtful.Store(err != nil)
	}
	if err != nil {
		return fmt.Errorf("save sandbox %s: %w", b.ID, err)
	}
	return nil
}

// saveTo writes the state of a running or paused box. A running box continues afterwards.
func (s *saver) saveTo(b *entry, path string, opts driver.CheckpointOptions) error {
	switch sb := b.Sandbox(); sb.State {
	case sandbox.Running:
		return s.save(b, path, opts)
	case sandbox.Paused:
		return s.saved.Copy(s.saved.Path(b.ID, sb.Saved), path)
	default:
		return box.StateError(&sb)
	}
}
