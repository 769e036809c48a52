package fleet_test

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rootfs")
	if err == nil {
		content := make([]byte, 64<<10)
		_, _ = cryptorand.Read(content) // never fails
		sum := sha256.Sum256(content)
		rootfs = filepath.Join(dir, stack.FileName("sha256:"+hex.EncodeToString(sum[:])))
		err = os.WriteFile(rootfs, content, 0o600)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// bringMax is the size of the largest root filesystem that is brought to blank boxes.
const bringMax = 1 << 30

// rootfs is the root filesystem of boxes, in a directory of the control plane.
var rootfs string

// testTimeout limits the wait of a test for an event. A test that reaches it fails.
const testTimeout = 2 * time.Minute

const gib = 1 << 30

// rows keeps records of workers in memory.
type rows struct {
	mu   sync.Mutex
	list []worker.Record     // guarded by mu
	err  error               // guarded by mu; of Save
	hook func(worker.Record) // guarded by mu; called before a Save, nil for none
}

// before makes Save call a function first.
func (r *rows) before(hook func(worker.Record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// fail makes Save fail with an error, nil: not any more.
func (r *rows) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *rows) List(context.Context) ([]worker.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list), nil
}

func (r *rows) Add(ctx context.Context, w worker.Record, records int) (bool, error) {
	r.mu.Lock()
	n := len(slices.DeleteFunc(slices.Clone(r.list), func(w worker.Record) bool { return worker.Supplied(w.ID) }))
	r.mu.Unlock()
	if n != records {
		return false, nil
	}
	return true, r.Save(ctx, w)
}

func (r *rows) Delete(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(w worker.Record) bool { return w.ID == id })
	return nil
}

func (r *rows) Save(_ context.Context, w worker.Record) error {
	r.mu.Lock()
	hook := r.hook
	r.mu.Unlock()
	if hook != nil {
		hook(w)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if slices.ContainsFunc(r.list, func(other worker.Record) bool { return other.ID != w.ID && other.Name == w.Name }) {
		return errors.New("another worker has this name")
	}
	if i := slices.IndexFunc(r.list, func(other worker.Record) bool { return other.ID == w.ID }); i >= 0 {
		r.list[i] = w
	} else {
		r.list = append(r.list, w)
	}
	return nil
}

// machine is a worker on a host of its own.
type machine struct {
	rig  *rig
	id   worker.Identity
	host *fake.Host
	said remote.Host // its description of itself
	dir  string
	stop func() // ends its process; nil while it has none
	// limits is whether its next process says that it can limit the memory of boxes.
	limits bool
	// meters is whether its next process measures disk use.
	meters bool
	// refused is called with the errors of its connections; nil for none.
	refused func(error)

	mu    sync.Mutex
	saved map[string]bool // guarded by mu; the memory that is on it, by token
	// silent delays its answers to CanRestore until it is closed; guarded by mu, nil for no delay.
	silent chan struct{}
}

// local is a driver of a machine. It restores only memory that is on the machine, as a worker restores only what suits its processor.
type local struct {
	*fake.Driver
	machine *machine
	limits  bool
}

func (l local) Capabilities() driver.Capabilities {
	c := l.Driver.Capabilities()
	c.Memory = l.limits
	return c
}

// metered is a local that measures disk use: a byte for each box.
type metered struct{ local }

func (m metered) DiskUse() (map[sandbox.ID]int64, error) {
	ids, err := m.List(context.Background())
	use := map[sandbox.ID]int64{}
	for _, id := range ids {
		use[id] = 1
	}
	return use, err
}

// token returns what names the memory of a checkpoint on its machine; "" if it has none.
func token(dir string) string {
	var m struct{ Token string }
	text, _ := os.ReadFile(filepath.Join(dir, "manifest.json"))
	_ = json.Unmarshal(text, &m)
	return m.Token
}

func (l local) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	take := opts.Take
	opts.Take = func(ctx context.Context, dir string) error {
		l.machine.mu.Lock()
		l.machine.saved[token(dir)] = true
		l.machine.mu.Unlock()
		if take == nil {
			return nil
		}
		return take(ctx, dir)
	}
	return l.Driver.Checkpoint(ctx, id, dir, opts)
}

func (l local) CanRestore(dir string) error {
	if err := l.Driver.CanRestore(dir); err != nil {
		return err
	}
	l.machine.mu.Lock()
	silent := l.machine.silent
	l.machine.mu.Unlock()
	if silent != nil {
		<-silent
	}
	l.machine.mu.Lock()
	defer l.machine.mu.Unlock()
	if t := token(dir); t != "" && !l.machine.saved[t] {
		return sandbox.Errorf(sandbox.Unsupported, "this machine has another processor")
	}
	return nil
}

// rig is a control plane and its workers.
type rig struct {
	rows     rows
	machines []*machine
	patience time.Duration // of the next control plane
	limit    func(int64) int64
	supplier fleet.Supplier
	// perWorker and furnishMax are settings of the next control plane, as lost is.
	perWorker  int
	furnishMax int64
	lost       time.Duration // after which a worker that is away is lost; 0: never
	control    atomic.Pointer[fleet.Driver]
}

// newRig connects a control plane and workers with so much memory.
func newRig(t *testing.T, patience time.Duration, memory ...int64) *rig {
	t.Helper()
	r := &rig{patience: patience}
	r.open(t)
	t.Cleanup(func() {
		for _, m := range r.machines {
			m.end()
		}
		if err := r.control.Load().Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
		for _, m := range r.machines {
			if err := m.host.Close(); err != nil {
				t.Errorf("Close() of a host = %v", err)
			}
		}
	})
	for i, bytes := range memory { // in this order
		r.add(t, bytes).start(t)
		eventually(t, "the worker is connected", func() error { return wantConnected(r.control.Load(), i+1) })
	}
	return r
}

