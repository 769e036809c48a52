package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/sandbox"
)

// notStaged gives the error of a file that is not in the cache its name.
func notStaged(err error) error {
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Wrap(sandbox.Unavailable, errors.Join(driver.ErrNotStaged, err), "%s", driver.ErrNotStaged.Message)
	}
	return err
}

// make makes a box. If the answer does not arrive, the control plane has the box destroyed.
func (c *call) make(d driver.Driver) (h driver.Handle, err error) {
	if c.req.Spec == nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "the call has no spec")
	}
	spec := *c.req.Spec
	path, undo, err := c.served.cache.Use(spec.ID, spec.RootFS)
	if err != nil {
		return nil, notStaged(err)
	}
	defer func() {
		if err != nil {
			undo()
		}
	}()
	spec.RootFS = path
	if c.req.Op == opCreate {
		return d.Create(c.ctx, spec)
	}
	saver, err := as[driver.Checkpointer](d)
	if err != nil {
		return nil, err
	}
	c.served.mu.Lock()
	dir, ok := c.served.staged[c.req.Token]
	c.served.mu.Unlock()
	if !ok {
		return nil, driver.ErrNotStaged
	}
	return saver.Restore(c.ctx, spec, dir)
}

// furnish gives a box its root filesystem.
func (c *call) furnish(d driver.Driver) (layers int, err error) {
	f, err := as[driver.Furnisher](d)
	if err != nil {
		return 0, err
	}
	path, undo, err := c.served.cache.Use(c.req.ID, c.req.RootFS)
	if err != nil {
		return 0, notStaged(err)
	}
	if layers, err = f.Furnish(c.ctx, c.req.ID, path); err != nil {
		undo()
	}
	return layers, err
}

// image puts a file that the control plane sends into the cache.
func (c *call) image() {
	if len(c.req.Digests) != 1 {
		c.answer(&response{Error: encode(sandbox.Errorf(sandbox.Invalid, "the call has no digest"))})
		return
	}
	c.unwatch()
	if c.ctx.Err() != nil || writeMessage(c.stream, &response{}) != nil {
		return
	}
	defer context.AfterFunc(c.ctx, func() { _ = c.stream.Reset() })()
	body := &chunkReader{r: c.stream}
	err := c.served.cache.Add(c.req.Digests[0], c.req.Size, body)
	if err == nil {
		if _, err = io.Copy(io.Discard, body); err != nil {
			return // the stream broke off
		}
	}
	c.answer(&response{Error: encode(transferError(c.ctx, err))})
}

// stage keeps files of the cache, and receives a checkpoint and keeps it, until the control plane ends the call. The control plane sends the files that the
// cache lacks one by one with calls of their own. Files that have arrived stay meanwhile.
func (c *call) stage() {
	release := func() {}
	defer func() { release() }()
	for first := true; ; first = false {
		lacks, next, err := c.served.cache.Hold(c.ctx, c.req.Digests)
		if err != nil {
			c.answer(&response{Error: encode(err)})
			return
		}
		release()
		release = next
		if first {
			c.unwatch()
			defer context.AfterFunc(c.ctx, func() { _ = c.stream.Reset() })()
		}
		if c.ctx.Err() != nil || writeMessage(c.stream, &response{Lacks: lacks}) != nil {
			return
		}
		if len(lacks) == 0 {
			break
		}
		var arrived response
		if readMessage(c.stream, maxAnswer, &arrived) != nil {
			return
		}
	}
	if c.req.Token != "" {
		dir := filepath.Join(c.served.dir, rand.Text())
		defer os.RemoveAll(dir)
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			err = receiveTree(c.stream, dir, treeLimits{holes: true}, c.served.spaceToStage)
		}
		if err != nil {
			c.answer(&response{Error: encode(transferError(c.ctx, err))})
			return
		}
		c.served.mu.Lock()
		c.served.staged[c.req.Token] = dir
		c.served.mu.Unlock()
		defer func() {
			c.served.mu.Lock()
			delete(c.served.staged, c.req.Token)
			c.served.mu.Unlock()
		}()
		if writeMessage(c.stream, &response{}) != nil {
			return
		}
	}
	_, _ = c.stream.Read(make([]byte, 1)) // the end
}

// space reserves bytes of the disk for a save.
func (s *served) space(n int64) (*ballast.Reservation, error) {
	return s.cache.Reserve(n, rootcache.SpareBytes)
}

