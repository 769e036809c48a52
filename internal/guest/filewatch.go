package guest

import (
	"context"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// FileWatch reports changes of files of a sandbox. It continues when the sandbox is saved for a
// checkpoint or a fork, and then reports that it may have missed changes. One goroutine at a
// time calls Next; any may call Close.
type FileWatch struct {
	call      *call
	path      string
	recursive bool
	ready     bool // Next has returned the first event

	mu     sync.Mutex
	watch  *agentapi.Watch // guarded by mu; replaced by Next
	closed bool            // guarded by mu
}

// Watch begins to report changes below a path of a running sandbox; see
// agentapi.Client.Watch. ctx bounds the whole watch, and the caller closes it. An open watch
// is no activity: the sandbox can become idle.
func (g *Calls) Watch(ctx context.Context, c sandbox.Caller, ref, path string, recursive bool) (*FileWatch, error) {
	b, err := g.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	w := &FileWatch{call: newCall(ctx, b), path: path, recursive: recursive}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

// open connects to the agent.
func (w *FileWatch) open() error {
	for {
		watch, err := w.call.box.Agent.Watch(w.call.ctx, w.path, w.recursive)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.watch = watch
			if w.closed {
				_ = watch.Close() // nobody waits for its events
			}
			return nil
		}
		if err := w.call.again(err); err != nil {
			return err
		}
	}
}

// Next returns the next event, the first of which is agentapi.WatchReady. After a save of the
// sandbox it returns agentapi.WatchOverflow as soon as changes are reported again. The error is
// io.EOF after the watched path is gone; every other error has a code.
func (w *FileWatch) Next() (agentapi.FileEvent, error) {
	for {
		w.mu.Lock()
		watch := w.watch
		w.mu.Unlock()
		e, err := watch.Next()
		switch {
		case err == io.EOF:
			return e, err
		case err == nil && e.Type == agentapi.WatchReady && w.ready:
			e.Type = agentapi.WatchOverflow // this connection is not the first
			return e, nil
		case err == nil:
			w.ready = w.ready || e.Type == agentapi.WatchReady
			return e, nil
		}
		_ = watch.Close() // it is broken
		if err := w.call.again(err); err != nil {
			return agentapi.FileEvent{}, err
		}
		if err := w.open(); err != nil {
			return agentapi.FileEvent{}, err
		}
	}
}

// Close ends the watch. It may be called again.
func (w *FileWatch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.watch.Close()
}
