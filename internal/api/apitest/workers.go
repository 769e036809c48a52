package apitest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// WorkerMemory is the memory of each worker of [Workers]. A worker promises half of its memory.
const WorkerMemory = 8 << 30

// NewOnWorkers is [New] with sandboxes that run on workers with these names, as [Workers] makes them. It also returns the hosts of the workers.
func NewOnWorkers(t testing.TB, names ...string) (*Server, map[string]*fake.Host) {
	t.Helper()
	content := make([]byte, 4<<10)
	sum := sha256.Sum256(content)
	root := filepath.Join(t.TempDir(), stack.FileName("sha256:"+hex.EncodeToString(sum[:])))
	if err := os.WriteFile(root, content, 0o600); err != nil {
		t.Fatal(err)
	}
	d, hosts := newWorkers(t, names)
	return newServer(t, options{driver: d, images: images{root}}), hosts
}

// Workers returns a driver whose workers have these names, for the field of [api.Deps]. Each has a fake driver, and is connected. All end
// with the test. Memory that is saved on a worker can be restored on all.
func Workers(t testing.TB, names ...string) *fleet.Driver {
	t.Helper()
	d, _ := newWorkers(t, names)
	return d
}

func newWorkers(t testing.TB, names []string) (*fleet.Driver, map[string]*fake.Host) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d, err := fleet.New(t.Context(), fleet.Config{
		Rows:   workerRows{},
		Remote: remote.Config{Installation: "test", Saved: fake.New(fake.NewHost(t.TempDir())), Log: log},
		Limit:  func(memory int64) int64 { return memory / 2 },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := d.Close(); err != nil {
			t.Errorf("close the driver of workers: %v", err)
		}
	})
	first, hosts := fake.NewHost(t.TempDir()), map[string]*fake.Host{}
	for _, name := range names {
		host := first.Twin()
		hosts[name] = host
		t.Cleanup(func() { host.Close() })
		dir := t.TempDir()
		cache, err := rootcache.Open(filepath.Join(dir, "images"), 0, log)
		if err != nil {
			t.Fatal(err)
		}
		w := remote.NewWorker(remote.WorkerConfig{
			Open:  func() (driver.Driver, error) { return fake.New(host), nil },
			Cache: cache, Dir: filepath.Join(dir, "under-way"), Host: remote.Host{Name: name, Version: "1.0", MemoryBytes: WorkerMemory, Cores: 4},
			Accept: func(remote.Control) error { return nil }, Log: log,
		})
		t.Cleanup(func() { w.Close() })
		theirs, ours := net.Pipe()
		running.Go(func() { _ = d.Attach(ctx, worker.Identity{ID: "worker-" + name, Key: "key of " + name}, theirs) })
		running.Go(func() { _ = w.Serve(ctx, ours) })
		for { // one after the other, in this order
			if _, err := d.Worker(name); err == nil {
				break
			}
			select {
			case <-time.After(time.Millisecond):
			case <-t.Context().Done():
				t.Fatalf("the worker %s does not connect", name)
			}
		}
	}
	return d, hosts
}

// NewWorkerBox makes a box on the best of some workers, and returns the worker's name.
func NewWorkerBox(t testing.TB, d *fleet.Driver) (id sandbox.ID, on string) {
	t.Helper()
	spec := driver.Spec{ID: sandbox.NewID(), Hostname: "box", MaxProcesses: 256, Resources: sandbox.Resources{MemoryBytes: 1 << 30, CPUMilli: 1000, DiskBytes: 64 << 20}}
	release, err := d.Stage(t.Context(), "", spec, "")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if _, err := d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return spec.ID, d.Of(spec.ID)
}

// workerRows keep no records of workers.
type workerRows struct{}

func (workerRows) List(context.Context) ([]worker.Record, error) { return nil, nil }
func (workerRows) Delete(context.Context, string) error          { return nil }

func (workerRows) Add(context.Context, worker.Record, int) (bool, error) { return true, nil }
func (workerRows) Save(_ context.Context, _ worker.Record) error         { return nil }
