package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// Checkpoint implements [driver.Checkpointer]. The worker saves the box on its disk and sends the files; with Stop it ends the box
// when they are complete here. A checkpoint that is complete counts, also if the worker does not hear of that: then
// its box goes on, and is destroyed when the worker is back.
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	if _, err := os.Lstat(dir); err == nil {
		return sandbox.Errorf(sandbox.Exists, "the checkpoint exists already")
	}
	release, err := d.forSave(ctx, id, opts.Workspace) // before the box is frozen
	if err != nil {
		return err
	}
	defer release()
	stream, _, err := d.on(ctx, &request{Op: opCheckpoint, ID: id, Options: opts}, false, d.cfg.Patience)
	if err != nil {
		return err
	}
	defer stream.Reset()
	if err := keepCheckpoint(ctx, stream, dir, opts, spaceOn(d.cfg.Space, filepath.Dir(dir))); err != nil {
		return err
	}
	var last response
	err = writeMessage(stream, &response{}) // it may go
	if err == nil {
		_ = stream.SetReadDeadline(time.Now().Add(cancelTimeout))
		err = readMessage(stream, maxAnswer, &last)
	}
	if opts.Stop && (err != nil || last.Error != nil) { // it may have ended, and must not go on
		d.destroySoon(ctx, id)
	}
	return nil
}

// keepCheckpoint writes the files of a checkpoint from a stream. dir exists if it returns nil, which it does not after
// ctx has ended.
func keepCheckpoint(ctx context.Context, stream *yamux.Stream, dir string, opts driver.CheckpointOptions, space func(n int64) (*ballast.Reservation, error)) (err error) {
	goesOn := context.AfterFunc(ctx, func() { _ = stream.Reset() })
	defer goesOn()
	temp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = stream.Reset()
			err = transferError(ctx, errors.Join(err, os.RemoveAll(temp)))
		}
	}()
	if err := receiveTree(stream, temp, treeLimits{bytes: opts.MaxBytes}, space); err != nil {
		return err
	}
	if !opts.Volatile {
		if err := syncTree(temp); err != nil {
			return err
		}
	}
	if opts.Stop && opts.Take != nil {
		if err := opts.Take(ctx, temp); err != nil {
			return err
		}
	}
	if !goesOn() {
		return context.Cause(ctx)
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	if !opts.Volatile {
		if err := durable.Sync(filepath.Dir(dir)); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
	}
	return nil
}

// syncTree brings the files in a directory and their names to the disk.
func syncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	paths := make([]string, 0, len(entries)+1)
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return durable.Sync(append(paths, dir)...)
}

// CanRestore implements [driver.Checkpointer]. The worker gets what describes the checkpoint, and the sizes of the other files.
func (d *Driver) CanRestore(dir string) error {
	ctx, leave := d.enter(context.Background())
	defer leave()
	files, err := filesOf(dir)
	if err != nil {
		return err
	}
	for i, f := range files {
		if !describes(f.Name) {
			continue
		}
		if f.Size > maxDescription {
			return sandbox.Errorf(sandbox.Unavailable, "the file %s of the checkpoint has %d bytes", f.Name, f.Size)
		}
		if files[i].Content, err = os.ReadFile(filepath.Join(dir, f.Name)); err != nil {
			return err
		}
	}
	_, err = d.ask(ctx, &request{Op: opCanRestore, Files: files}, d.cfg.Patience)
	return err
}

// maxDescription bounds a file that describes a checkpoint. Two of them fit into a message.
const maxDescription = 8 << 20

// Restore implements [driver.Checkpointer]. The checkpoint must be staged.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	token, err := d.stager.staged(spec.RootFS, dir)
	if err != nil {
		return nil, err
	}
	return d.makeBox(ctx, &request{Op: opRestore, ID: spec.ID, Token: token}, spec)
}

// Verify implements [driver.Checkpointer].
func (d *Driver) Verify(ctx context.Context, dir string) (memory, files error) {
	return d.cfg.Saved.Verify(ctx, dir)
}

// OpenLayer implements [driver.Checkpointer].
func (d *Driver) OpenLayer(dir string) (io.ReadCloser, error) { return d.cfg.Saved.OpenLayer(dir) }

// layerReader reads a layer that the worker sends.
type layerReader struct {
	stream *yamux.Stream
	body   chunkReader
}

// Read implements io.Reader. At the end it returns the worker's error, if there is one.
func (l *layerReader) Read(p []byte) (int, error) {
	n, err := l.body.Read(p)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, errOutcome
	}
	var last response
	if err := readMessage(l.stream, maxAnswer, &last); err != nil {
		return n, errOutcome
	}
	if err := last.Error.decode(); err != nil {
		return n, err
	}
	return n, io.EOF
}

// WriteLayer implements [driver.Snapshotter].
func (d *Driver) WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.receive(ctx, &request{Op: opWriteLayer, ID: id}, w)
}

// WriteNames implements [driver.Snapshotter].
func (d *Driver) WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error {
	return d.receive(ctx, &request{Op: opWriteNames, ID: id}, w)
}

// receive makes a call whose answer is a layer.
func (d *Driver) receive(ctx context.Context, req *request, w io.Writer) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	if d.bodies.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer d.bodies.Release(1)
	stream, _, err := d.on(ctx, req, true, d.cfg.Patience)
	if err != nil {
		return err
	}
	defer stream.Reset()
	defer context.AfterFunc(ctx, func() { _ = stream.Reset() })()
	ofWriter, err := transfer(w, &layerReader{stream: stream, body: chunkReader{r: stream}})
	if err != nil && !ofWriter && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
