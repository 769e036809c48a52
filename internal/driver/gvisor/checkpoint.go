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

// Checkpoint implements [driver.Checkpointer]. While it runs, the parent of dir contains a
// directory whose name begins with ".new-".
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	if d.runtime == "" {
		return sandbox.Errorf(sandbox.Unsupported, "this server cannot save sandboxes: its gVisor version is unknown")
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
	b.mu.Lock()
	s := b.state
	b.mu.Unlock()
	m := manifest{
		Format: manifestFormat, GVisor: s.GVisor, CPU: d.cpu, Agent: s.Agent, RootFS: s.RootFS,
		Layout: s.Layout, Resources: s.Resources, MaxProcesses: s.MaxProcesses,
	}
	if err := d.restorable(m); err != nil {
		return err // checked before the work
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
			if err := b.thaw(ctx); err != nil {
				d.cfg.Logger.Error("a box that could not be saved is still frozen", "sandbox", b.id, "error", err)
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

// capture writes the state of b into dir. With Stop, b is frozen when it returns nil; otherwise b
// goes on.
func (d *Driver) capture(ctx context.Context, b *box, dir string, opts driver.CheckpointOptions) (err error) {
	if !opts.Stop && !opts.Layer { // then gVisor freezes the box by itself
		if err := b.dialing.Acquire(ctx, allDialing); err != nil {
			return context.Cause(ctx)
		}
		defer b.dialing.Release(allDialing)
		return b.save(ctx, dir)
	}
	if opts.Layer {
		leave, err := d.readSlot(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	// With Stop gVisor could end the box by itself, but it would do so even if saving failed. The
	// box must not run between its saving and its end: what it did then would happen again after
	// the restore. A layer must show the same moment as the memory.
	if err := b.freeze(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil || !opts.Stop {
			err = errors.Join(err, b.thaw(ctx))
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
	d.cfg.Logger.Warn("the files of a sandbox could not be saved beside its memory", "sandbox", b.id, "error", err)
	return os.Remove(filepath.Join(dir, layerFile))
}

// saveLayer writes the layer of b, which is frozen, to a new file.
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

// stop ends a box that is frozen and was saved. On an error the box is still frozen.
func (b *box) stop(ctx context.Context) error {
	b.mu.Lock()
	b.saved = true
	b.mu.Unlock()
	if err := b.proc.kill(); err != nil && !b.hasEnded() {
		return err
	}
	// Not cancelled when ctx ends: the box is saved, and about to end.
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	select {
	case <-b.ended:
		b.dialing.Release(allDialing)
		return nil
	case <-wait.Done():
		return fmt.Errorf("stop box %s: %w", b.id, wait.Err())
	}
}

// save makes gVisor write the box's state into files in dir. The box is frozen meanwhile, and has
// no connections.
//
// Preconditions: the whole weight of dialing is acquired.
func (b *box) save(ctx context.Context, dir string) error {
	wait, cancel := context.WithTimeout(ctx, hangUpTime)
	defer cancel()
	b.hangUp(wait)
	// gVisor cannot save a forwarded connection. It closes its ends of connections that were just
	// closed here asynchronously; until then saving fails and is tried again.
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

// secure syncs the files of dir to disk, and returns their digests, which it computes meanwhile
// from the page cache, so that they take no additional time.
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

// syncFiles syncs files in dir to disk. It returns early when ctx ends.
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