// spaceToStage reserves bytes of the disk for a staged checkpoint, and leaves space for saves.
func (s *served) spaceToStage(n int64) (*ballast.Reservation, error) {
	return s.cache.Reserve(n, max(s.cache.KeepFree(), 2*rootcache.SpareBytes))
}

// canRestore asks the driver whether it can restore a checkpoint. The control plane sends the files that describe the checkpoint; the worker
// makes the others as holes of their sizes.
func (c *call) canRestore(d driver.Driver) error {
	saver, err := as[driver.Checkpointer](d)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.served.dir, "described-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, f := range c.req.Files {
		if err := checkName(f.Name); err != nil {
			return err
		}
		path := filepath.Join(dir, f.Name)
		if err := os.WriteFile(path, f.Content, 0o600); err != nil {
			return err
		}
		if f.Content == nil {
			if err := os.Truncate(path, f.Size); err != nil {
				return err
			}
		}
	}
	return saver.CanRestore(dir)
}

// checkpoint saves a box on this disk, and gives the files to the control plane. A box that is to stop stops
// when the control plane has them, and goes on if it does not get them.
func (c *call) checkpoint(d driver.Driver) error {
	saver, err := as[driver.Checkpointer](d)
	if err != nil {
		return err
	}
	opts := c.req.Options
	space, err := c.spaceToSave(d, &opts)
	if err != nil {
		return err
	}
	defer space.Release()
	own := filepath.Join(c.served.dir, rand.Text())
	if err := os.Mkdir(own, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(own)
	dir := filepath.Join(own, "saved")
	ticker := time.NewTicker(countInterval)
	defer ticker.Stop()
	defer countWritten(space, own, ticker.C)()
	give := func(ctx context.Context, dir string) error {
		space.Release() // the files take it now
		return c.give(ctx, dir)
	}
	opts.Unsynced = true
	if opts.Stop {
		opts.Take = give
		return saver.Checkpoint(c.ctx, c.req.ID, dir, opts)
	}
	if err := saver.Checkpoint(c.ctx, c.req.ID, dir, opts); err != nil {
		return err
	}
	return give(c.ctx, dir)
}

// countInterval is the time between two measurements of the files of a save that is being written.
const countInterval = time.Second / 2

// countWritten counts, with each tick, what is written into a directory until stop is called: files take their own space, which is not reserved as well.
func countWritten(space interface{ Wrote(n int64) }, dir string, tick <-chan time.Time) (stop func()) {
	stopped := make(chan struct{})
	var counting sync.WaitGroup
	counting.Go(func() {
		counted := int64(0)
		for {
			select {
			case <-tick:
			case <-stopped:
				return
			}
			if n := allocated(dir); n > counted {
				space.Wrote(n - counted)
				counted = n
			}
		}
	})
	return func() { close(stopped); counting.Wait() }
}

// allocated returns the bytes that the files in a directory take on the disk. Files may come and go meanwhile.
func allocated(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil && syscall.Lstat(path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			n += st.Blocks * 512
		}
		return nil // a file that is gone takes nothing
	})
	return n
}

// spaceToSave reserves the space of a checkpoint, without a layer if there is no space for it.
func (c *call) spaceToSave(d driver.Driver, opts *driver.CheckpointOptions) (*ballast.Reservation, error) {
	use, err := d.Stats(c.ctx, c.req.ID)
	if err != nil { // then Checkpoint has a better error
		use = sandbox.Stats{}
	}
	if opts.FilesOnly {
		use.MemoryBytes = 0
	}
	if opts.Layer {
		space, err := c.served.space(use.MemoryBytes + 2*use.DiskBytes)
		if err == nil {
			return space, nil
		}
		opts.Layer = false
	}
	return c.served.space(use.MemoryBytes + use.DiskBytes)
}

// give sends a checkpoint, and returns when the control plane has it.
func (c *call) give(ctx context.Context, dir string) error {
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	c.unwatch()
	defer context.AfterFunc(ctx, func() { _ = c.stream.Reset() })()
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	err = writeMessage(c.stream, &response{})
	if err == nil {
		err = sendTree(c.stream, dir, files)
	}
	var taken response
	if err == nil {
		err = readMessage(c.stream, maxAnswer, &taken)
	}
	return transferError(ctx, err)
}
