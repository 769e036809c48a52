package server

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/worker"
)

// runFakeWorker runs a worker over the fake driver, for a control plane that is at one of the addresses.
func runFakeWorker(t *testing.T, stateDir string, addresses ...string) *fake.Host {
	t.Helper()
	host, _ := startFakeWorker(t, t.TempDir(), stateDir, addresses...)
	return host
}

// startFakeWorker is runFakeWorker with the state in a directory, and a function that ends the worker before the end of the test.
func startFakeWorker(t *testing.T, dir, stateDir string, addresses ...string) (host *fake.Host, stop func()) {
	t.Helper()
	return startNamedWorker(t, "a", dir, stateDir, addresses...)
}

// startNamedWorker is startFakeWorker with the name of the machine.
func startNamedWorker(t *testing.T, name, dir, stateDir string, addresses ...string) (host *fake.Host, stop func()) {
	t.Helper()
	host = fake.NewHost(t.TempDir())
	return host, startWorkerOn(t, host, name, dir, stateDir, addresses...)
}

// startWorkerOn is startNamedWorker on a machine.
func startWorkerOn(t *testing.T, host *fake.Host, name, dir, stateDir string, addresses ...string) (stop func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	state, err := worker.OpenState(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := rootcache.Open(filepath.Join(dir, "images"), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	w := remote.NewWorker(remote.WorkerConfig{
		Open:  func() (driver.Driver, error) { return fake.New(host), nil },
		Cache: cache, Dir: filepath.Join(dir, "under-way"), Host: remote.Host{Name: name, MemoryBytes: 64 << 30, Cores: 8},
		Accept: func(c remote.Control) error { return state.Accept(c.Installation, c.Epoch) }, Log: log,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		path := filepath.Join(stateDir, statedir.WorkerDir, worker.TokenFile)
		for ctx.Err() == nil {
			if token, err := os.ReadFile(path); err == nil {
				dialer, err := worker.NewDialer(addresses, state, string(token), log)
				if err != nil {
					t.Error(err)
					return
				}
				dialer.Run(ctx, w.Serve)
			}
			time.Sleep(10 * time.Millisecond) // polling a file of another process
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(func() {
		stop()
		if err := errors.Join(w.Close(), host.Close()); err != nil {
			t.Error(err)
		}
	})
	return stop
}
