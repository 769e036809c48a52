package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// requestTimeout bounds the arrival of a request on its stream.
	requestTimeout = 10 * time.Second
	// namesTimeout bounds a wait for the control plane while a box is frozen for its names.
	namesTimeout = 10 * time.Second
)

// WorkerConfig configures a [Worker].
type WorkerConfig struct {
	// Open makes a driver that knows no box. The one before was closed.
	Open func() (driver.Driver, error)
	// Cache has the root filesystems, and the account of the disk.
	Cache *rootcache.Cache
	// Dir is for checkpoints under way, on the same file system. Nothing in it outlives a control plane or a process.
	Dir string
	// Host describes the worker.
	Host Host
	// Accept returns the reason why a control plane must not be served; nil for none.
	Accept func(Control) error
	// Accepted is called when a control plane uses a connection, which it may have refused after its greeting, and the function that it returns
	// when the connection has ended; nil for none.
	Accepted func() (ended func())
	Log      *slog.Logger
}

// Worker serves a driver of this host to a control plane.
type Worker struct {
	cfg WorkerConfig

	begin  sync.Mutex // held while a control plane is greeted
	served *served    // guarded by begin; nil before the first
	peer   *peer      // guarded by begin; the connection in use, which may be over
}

// NewWorker returns a worker that serves nobody yet.
func NewWorker(cfg WorkerConfig) *Worker { return &Worker{cfg: cfg} }

// Close closes the driver; its boxes go on. No connection may be served meanwhile or afterwards.
func (w *Worker) Close() error {
	w.begin.Lock()
	defer w.begin.Unlock()
	if w.served == nil {
		return nil
	}
	err := w.served.close()
	w.served = nil
	return err
}

// served is a driver that is served to a control plane, over one connection after the other.
type served struct {
	driver   driver.Driver
	instance string
	control  string // the instance of the control plane
	cache    *rootcache.Cache
	dir      string // for checkpoints under way

	plugging sync.Mutex // orders changes of interfaces

	mu    sync.Mutex
	links map[sandbox.ID]*workerLink // guarded by mu; by box
	// staged are the directories of checkpoints that are staged, by token. Guarded by mu.
	staged map[string]string
}

func (s *served) close() error {
	s.mu.Lock()
	for _, l := range s.links {
		_ = l.packets.Close()
	}
	s.links = nil
	s.mu.Unlock()
	return s.driver.Close()
}

// peer is a connection to a control plane.
type peer struct {
	worker *Worker
	mux    *yamux.Session
	done   chan struct{} // closed when the calls of the connection have ended
	calls  sync.WaitGroup
	served *served // set by hello
}

// Serve serves the calls of a control plane on conn, which both sides have authenticated, until it breaks or ctx
// ends, and closes it. It returns when all calls have ended. Boxes and their interfaces stay.
func (w *Worker) Serve(ctx context.Context, conn net.Conn) error {
	mux, err := yamux.Client(conn, muxConfig(maxStreams), nil)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("multiplex: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &peer{worker: w, mux: mux, done: make(chan struct{})}
	defer close(p.done)
	defer p.calls.Wait()
	defer cancel()
	defer mux.Close()
	defer context.AfterFunc(ctx, func() { _ = mux.Close() })()
	if err := p.greet(ctx); err != nil {
		return err
	}
	for used := false; ; used = true {
		stream, err := mux.AcceptStream()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("the connection ended: %w", err)
		}
		if !used && w.cfg.Accepted != nil {
			defer w.cfg.Accepted()()
		}
		p.calls.Go(func() { p.serve(ctx, stream) })
	}
}

// greet answers the first call of a connection.
func (p *peer) greet(ctx context.Context) error {
	late := time.AfterFunc(helloTimeout, func() { _ = p.mux.Close() })
	defer late.Stop()
	stream, err := p.mux.AcceptStream()
	if err != nil {
		return fmt.Errorf("the server does not introduce itself: %w", err)
	}
	defer stream.Reset()
	var req request
	if err := readMessage(stream, maxMessage, &req); err != nil {
		return fmt.Errorf("the server does not introduce itself: %w", err)
	}
	if req.Op != opHello || req.Hello == nil {
		return errors.New("the server does not introduce itself")
	}
	answer, err := p.worker.take(ctx, p, *req.Hello)
	late.Stop()
	if werr := writeMessage(stream, &response{Error: encode(err), Welcome: answer}); err == nil {
		err = werr
	}
	if err == nil {
		return stream.CloseWrite()
	}
	_ = stream.CloseWrite()
	_, _ = stream.Read(make([]byte, 1)) // until the server has read the reason
	return err
}

// take ends the connection before, and serves a control plane on this one.
func (w *Worker) take(ctx context.Context, p *peer, c Control) (*Welcome, error) {
	w.begin.Lock()
	defer w.begin.Unlock()
	if c.Protocol != protocol {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the server speaks version %d of the workers' protocol, and this worker %d: they must be of the same version of Modbox", c.Protocol, protocol)
	}
	if err := w.cfg.Accept(c); err != nil {
		return nil, err
	}
	if w.peer != nil {
		_ = w.peer.mux.Close()
		select {
		case <-w.peer.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.peer = nil
	}
	if w.served != nil && w.served.control != c.Instance {
		if err := w.served.close(); err != nil {
			w.cfg.Log.Error("close the driver of the server before", "error", err)
		}
		w.served = nil
	}
	if w.served == nil {
		if err := w.open(ctx, c); err != nil {
			return nil, err
		}
	}
	w.peer, p.served = p, w.served
	w.cfg.Log.Info("serving a control plane", "installation", c.Installation, "epoch", c.Epoch)
	return &Welcome{Protocol: protocol, Instance: w.served.instance, Capabilities: w.served.driver.Capabilities(), Host: w.cfg.Host}, nil
}

// open makes the driver for a control plane. No call is in progress.
func (w *Worker) open(ctx context.Context, c Control) error {
	if err := errors.Join(os.RemoveAll(w.cfg.Dir), os.MkdirAll(w.cfg.Dir, 0o700)); err != nil {
		return fmt.Errorf("directory of checkpoints under way: %w", err)
	}
	d, err := w.cfg.Open()
	if err != nil {
		return err
	}
	ids, err := d.List(ctx)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	w.cfg.Cache.Retain(ids)
	w.served = &served{
		driver: d, instance: rand.Text(), control: c.Instance, cache: w.cfg.Cache, dir: w.cfg.Dir,
		links: map[sandbox.ID]*workerLink{}, staged: map[string]string{},
	}
	return nil
}

// serve answers a call.
func (p *peer) serve(ctx context.Context, stream *yamux.Stream) {
	defer stream.Reset()
	var req request
	_ = stream.SetReadDeadline(time.Now().Add(requestTimeout))
	if err := readMessage(stream, maxMessage, &req); err != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	c := &call{served: p.served, req: &req, stream: stream}
	var cancel context.CancelFunc
	c.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() { // the control plane ends its direction to cancel the call, and sends nothing else before the answer
		defer close(watched)
		if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, yamux.ErrTimeout) {
			cancel()
		}
	}()
	c.unwatch = func() {
		_ = stream.SetReadDeadline(time.Now())
		<-watched
		_ = stream.SetReadDeadline(time.Time{})
	}
	defer func() { _ = stream.Reset(); <-watched }()
	c.run()
}
