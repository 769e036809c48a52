package lifecycle

import (
	"context"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// FileWatch reports what happens to files of a sandbox. It goes on when the
// sandbox is saved for a checkpoint or a fork, and tells that it may have missed
// something then. Next is called by one goroutine at a time, Close by any.
type FileWatch struct {
	passage   *passage
	path      string
	recursive bool
	told      bool // the first event, ready

	mu     sync.Mutex
	watch  *agentapi.Watch // guarded by mu; replaced by Next
	closed bool            // guarded by mu
}

// Watch begins to report what happens to a path of a running sandbox; see
// agentapi.Client.Watch. ctx holds for the whole of the watch, and the caller
// closes it. A watch that is open is no activity: it does not keep a sandbox from being idle.
func (s *Service) Watch(ctx context.Context, c sandbox.Caller, ref, path string, recursive bool) (*FileWatch, error) {
	b, err := s.use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	w := &FileWatch{passage: s.passage(ctx, b), path: path, recursive: recursive}
	if err := w.open(); err != nil {
		return nil, err
	}
	return w, nil
}

// open connects to the agent.
func (w *FileWatch) open() error {
	for {
		watch, err := w.passage.box.Agent.Watch(w.passage.ctx, w.path, w.recursive)
		if err == nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.watch = watch
			if w.closed {
				_ = watch.Close() // nobody waits for its events
			}
			return nil
		}
		if err := w.passage.again(err); err != nil {
			return err
		}
	}
}

// Next returns the next event, the first of which is agentapi.WatchReady. After
// the sandbox was saved comes agentapi.WatchOverflow, once what happens is told
// again. The error is io.EOF after the watched path is gone; every other one has a code.
func (w *FileWatch) Next() (agentapi.FileEvent, error) {
	for {
		w.mu.Lock()
		watch := w.watch
		w.mu.Unlock()
		e, err := watch.Next()
		switch {
		case err == io.EOF:
			return e, err
		case err == nil && e.Type == agentapi.WatchReady && w.told:
			e.Type = agentapi.WatchOverflow // this connection is not the first
			return e, nil
		case err == nil:
			w.told = w.told || e.Type == agentapi.WatchReady
			return e, nil
		}
		_ = watch.Close() // it is broken
		if err := w.passage.again(err); err != nil {
			return agentapi.FileEvent{}, err
		}
		if err := w.open(); err != nil {
			return agentapi.FileEvent{}, err
		}
	}
}

// Close ends the watch. Closing twice does nothing.
func (w *FileWatch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return w.watch.Close()
}
