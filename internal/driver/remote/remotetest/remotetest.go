// Package remotetest connects a control plane and a worker in a test, as a server and modbox worker do: by TLS,
// with certificates of their own.
package remotetest

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// testTimeout is how long a test waits for an event. Nothing takes so long unless it never happens.
const testTimeout = 2 * time.Minute

const installation = "0123456789abcdef0123456789abcdef"

// Rig is a control plane and a worker.
type Rig struct {
	// Epoch is of the control plane. The next has the next.
	Epoch int64
	// KeepFree is the number of bytes that the next process of the worker keeps free.
	KeepFree int64
	// Cache has the root filesystems of the worker.
	Cache *rootcache.Cache
	// MinFreeDisk is the number of bytes that the next control plane keeps free.
	MinFreeDisk int64

	open    func() (driver.Driver, error)
	saved   remote.Saved
	dir     string // of the worker
	address string
	state   *worker.State
	token   string
	control atomic.Pointer[remote.Driver]
	stop    func() // ends the worker
}

// New connects a control plane and a worker whose drivers open makes, and whose checkpoints saved reads. They share no directory. The worker dials the address that via
// returns for the control plane's. Both end with the test; the driver of the worker has ended then.
func New(t *testing.T, open func() (driver.Driver, error), saved remote.Saved, via func(address string) string) *Rig {
	t.Helper()
	r := &Rig{open: open, saved: saved, dir: t.TempDir()}
	dir := filepath.Join(t.TempDir(), "authority")
	a, err := worker.OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, worker.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	r.token = string(text)
	if r.state, err = worker.OpenState(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := worker.Listen(plain, a, worker.Uses{
		Check: func(worker.Identity) error { return nil },
		Attach: func(ctx context.Context, w worker.Identity, conn net.Conn) error {
			if w.ID != r.state.ID() {
				t.Errorf("the worker is %q, want %q", w.ID, r.state.ID())
			}
			return r.control.Load().Attach(ctx, conn, func(remote.Welcome) error { return nil })
		},
	}, slog.New(slog.DiscardHandler))
	r.address = via(l.Addr().String())
	r.Use(r.NewControl())
	t.Cleanup(func() {
		r.StopWorker()
		if err := r.Control().Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	r.StartWorker(t)
	r.ready(t)
	return r
}

// Dir returns the directory of the worker.
func (r *Rig) Dir() string { return r.dir }

// Staging is a driver that stages the files of each box that it makes, as the callers of drivers do.
type Staging struct{ *remote.Driver }

// Create implements [driver.Driver].
func (s Staging) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	release, err := s.Stage(ctx, "", spec, "")
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Driver.Create(ctx, spec)
}

// Furnish implements [driver.Furnisher].
func (s Staging) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (int, error) {
	release, err := s.Stage(ctx, "", driver.Spec{RootFS: rootfs}, "")
	if err != nil {
		return 0, err
	}
	defer release()
	return s.Driver.Furnish(ctx, id, rootfs)
}

// Restore implements [driver.Checkpointer].
func (s Staging) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	release, err := s.Stage(ctx, "", spec, dir)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Driver.Restore(ctx, spec, dir)
}

// Control returns the control plane in use.
func (r *Rig) Control() Staging { return Staging{r.control.Load()} }

// NewControl returns a control plane for Use.
func (r *Rig) NewControl() *remote.Driver {
	r.Epoch++
	return remote.New(remote.Config{Installation: installation, Epoch: r.Epoch, Saved: r.saved, Space: ballast.NewBudget(r.MinFreeDisk), Patience: testTimeout, Log: slog.New(slog.DiscardHandler)})
}

// Use gives the next connections of the worker to a control plane.
func (r *Rig) Use(d *remote.Driver) { r.control.Store(d) }

// Restart replaces the control plane, whose driver is old, as a restart of a server does.
func (r *Rig) Restart(t *testing.T, old driver.Driver) Staging {
	t.Helper()
	r.Use(r.NewControl())
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	r.ready(t)
	return r.Control()
}

// ready waits until a worker is connected.
func (r *Rig) ready(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if err := r.Control().Ready(ctx); err != nil {
		t.Fatalf("Ready() = %v", err)
	}
}

// StartWorker starts a worker, after StopWorker.
func (r *Rig) StartWorker(t *testing.T) {
	t.Helper()
	var err error
	if r.Cache, err = rootcache.Open(filepath.Join(r.dir, "images"), r.KeepFree, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w := remote.NewWorker(remote.WorkerConfig{
		Open:   r.open,
		Cache:  r.Cache,
		Dir:    filepath.Join(r.dir, "under-way"),
		Accept: func(c remote.Control) error { return r.state.Accept(c.Installation, c.Epoch) },
		Log:    slog.New(slog.DiscardHandler),
	})
	dialer, err := worker.NewDialer([]string{r.address}, r.state, r.token, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { dialer.Run(ctx, w.Serve) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := w.Close(); err != nil {
			t.Errorf("Close() of the worker = %v", err)
		}
	})
}

// StopWorker ends the worker. Its boxes go on.
func (r *Rig) StopWorker() { r.stop() }
