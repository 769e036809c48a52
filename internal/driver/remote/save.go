package remote

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/sandbox"
)

// Checkpoint implements [driver.Checkpointer]. When the connection breaks it waits for the worker until ctx has ended and
// for its patience longer, and finds out whether the checkpoint is complete.
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	stream, _, err := d.on(ctx, &request{Op: opCheckpoint, ID: id, Dir: dir, Options: opts}, false, d.cfg.Patience)
	if stream != nil {
		_ = stream.Close()
	}
	if !errors.Is(err, errOutcome) {
		return err
	}
	later, cancel := outlast(ctx, d.life, d.cfg.Patience)
	defer cancel()
	_, found := d.ask(later, &request{Op: opCanRestore, Dir: dir}, 0)
	if found != nil && !(opts.FilesOnly && errors.Is(found, driver.ErrNoMemory)) {
		return err
	}
	if opts.Stop { // the worker may have ended before it stopped the box
		if err := durable.Sync(filepath.Dir(dir)); err != nil { // the worker may have ended before that, too
			return err
		}
		_, err := d.ask(later, &request{Op: opDestroy, ID: id}, 0)
		return err
	}
	return nil
}

// outlast returns a context that ends a patience after ctx, and with the life of a driver.
func outlast(ctx, life context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	closed := context.AfterFunc(life, func() { cancel(errClosed) })
	ended := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(patience):
			cancel(errAway)
		case <-later.Done():
		}
	})
	return later, func() { closed(); ended(); cancel(nil) }
}

// CanRestore implements [driver.Checkpointer].
func (d *Driver) CanRestore(dir string) error {
	ctx, leave := d.enter(context.Background())
	defer leave()
	_, err := d.ask(ctx, &request{Op: opCanRestore, Dir: dir}, d.cfg.Patience)
	return err
}

// Restore implements [driver.Checkpointer].
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	return d.makeBox(ctx, &request{Op: opRestore, ID: spec.ID, Spec: &spec, Dir: dir})
}

// Verify implements [driver.Checkpointer].
func (d *Driver) Verify(ctx context.Context, dir string) (memory, files error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	answer, err := d.ask(ctx, &request{Op: opVerify, Dir: dir}, d.cfg.Patience)
	if err != nil {
		return err, err
	}
	return answer.Memory.decode(), answer.Files.decode()
}

// Tidy implements [driver.Tidier].
func (d *Driver) Tidy(checkpoints []string) error {
	ctx, leave := d.enter(context.Background())
	defer leave()
	_, err := d.ask(ctx, &request{Op: opTidy, Dirs: checkpoints}, d.cfg.Patience)
	return err
}

// layerReader reads a layer that the worker sends.
type layerReader struct {
	stream *yamux.Stream
	body   chunkReader
	freed  func() // is called by Close, once or more
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

// Close implements io.Closer.
func (l *layerReader) Close() error {
	err := l.stream.Reset()
	l.freed()
	return err
}

// OpenLayer implements [driver.Checkpointer].
func (d *Driver) OpenLayer(dir string) (io.ReadCloser, error) {
	ctx, leave := d.enter(context.Background())
	defer leave()
	if d.bodies.Acquire(ctx, 1) != nil {
		return nil, context.Cause(ctx)
	}
	opened := false
	free := sync.OnceFunc(func() { d.bodies.Release(1) })
	defer func() {
		if !opened {
			free()
		}
	}()
	for {
		s, err := d.current(ctx, d.cfg.Patience)
		if err != nil {
			return nil, err
		}
		stream, _, err := s.open(ctx, &request{Op: opOpenLayer, Dir: dir})
		switch {
		case err == nil:
			opened = true
			return &layerReader{stream: stream, body: chunkReader{r: stream}, freed: free}, nil
		case !errors.Is(err, errLost):
			return nil, err
		case !s.over(ctx):
			return nil, errOutcome
		}
	}
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