// add makes a worker without a process.
func (r *rig) add(t *testing.T, memory int64) *machine {
	t.Helper()
	n := rune(len(r.machines))
	m := &machine{rig: r, host: fake.NewHost(t.TempDir()), dir: t.TempDir(), saved: map[string]bool{}}
	m.id = worker.Identity{ID: "worker-" + string('A'+n), Key: "key"}
	m.said = remote.Host{Name: string('a' + n), Version: "1.0", MemoryBytes: memory, Cores: 4}
	r.machines = append(r.machines, m)
	return m
}

func wantConnected(d *fleet.Driver, n int) error {
	connected := 0
	for _, w := range d.Workers() {
		if w.Connected {
			connected++
		}
	}
	if connected != n {
		return sandbox.Errorf(sandbox.Internal, "%d workers are connected", connected)
	}
	return nil
}

// open makes the next control plane.
func (r *rig) open(t *testing.T) *fleet.Driver {
	t.Helper()
	saved := fake.New(fake.NewHost(t.TempDir()))
	d, err := fleet.New(t.Context(), fleet.Config{
		Rows: &r.rows, Limit: r.limit, Supplier: r.supplier, LostAfter: r.lost, BringMax: bringMax, FurnishMax: r.furnishMax, PerWorker: r.perWorker,
		Remote: remote.Config{Installation: "i", Saved: saved, Patience: r.patience, Log: slog.New(slog.DiscardHandler)},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.control.Store(d)
	return d
}

// driver returns the control plane's driver, which stages the files of boxes.
func (r *rig) driver() staging { return staging{r.control.Load()} }

// reopen replaces the control plane by another, and waits for the workers that run.
func (r *rig) reopen(t *testing.T, old driver.Driver) staging {
	t.Helper()
	d := r.open(t)
	if err := old.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	running := 0
	for _, m := range r.machines {
		if m.stop != nil {
			running++
		}
	}
	if s, ok := r.supplier.(*supplier); ok {
		running += s.count()
	}
	eventually(t, "the workers are connected", func() error { return wantConnected(d, running) })
	if err := d.Ready(within(t), 0); err != nil {
		t.Errorf("Ready() = %v", err)
	}
	return staging{d}
}

// start starts the process of a worker.
func (m *machine) start(t *testing.T) {
	t.Helper()
	cache, err := rootcache.Open(filepath.Join(m.dir, "images"), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	limits, meters := m.limits, m.meters
	w := remote.NewWorker(remote.WorkerConfig{
		Open: func() (driver.Driver, error) {
			d := local{fake.New(m.host), m, limits}
			if meters {
				return metered{d}, nil
			}
			return d, nil
		},
		Cache: cache, Dir: filepath.Join(m.dir, "under-way"), Host: m.said,
		Accept: func(remote.Control) error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			theirs, ours := tcpPair()
			running.Go(func() {
				if err := m.rig.control.Load().Attach(ctx, m.id, theirs); err != nil && m.refused != nil {
					m.refused(err)
				}
			})
			_ = w.Serve(ctx, ours)
			select {
			case <-time.After(5 * time.Millisecond): // the control plane may refuse it
			case <-ctx.Done():
			}
		}
	})
	m.stop = func() {
		cancel()
		running.Wait()
		if err := w.Close(); err != nil {
			t.Errorf("Close() of a worker = %v", err)
		}
	}
}

// end ends the process of a worker. Its boxes go on.
func (m *machine) end() {
	if m.stop != nil {
		m.stop()
		m.stop = nil
	}
}

// tcpPair returns both ends of a connection.
func tcpPair() (theirs, ours net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		defer l.Close()
		if ours, err = net.Dial("tcp", l.Addr().String()); err == nil {
			theirs, err = l.Accept()
		}
	}
	if err != nil {
		panic(err)
	}
	return theirs, ours
}

// staging stages the files of each box that it makes, as the callers of drivers do.
type staging struct{ *fleet.Driver }

func (s staging) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	release, err := s.Stage(ctx, "", spec, "")
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Driver.Create(ctx, spec)
}

func (s staging) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (int, error) {
	release, err := s.Stage(ctx, "", driver.Spec{ID: id, RootFS: rootfs}, "")
	if err != nil {
		return 0, err
	}
	defer release()
	return s.Driver.Furnish(ctx, id, rootfs)
}

func (s staging) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	release, err := s.Stage(ctx, "", spec, dir)
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Driver.Restore(ctx, spec, dir)
}

func spec() driver.Spec {
	return driver.Spec{
		ID: sandbox.NewID(), Hostname: "box", RootFS: rootfs, MaxProcesses: 256,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: 64 << 20},
	}
}

// within returns a context with testTimeout.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", testTimeout, what, err)
		}
	}
}

func TestContract(t *testing.T) { contract(t, false) }

// TestContractBlank runs the contract on boxes that begin blank.
func TestContractBlank(t *testing.T) { contract(t, true) }

// bulk is less than usual: a fleet has the connections of its workers.
const bulk = 16 << 20

func contract(t *testing.T, blank bool) {
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		r := newRig(t, testTimeout, gib, gib)
		return drivertest.Env{
			Driver: r.driver(),
			Spec:   spec, ForksFilesOnly: true, Blank: blank, Bulk: bulk,
			Reopen: func(t *testing.T, old driver.Driver) driver.Driver { return r.reopen(t, old) },
		}
	})
}
