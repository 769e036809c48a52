package gvisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/control"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/ocilayer"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sparse"
)

// treeSlack is how much larger a tar may be than the files that fill the disk, because of headers.
const treeSlack = 256 << 20

// WriteLayer implements [driver.Snapshotter]. The box is frozen while the tree is copied into an
// unlinked file of the host.
func (d *Driver) WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lockStarted(ctx, id)
	if err != nil {
		return err
	}
	tree, err := upper{b}.copy(ctx)
	b.unlock()
	if err != nil {
		return upper{b}.readError(ctx, err)
	}
	defer tree.Close()
	if _, err := io.Copy(w, contextReader{ctx, tree}); err != nil {
		return ended(ctx, err)
	}
	return nil
}

// WriteNames implements [driver.Snapshotter].
func (d *Driver) WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error {
	ctx, leave := d.calls.enter(ctx)
	defer leave()
	b, err := d.boxes.lockStarted(ctx, id)
	if err != nil {
		return err
	}
	defer b.unlock()
	if err := (upper{b}).readFrozen(ctx, w, ocilayer.NamesFromOverlay, driver.NamesTimeout); err != nil {
		return upper{b}.readError(ctx, err)
	}
	return nil
}

// upper is the upper layer of a box: what the box has written over its root filesystem.
type upper struct{ box *box }

// readError returns the error for a caller whose box could not be read.
func (u upper) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case u.box.hasEnded(), control.HungUp(err):
		return u.box.endedError()
	}
	return publicError(err, "read the files of box %s", u.box.id)
}

// contextReader reads until ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// copy returns an unlinked file of the host with the layer.
func (u upper) copy(ctx context.Context) (_ *os.File, err error) {
	tree, err := os.CreateTemp(string(u.box.host.paths.layers()), "export-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			tree.Close()
		}
	}()
	if err := os.Remove(tree.Name()); err != nil {
		return nil, err
	}
	out := sparse.NewWriter(tree)
	if err := u.readFrozen(ctx, out, u.lenient(ocilayer.FromOverlay), 0); err != nil {
		return nil, err
	}
	if err := out.Finish(); err != nil {
		return nil, err
	}
	if _, err := tree.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return tree, nil
}

// conversion converts the tar of an overlay's upper layer: see package ocilayer.
type conversion func(w io.Writer, r io.Reader, skip []string) error

// lenient is a conversion that only logs that it omits names.
func (u upper) lenient(convert conversion) conversion {
	return func(w io.Writer, r io.Reader, skip []string) error {
		err := convert(w, r, skip)
		if errors.Is(err, driver.ErrOmitted) {
			u.box.host.logger.Warn("the saved files of a sandbox lack some names", "sandbox", u.box.id, "error", err)
			return nil
		}
		return err
	}
}

// readFrozen is read while the box is frozen, for at most the timeout, when there is a slot soon; 0 is any time for both.
func (u upper) readFrozen(ctx context.Context, out io.Writer, convert conversion, timeout time.Duration) error {
	b := u.box
	if b.blank() {
		return errBlank
	}
	slot := b.host.readSlot
	if timeout != 0 {
		slot = b.host.readSlotSoon
	}
	leave, err := slot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := b.freeze(ctx); err != nil {
		return err
	}
	err = b.raiseMemory()
	if err == nil {
		err = within(ctx, timeout, func(ctx context.Context) error { return u.read(ctx, out, convert) })
	}
	err = errors.Join(err, b.thaw(ctx))
	b.lowerMemory()
	return err
}

// within calls read, for at most the timeout; 0 is any time.
func within(ctx context.Context, timeout time.Duration, read func(context.Context) error) error {
	if timeout == 0 {
		return read(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := read(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return sandbox.Errorf(sandbox.Timeout, "the files of the sandbox could not be read within %s", timeout) // not err: it looks like the end of the box
	}
	return err
}

// read makes gVisor write the tree into a pipe, and converts it to a layer in out. Holes in
// files arrive as zeros, so there must be a limit.
func (u upper) read(ctx context.Context, out io.Writer, convert conversion) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer from.Close()
	asked := make(chan error, 1)
	go func() {
		err := u.box.gvisor.WriteTree(ctx, to)
		to.Close() // gVisor has closed its copy by then, or the box has ended
		asked <- err
	}()
	stop := context.AfterFunc(ctx, func() { from.Close() })
	defer stop()
	limit := &io.LimitedReader{R: from, N: u.box.resources.DiskBytes + treeSlack}
	written := &failedWriter{w: out}
	err = convert(written, limit, skippedDirs(u.box.layout))
	if err == nil || errors.Is(err, driver.ErrOmitted) {
		_, perr := io.Copy(io.Discard, limit) // the padding at the end of a tar
		err = cmp.Or(perr, err)
	}
	from.Close() // further writes fail, so gVisor stops
	aerr := <-asked
	switch {
	case limit.N <= 0:
		return sandbox.Errorf(sandbox.TooLarge, "the files of the sandbox, including holes in them, are larger than its disk")
	case written.err != nil:
		return written.err // gVisor says only that nobody reads
	case aerr != nil:
		return aerr
	case errors.Is(err, driver.ErrOmitted):
		return err
	case err != nil:
		return fmt.Errorf("read tree: %w", err)
	}
	return nil
}

// failedWriter keeps the error of a writer.
type failedWriter struct {
	w   io.Writer
	err error
}

func (f *failedWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

// skippedDirs returns the directories that do not belong to the layer of the root.
func skippedDirs(l layer.Layout) []string {
	dirs := []string{"proc", "sys", "dev", agentimage.Mount[1:]}
	if !l.PlainTmp {
		dirs = append(dirs, "tmp")
	}
	return dirs
}
