package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/ocilayer"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

// Checkpoint implements [driver.Checkpointer]. While it runs, the parent of dir contains a
// directory whose name begins with ".new-".
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	if d.saves.GVisor == "" && !opts.FilesOnly {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot save sandboxes: its gVisor version is unknown")
	}
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lockStarted(ctx, id)
	if err != nil {
		return err
	}
	defer b.unlock()
	err = d.checkpoint(ctx, b, dir, opts)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case b.hasEnded(), control.HungUp(err):
		return b.endedError()
	case strings.Contains(err.Error(), "no space left on device"): // the words of gVisor or the kernel
		return sandbox.Wrap(sandbox.DiskFull, err, "the host's disk is too full to save the sandbox")
	}
	return publicError(err, "checkpoint box %s", id)
}

// checkpoint saves b into a directory beside dir and renames that when it is complete.
func (d *Driver) checkpoint(ctx context.Context, b *box, dir string, opts driver.CheckpointOptions) error {
	if _, err := os.Lstat(dir); err == nil {
		return sandbox.Errorf(sandbox.Exists, "the checkpoint exists already")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if b.blank() {
		return errBlank
	}
	b.mu.Lock()
	s := b.state
	b.mu.Unlock()
	m := saved.Manifest{Format: saved.Format, RootFS: s.RootFS, Layout: s.Layout, Resources: s.Resources, FilesOnly: true}
	if !opts.FilesOnly {
		m = saved.Manifest{
			Format: s.format(), GVisor: s.GVisor, CPU: d.saves.CPU, Agent: s.Agent, Frame: s.Frame, RootFS: s.RootFS,
			Framed: s.Framed, Platform: s.Platform, Layout: s.Layout, Resources: s.Resources, MaxProcesses: s.MaxProcesses,
		}
		if err := d.saves.CanRestore(m); err != nil {
			return err // checked before the work
		}
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	undo := cleanup.Make(func() { _ = os.RemoveAll(temp) })
	defer undo.Clean()
	if err := b.capture(ctx, temp, opts); err != nil {
		return err
	}
	if opts.Stop {
		undo.Add(func() {
			if err := b.thaw(ctx); err != nil {
				d.host.logger.Error("a box that could not be saved is still frozen", "sandbox", b.id, "error", err)
			}
		})
	}
	synced := !opts.Volatile && !opts.Unsynced
	if !opts.Volatile {
		if m.Sums, err = saved.Sums(ctx, temp, synced); err != nil {
			return err
		}
	}
	if err := saved.WriteManifest(temp, m); err != nil {
		return err
	}
	if err := d.CanRestore(temp); err != nil && !(opts.FilesOnly && errors.Is(err, driver.ErrNoMemory)) {
		return err
	}
	if synced {
		if err := saved.SyncManifest(ctx, temp); err != nil {
			return err
		}
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	undo.Add(func() { _ = os.RemoveAll(dir) })
	if synced {
		if err := durable.Sync(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if opts.Stop && opts.Take != nil {
		if err := opts.Take(ctx, dir); err != nil {
			return err
		}
	}
	if opts.Stop {
		if err := b.stop(ctx); err != nil {
			return err
		}
	}
	undo.Release()
	return nil
}

// capture writes the state of b into dir. With Stop, b is frozen when it returns nil; otherwise b
// goes on.
func (b *box) capture(ctx context.Context, dir string, opts driver.CheckpointOptions) (err error) {
	if err := b.quiet(ctx, opts.FilesOnly); err != nil {
		return err
	}
	if !opts.Stop && !opts.Layer && !opts.FilesOnly { // then gVisor freezes the box by itself
		defer b.conns.dialing.Release(allDialing)
		return b.save(ctx, dir)
	}
	if opts.Layer || opts.FilesOnly {
		leave, err := quietSlot(ctx, b, opts.FilesOnly)
		if err != nil {
			return err
		}
		defer leave()
	}
	// With Stop gVisor could end the box by itself, but it would do so even if saving failed. The
	// box must not run between its saving and its end: what it did then would happen again after
	// the restore. A layer must show the same moment as the memory.
	if err := b.freezeQuiet(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil || !opts.Stop {
			err = errors.Join(err, b.thaw(ctx))
		}
	}()
	if opts.FilesOnly {
		return b.saveLayer(ctx, filepath.Join(dir, saved.LayerName), ocilayer.FromOverlay)
	}
	if err := b.save(ctx, dir); err != nil {
		return err
	}
	if !opts.Layer {
		return nil
	}
	err = b.saveLayer(ctx, filepath.Join(dir, saved.LayerName), upper{b}.lenient(ocilayer.FromOverlay))
	if err == nil || ctx.Err() != nil {
		return err
	}
	b.host.logger.Warn("the files of a sandbox could not be saved beside its memory", "sandbox", b.id, "error", err)
	return os.Remove(filepath.Join(dir, saved.LayerName))
}

// quietSlot takes a slot for reading the tree of b, which is quiet. No box waits for its agent while it has one
// of the few slots, unless they were all taken: then b can be called until one is free, and is made quiet again.
// When it fails, b is no longer quiet.
func quietSlot(ctx context.Context, b *box, lenient bool) (leave func(), err error) {
	if leave, ok := b.host.freeSlot(); ok {
		return leave, nil
	}
	b.conns.dialing.Release(allDialing)
	if leave, err = b.host.readSlot(ctx); err != nil {
		return nil, err
	}
	if err := b.quiet(ctx, lenient); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// saveLayer writes the layer of b, which is frozen, to a new file.
func (b *box) saveLayer(ctx context.Context, name string, convert conversion) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := sparse.NewWriter(f) // holes arrive as zeros
	if err = b.raiseMemory(); err == nil {
		err = upper{b}.read(ctx, out, convert)
		b.lowerMemory()
	}
	return errors.Join(err, out.Finish(), f.Close())
}

// stop ends a box that is frozen and was saved. On an error the box is still frozen.
func (b *box) stop(ctx context.Context) error {
	b.mu.Lock()
	b.saved = true
	b.mu.Unlock()
	if err := b.proc.Kill(); err != nil && !b.hasEnded() {
		return err
	}
	// Not cancelled when ctx ends: the box is saved, and about to end.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	select {
	case <-b.ended:
		b.conns.dialing.Release(allDialing)
		return nil
	case <-wait.Done():
		return fmt.Errorf("stop box %s: %w", b.id, wait.Err())
	}
}

// save makes gVisor write the box's state into files in dir. The box is frozen meanwhile, and has
// no connections.
//
// Preconditions: the whole weight of dialing is acquired, and connections were hung up.
func (b *box) save(ctx context.Context, dir string) error {
	// gVisor cannot save a connection to the host. Those handed over are closed already. gVisor closes its
	// ends of forwarded connections that were just closed here asynchronously; until then saving fails and is
	// tried again.
	if b.handover {
		return b.saveOnce(ctx, dir)
	}
	again := backoff.NewExponentialBackOff()
	again.InitialInterval = 5 * time.Millisecond
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := b.saveOnce(ctx, dir)
		if err != nil && !control.IsConnected(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(again), backoff.WithMaxElapsedTime(hangUpTime))
	return err
}

func (b *box) saveOnce(ctx context.Context, dir string) error {
	files, err := saved.Create(dir)
	if err != nil {
		return err
	}
	defer files.Close()
	return b.gvisor.Save(ctx, files)
}
