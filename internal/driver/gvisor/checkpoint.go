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
	"golang.org/x/sync/errgroup"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/chunksum"
	"github.com/modbox/modbox/internal/sandbox"
)

// Checkpoint implements [driver.Checkpointer]. Beside dir, in its parent, is a
// directory whose name begins with ".new-" meanwhile.
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	if d.runtime == "" {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot save sandboxes: its gVisor is not known")
	}
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.lockStarted(ctx, id)
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
	case b.hasEnded(), hungUp(err):
		return b.endedError()
	case strings.Contains(err.Error(), "no space left on device"): // gVisor's words or the kernel's
		return sandbox.Wrap(sandbox.DiskFull, err, "the host's disk is too full to save the sandbox")
	}
	return publicError(err, "checkpoint box %s", id)
}

// checkpoint saves b into a directory beside dir and renames that when it is whole.
func (d *Driver) checkpoint(ctx context.Context, b *box, dir string, opts driver.CheckpointOptions) error {
	if _, err := os.Lstat(dir); err == nil {
		return sandbox.Errorf(sandbox.Exists, "the checkpoint exists already")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	b.mu.Lock()
	s := b.state
	b.mu.Unlock()
	m := manifest{
		Format: manifestFormat, GVisor: s.GVisor, CPU: d.cpu, Agent: s.Agent, RootFS: s.RootFS,
		Layout: s.Layout, Resources: s.Resources, MaxProcesses: s.MaxProcesses,
	}
	if err := d.restorable(m); err != nil {
		return err // before the work
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	undo := cleanup.Make(func() { _ = os.RemoveAll(temp) })
	defer undo.Clean()
	if err := d.capture(ctx, b, temp, opts); err != nil {
		return err
	}
	if opts.Stop {
		undo.Add(func() {
			if err := b.release(ctx); err != nil {
				d.cfg.Logger.Error("a box that could not be saved stands still", "sandbox", b.id, "error", err)
			}
		})
	}
	if !opts.Volatile {
		if m.Sums, err = secure(ctx, temp); err != nil {
			return err
		}
	}
	if err := writeManifest(temp, m); err != nil {
		return err
	}
	if err := d.CanRestore(temp); err != nil {
		return err
	}
	if !opts.Volatile {
		if err := syncFiles(ctx, temp, manifestName, manifestCopy, "."); err != nil {
			return err
		}
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	undo.Add(func() { _ = os.RemoveAll(dir) })
	if !opts.Volatile {
		if err := syncFile(filepath.Dir(dir)); err != nil {
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

// capture writes the state of b into dir. With Stop, b stands still when it
// returns nil; otherwise it goes on.
func (d *Driver) capture(ctx context.Context, b *box, dir string, opts driver.CheckpointOptions) (err error) {
	if !opts.Stop && !opts.Layer { // for that gVisor holds the box by itself
		if err := b.doors.Acquire(ctx, allDoors); err != nil {
			return context.Cause(ctx)
		}
		defer b.doors.Release(allDoors)
		return b.save(ctx, dir)
	}
	if opts.Layer {
		leave, err := d.readSlot(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	// With Stop gVisor would end the box by itself, but also when the saving failed.
	// And from the moment that is saved to its end nothing may happen: it would
	// happen twice. A layer must be of the same moment as the memory.
	if err := b.hold(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil || !opts.Stop {
			err = errors.Join(err, b.release(ctx))
		}
	}()
	if err := b.save(ctx, dir); err != nil {
		return err
	}
	if !opts.Layer {
		return nil
	}
	err = d.saveLayer(ctx, b, filepath.Join(dir, layerFile))
	if err == nil || ctx.Err() != nil {
		return err
	}
	d.cfg.Logger.Warn("a sandbox is saved without its files beside its memory", "sandbox", b.id, "error", err)
	return os.Remove(filepath.Join(dir, layerFile))
}

// saveLayer writes the layer of b, which stands still, to a new file.
func (d *Driver) saveLayer(ctx context.Context, b *box, name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = d.raiseMemory(b); err == nil {
		err = b.readTree(ctx, f)
		d.lowerMemory(b)
	}
	return errors.Join(err, f.Close())
}

// stop ends a box that is held and was saved. When it fails, the box is still held.
func (b *box) stop(ctx context.Context) error {
	b.mu.Lock()
	b.saved = true
	b.mu.Unlock()
	if err := b.proc.kill(); err != nil && !b.hasEnded() {
		return err
	}
	// Not given up when ctx ends: it is saved, and as good as ended.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	select {
	case <-b.ended:
		b.doors.Release(allDoors)
		return nil
	case <-wait.Done():
		return fmt.Errorf("stop box %s: %w", b.id, wait.Err())
	}
}

// save has gVisor write the box's state into files in dir. The box stands still
// meanwhile, and nobody is connected to it.
//
// Preconditions: the box's doors are shut.
func (b *box) save(ctx context.Context, dir string) error {
	wait, cancel := context.WithTimeout(ctx, hangUpTime)
	defer cancel()
	b.hangUp(wait)
	// gVisor cannot save a forwarded connection. It takes down those that others
	// closed here a moment ago in its own time, in which it is asked in vain.
	again := backoff.NewExponentialBackOff()
	again.InitialInterval = 5 * time.Millisecond
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := b.saveOnce(ctx, dir)
		var remote remoteError
		if err != nil && (!errors.As(err, &remote) || !strings.Contains(string(remote), "encoding error")) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(again), backoff.WithMaxElapsedTime(hangUpTime))
	return err
}

func (b *box) saveOnce(ctx context.Context, dir string) error {
	var fds []int
	for _, name := range savedFiles {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		fds = append(fds, fdOf(f))
	}
	args := control.SaveOpts{
		Metadata:      statefile.CompressionLevelNone.ToMetadata(),
		HavePagesFile: true,
		Resume:        true,
	}
	return call(ctx, saveRPC, b.dir, boot.ContMgrCheckpoint, &args, nil, fds...)
}

// secure has what was saved in dir written to disk, and returns its digests. They are
// computed meanwhile, of what is in the page cache, so they take no time of their own.
func secure(ctx context.Context, dir string) (sums map[string]chunksum.Sums, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		names := savedFiles
		if _, err := os.Lstat(filepath.Join(dir, layerFile)); err == nil {
			names = append([]string{layerFile}, names...)
		}
		return syncFiles(ctx, dir, names...)
	})
	g.Go(func() (err error) {
		sums, err = sumFiles(ctx, dir)
		return err
	})
	return sums, g.Wait()
}

// syncFiles has files in dir written to disk. It returns early when ctx ends.
func syncFiles(ctx context.Context, dir string, names ...string) error {
	done := make(chan error, 1)
	go func() {
		for _, name := range names {
			if err := syncFile(filepath.Join(dir, name)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
