package template

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/warmbox"
)

// env is a keeper with a driver that runs no sandbox, and the images and boxes of its server.
type env struct {
	*Keeper
	t        *testing.T
	host     *fake.Host
	driver   *fake.Driver
	gone     bool  // the image was removed
	low      bool  // the disk is low
	free     int64 // bytes that are free; 0 for enough
	fits     int64 // the memory that a box may have; 0 for any
	busy     error // of the next calls of Resolve
	other    bool  // the image has no interpreters
	reserved int   // boxes for which space is reserved
	runtimes []spec.Runtime
	failing  error // of the next calls of Runtimes
	noBox    error // of the next calls of MakeNew
}

// kindOf returns the kind of sandboxes with so many MiB of memory.
func kindOf(mib int) pool.Kind {
	return pool.Kind{Digest: "data", Resources: sandbox.Resources{MemoryBytes: int64(mib) << 20, CPUMilli: 1000, DiskBytes: 64 << 20}}
}

func newEnv(t *testing.T, maxBytes int64) *env {
	t.Helper()
	e := &env{t: t, host: fake.NewHost(t.TempDir()), runtimes: []spec.Runtime{{Digest: "data", Requires: sandbox.Resources{MemoryBytes: 100 << 20}}}}
	e.driver = fake.New(e.host)
	work := background.New()
	t.Cleanup(func() {
		work.Cancel()
		if err := e.host.Close(); err != nil {
			t.Error(err)
		}
	})
	checkFree := func(least int64) error {
		if e.low || e.free != 0 && e.free < least {
			return errors.New("the disk is low")
		}
		return nil
	}
	cfg := Config{Dir: filepath.Join(t.TempDir(), "templates"), MaxBytes: maxBytes, MinFree: 10, CheckFree: checkFree}
	e.Keeper = New(cfg, Deps{Images: e, Driver: e.driver, Work: work, Logger: slog.New(slog.DiscardHandler)})
	return e
}

func (e *env) Resolve(context.Context, string) (spec.Image, string, error) {
	if e.gone {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "no such image")
	}
	if e.busy != nil {
		return spec.Image{}, "", e.busy
	}
	return spec.Image{Digest: "data", Builtin: !e.other, Config: spec.Config{Cmd: []string{"/.modbox/agent", "kernels", "serve", "python"}}}, "/data.erofs", nil
}

func (e *env) Runtimes(context.Context) ([]spec.Runtime, error) { return e.runtimes, e.failing }

func (e *env) MakeNew(kind pool.Kind) (*pool.Box[warmbox.Box], error) {
	if e.noBox != nil {
		return nil, e.noBox
	}
	id := sandbox.NewID()
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return e.driver.Dial(ctx, id, driver.AgentPort) })
	b := &pool.Box[warmbox.Box]{Kind: kind, Value: warmbox.Box{Box: box.New(e.Work, id, agent)}}
	_, err := e.driver.Create(e.t.Context(), driver.Spec{ID: id, Hostname: "box", RootFS: "/data.erofs", Resources: kind.Resources})
	if err == nil {
		err = e.driver.Start(e.t.Context(), id)
	}
	return b, err
}

func (e *env) Destroy(b *pool.Box[warmbox.Box]) {
	if err := e.driver.Destroy(context.Background(), b.Value.ID); err != nil {
		e.t.Error(err)
	}
}

func (e *env) ReserveSpace(kind pool.Kind) (release func(), ok bool) {
	if e.fits != 0 && kind.Resources.MemoryBytes > e.fits {
		return nil, false
	}
	e.reserved++
	return func() { e.reserved-- }, true
}

func (e *env) AwaitCalm() bool { return true }

// add has a template of a kind that takes so many bytes and was used a time after the beginning, and returns its directory.
func (e *env) add(kind pool.Kind, bytes int64, used time.Duration) (dir string, err error) {
	e.t.Helper()
	t := &template{path: filepath.Join(e.cfg.Dir, string(sandbox.NewCheckpointID())), bytes: bytes, used: time.Unix(0, 0).Add(used)}
	if err := os.Mkdir(t.path, 0o700); err != nil {
		e.t.Fatal(err)
	}
	e.mu.Lock()
	old, err := e.keep(kind, t, time.Now())
	e.mu.Unlock()
	e.remove(old...)
	return t.path, err
}

// wantFiles fails the test unless the directory of templates has so many entries.
func (e *env) wantFiles(n int) {
	e.t.Helper()
	if found, err := os.ReadDir(e.cfg.Dir); err != nil || len(found) != n {
		e.t.Errorf("files of templates: %v, %v; want %d", found, err, n)
	}
}

// creates counts creates of a kind in a workspace.
func (e *env) creates(w sandbox.WorkspaceID, kind pool.Kind, n int) {
	for range n {
		e.Created(w, kind)
	}
}

// wantMissing fails the test unless a kind is the next to get a template after some time; a kind without image is none.
func (e *env) wantMissing(after time.Duration, want pool.Kind) {
	e.t.Helper()
	if got, ok := e.missing(time.Now().Add(after), nil); ok == want.IsBlank() || got != want {
		e.t.Errorf("after %v the next kind is %v, %v, want %v", after, got, ok, want)
	}
}

// TestBounds: the number and bytes of templates are limited, and the one with the least demand makes place, of several the
// least recently used.
func TestBounds(t *testing.T) {
	t.Run("Number", func(t *testing.T) {
		e := newEnv(t, 1<<40)
		e.creates("w", kindOf(101), 2) // used the longest time ago, but in demand
		for i := range maxTemplates + 2 {
			if _, err := e.add(kindOf(101+i), 1, time.Duration(i)); err != nil {
				t.Fatal(err)
			}
		}
		e.wantFiles(maxTemplates)
		for i := range maxTemplates + 2 {
			if want := i != 1 && i != 2; e.Has(kindOf(101+i)) != want {
				t.Errorf("there is a template of kind %d: %v, want %v", i, !want, want)
			}
		}
	})
	t.Run("Bytes", func(t *testing.T) {
		e := newEnv(t, 100)
		for i, bytes := range []int64{40, 60, 50} {
			if _, err := e.add(kindOf(101+i), bytes, time.Duration(i)); err != nil {
				t.Fatal(err)
			}
		}
		if n, bytes := e.size(); n != 1 || bytes != 50 {
			t.Errorf("%d templates take %d bytes, want 1 with 50", n, bytes)
		}
		if _, err := e.add(kindOf(104), 101, 9); err == nil {
			t.Error("a template that takes more than all may is kept")
		}
		e.wantFiles(1)
	})
}

// TestDemand: a kind gets a template after its second create, but not for a while after failures.
func TestDemand(t *testing.T) {
	e := newEnv(t, 1<<40)
	e.creates("w", kindOf(200), 1)
	e.wantMissing(0, pool.Kind{})
	e.creates("w", kindOf(200), 1)
	e.wantMissing(0, kindOf(200))
	e.wantMissing(time.Hour, pool.Kind{})

	e = newEnv(t, 1<<40)
	e.creates("w", kindOf(200), 50)
	for i, pause := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		e.fail(kindOf(200), time.Now())
		e.wantMissing(pause-10*time.Second, pool.Kind{})
		e.wantMissing(pause+10*time.Second, kindOf(200))
		if e.failed[kindOf(200)].n != i+1 {
			t.Fatalf("%d failures, want %d", e.failed[kindOf(200)].n, i+1)
		}
	}
}

// TestWorkspacesShareTemplates: a workspace with very many kinds and creates does not delay the template of another.
func TestWorkspacesShareTemplates(t *testing.T) {
	e := newEnv(t, 1<<40)
	e.creates("modest", kindOf(101), 2)
	for i := range 300 {
		e.creates("greedy", kindOf(200+i), 10)
	}
	e.wantMissing(0, kindOf(101))
}

// TestPlace: a kind replaces a template only if its demand is far greater, so that none are made again and again.
func TestPlace(t *testing.T) {
	for name, maxBytes := range map[string]int64{"Number": 1 << 40, "Bytes": maxTemplates*10 + 5} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, maxBytes)
			for i := range maxTemplates {
				e.creates("w", kindOf(101+i), 3)
				if _, err := e.add(kindOf(101+i), 10, time.Duration(i)); err != nil {
					t.Fatal(err)
				}
			}
			e.creates("w", kindOf(200), 5)
			e.wantMissing(0, pool.Kind{})
			e.creates("w", kindOf(200), 2)
			e.wantMissing(0, kindOf(200))
		})
	}
}

// TestTidy: templates go with their image, when the disk is low and when they are not used for long, but not during a restore.
func TestTidy(t *testing.T) {
	for name, change := range map[string]func(*env){
		"ImageRemoved": func(e *env) { e.gone = true },
		"DiskLow":      func(e *env) { e.free = e.cfg.MinFree - 1 },
		"Idle": func(e *env) {
			for _, t := range e.ready {
				t.used = time.Now().Add(-idleMax - time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1<<40)
			e.free = e.cfg.MinFree
			for i := range 2 {
				if _, err := e.add(kindOf(101+i), 1, time.Since(time.Unix(0, 0))); err != nil {
					t.Fatal(err)
				}
			}
			e.tidy(t.Context())
			e.wantFiles(2)
			used := e.take(kindOf(101))
			change(e)
			e.tidy(t.Context())
			if e.Has(kindOf(101)) || e.Has(kindOf(102)) {
				t.Error("a template is still there")
			}
			if _, err := os.Stat(used.path); err != nil {
				t.Errorf("files of a template from which a box is being restored: %v", err)
			}
			e.wantFiles(1)
			e.release(used)
			e.wantFiles(0)
		})
	}
}

// TestMake: the keeper makes a template in a new box, and a failure leaves neither files nor a box.
func TestMake(t *testing.T) {
	cause := errors.New("this is the failure")
	for _, test := range []struct {
		name   string
		change func(*env)
		ok     bool
	}{
		{"Made", func(*env) {}, true},
		{"NoRuntimes", func(e *env) { e.failing = cause }, false},
		{"NoBox", func(e *env) { e.noBox = cause }, false},
		{"TooLittleMemory", func(e *env) { e.runtimes[0].Requires.MemoryBytes = 1 << 40 }, false},
		{"NoModules", func(e *env) { e.runtimes[0].WarmUp = []string{"pandas"} }, false}, // no supervisor runs
		{"NotSaved", func(e *env) { e.host.SetFaults(fake.Faults{Checkpoint: fake.Fail(cause)}) }, false},
		{"TooLarge", func(e *env) { e.cfg.MaxBytes = 1 }, false},
		{"ImageRemoved", func(e *env) { e.gone = true }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := newEnv(t, 1<<40)
			test.change(e)
			e.makeOrLog(t.Context(), e, kindOf(200))
			if e.Has(kindOf(200)) != test.ok {
				t.Errorf("there is a template: %v, want %v", !test.ok, test.ok)
			}
			files, failures := 0, 1
			if test.ok {
				files, failures = 1, 0
			}
			e.wantFiles(files)
			if n := e.failed[kindOf(200)].n; n != failures {
				t.Errorf("%d failures, want %d", n, failures)
			}
			if left, err := e.driver.List(t.Context()); err != nil || len(left) > 0 {
				t.Errorf("left of the box: %v, %v", left, err)
			}
			if e.reserved != 0 {
				t.Errorf("space is reserved for %d boxes afterwards", e.reserved)
			}
		})
	}
}

// TestNotNow: what the host lacks for the moment is no failure of a kind, and another kind is made meanwhile.
func TestNotNow(t *testing.T) {
	for name, change := range map[string]func(*env){
		"DiskLow":      func(e *env) { e.low = true },
		"DiskLowAfter": func(e *env) { e.free = e.cfg.MinFree + e.cfg.MaxBytes - 1 }, // it would go again at once
		"Full":         func(e *env) { e.fits = 1 },
		"ImagesBusy":   func(e *env) { e.busy = sandbox.Errorf(sandbox.Unavailable, "not now") },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, 1<<40)
			change(e)
			e.creates("w", kindOf(200), 2)
			e.makeNext(t.Context(), e)
			e.wantFiles(0)
			if len(e.failed) > 0 {
				t.Error("what the host lacks counts as a failure")
			}
		})
	}
	e := newEnv(t, 1<<40)
	e.fits = 300 << 20
	e.creates("w", kindOf(400), 9)
	e.creates("w", kindOf(200), 2)
	e.makeNext(t.Context(), e)
	if !e.Has(kindOf(200)) {
		t.Error("a kind that does not fit keeps a smaller one from its template")
	}
	e = newEnv(t, 1<<40)
	e.other = true
	e.creates("w", kindOf(200), 2)
	e.makeNext(t.Context(), e)
	if e.failed[kindOf(200)].n != 1 {
		t.Error("a kind without interpreters is looked at again at once")
	}
}

// TestOtherDigest: an image that the server does not list any more has no template.
func TestOtherDigest(t *testing.T) {
	e := newEnv(t, 1<<40)
	e.runtimes[0].Digest = "newer"
	e.makeOrLog(t.Context(), e, kindOf(200))
	e.wantFiles(0)
}

// TestLargerThanExpected: a template that is larger than those before it does not displace templates with more demand.
func TestLargerThanExpected(t *testing.T) {
	e := newEnv(t, 250)
	for i, n := range []int{1, 5} {
		e.creates("w", kindOf(101+i), n)
		if _, err := e.add(kindOf(101+i), 100, 0); err != nil {
			t.Fatal(err)
		}
	}
	e.creates("w", kindOf(200), 4)
	if _, err := e.add(kindOf(200), 160, 0); err == nil || !e.Has(kindOf(102)) || e.Has(kindOf(200)) {
		t.Errorf("a template displaces one with more demand: %v", err)
	}
}

// TestRun: a keeper begins without the files of the one before it, makes a template, and leaves none.
func TestRun(t *testing.T) {
	e := newEnv(t, 1<<40)
	if err := os.MkdirAll(filepath.Join(e.cfg.Dir, "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	e.Keeper = New(e.cfg, e.Deps)
	e.wantFiles(0)
	e.creates("w", kindOf(200), 2)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(e)
	}()
	for !e.Has(kindOf(200)) {
		time.Sleep(time.Millisecond)
	}
	e.Work.Cancel()
	<-ended
	e.wantFiles(0)
}

// TestNoDirectory: a server whose disk has no place for the directory runs without templates.
func TestNoDirectory(t *testing.T) {
	e := newEnv(t, 1<<40)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.cfg.Dir = filepath.Join(file, "templates")
	e.Keeper = New(e.cfg, e.Deps)
	e.Run(e)
	if e.Collectors() != nil || !e.Lacks(&spec.Image{Digest: "data"}, kindOf(200).Resources) {
		t.Error("there are templates without a directory")
	}
}

// TestRemoveAll: templates can be removed to free the disk.
func TestRemoveAll(t *testing.T) {
	e := newEnv(t, 1<<40)
	for i := range 3 {
		if _, err := e.add(kindOf(101+i), 5, 0); err != nil {
			t.Fatal(err)
		}
	}
	if freed := e.RemoveAll(); freed != 15 || e.Has(kindOf(101)) {
		t.Errorf("%d bytes were freed, want 15; a template is there: %v", freed, e.Has(kindOf(101)))
	}
	e.wantFiles(0)
}

// restore restores a box of a kind, which must fail, and returns the error.
func (e *env) restore(ctx context.Context, kind pool.Kind) error {
	e.t.Helper()
	h, err := e.tryRestore(ctx, kind)
	if h != nil {
		e.t.Error("the box was restored")
	}
	return err
}

func (e *env) tryRestore(ctx context.Context, kind pool.Kind) (driver.Handle, error) {
	e.t.Helper()
	img, rootfs, err := e.Resolve(ctx, "data")
	if err != nil {
		e.t.Fatal(err)
	}
	id := sandbox.NewID()
	b := box.New(e.Work, id, agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return e.driver.Dial(ctx, id, driver.AgentPort) }))
	return e.Restore(ctx, b, driver.Spec{ID: id, Hostname: "box", RootFS: rootfs, Resources: kind.Resources}, &img)
}

// TestRestore: a restore that succeeds ends the count of failures before it.
func TestRestore(t *testing.T) {
	e := newEnv(t, 1<<40)
	e.makeOrLog(t.Context(), e, kindOf(200))
	e.reconnect = func(ctx context.Context, b *box.Box, _ *spec.Image) error {
		_, err := b.Agent.Health(ctx)
		return err
	}
	e.fail(kindOf(200), time.Now())
	for range maxLate {
		e.host.SetFaults(fake.Faults{})
		if h, err := e.tryRestore(t.Context(), kindOf(200)); h == nil || err != nil {
			t.Fatalf("the restore = %v, %v", h, err)
		}
		e.host.SetFaults(fake.Faults{Restore: fake.Fail(context.DeadlineExceeded)})
		if err := e.restore(t.Context(), kindOf(200)); err != nil {
			t.Error(err)
		}
	}
	if !e.Has(kindOf(200)) || e.failed[kindOf(200)].n != 0 {
		t.Errorf("a template whose restores succeed was removed: %v, after %d failures", !e.Has(kindOf(200)), e.failed[kindOf(200)].n)
	}
}

// TestFailedRestores: a template of no use is removed once, and not because the host lacks resources.
func TestFailedRestores(t *testing.T) {
	e := newEnv(t, 1<<40)
	if _, err := e.add(kindOf(200), 1, 0); err != nil {
		t.Fatal(err)
	}
	restore := func(failure error) {
		t.Helper()
		e.host.SetFaults(fake.Faults{Restore: fake.Fail(failure)})
		if err := e.restore(t.Context(), kindOf(200)); err != nil {
			t.Error(err)
		}
	}
	restore(sandbox.Errorf(sandbox.Unavailable, "no resources"))
	for range maxLate - 1 {
		restore(context.DeadlineExceeded)
	}
	e.wantFiles(1)
	old := e.take(kindOf(200))
	restore(sandbox.Errorf(sandbox.Unsupported, "it is damaged"))
	if e.Has(kindOf(200)) {
		t.Error("the damaged template is still there")
	}
	e.fails(kindOf(200), old, time.Now(), errors.New("a second restore failed"))
	e.release(old)
	e.wantFiles(0)
	if _, err := e.add(kindOf(200), 1, 0); err != nil {
		t.Fatal(err)
	}
	e.fails(kindOf(200), old, time.Now(), errors.New("a late restore failed"))
	e.wantFiles(1)
	if n := e.failed[kindOf(200)].n; n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
}

// TestLateRestores: a template whose restores last too long is removed after several in a row.
func TestLateRestores(t *testing.T) {
	e := newEnv(t, 1<<40)
	if _, err := e.add(kindOf(200), 1, 0); err != nil {
		t.Fatal(err)
	}
	e.host.SetFaults(fake.Faults{Restore: fake.Fail(context.DeadlineExceeded)})
	for i := range maxLate {
		if !e.Has(kindOf(200)) {
			t.Fatalf("the template was removed after %d restores", i)
		}
		if err := e.restore(t.Context(), kindOf(200)); err != nil {
			t.Error(err)
		}
	}
	e.wantFiles(0)
	if n := e.failed[kindOf(200)].n; n != 1 {
		t.Errorf("%d failures, want 1", n)
	}

	// Restores at the same time are delayed by the same stall of the host.
	if _, err := e.add(kindOf(200), 1, 0); err != nil {
		t.Fatal(err)
	}
	used, begin := e.take(kindOf(200)), time.Now()
	for range 2 * maxLate {
		e.fails(kindOf(200), used, begin, context.DeadlineExceeded)
	}
	e.release(used)
	e.wantFiles(1)
}

// TestMuteBox: a restored box whose interpreters do not answer is destroyed. An error says that it could not be.
func TestMuteBox(t *testing.T) {
	e := newEnv(t, 1<<40)
	e.makeOrLog(t.Context(), e, kindOf(200))
	e.wantFiles(1)
	if err := e.restore(t.Context(), kindOf(200)); err != nil { // no supervisor runs in boxes of the fake driver
		t.Error(err)
	}
	if left, err := e.driver.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left of the box: %v, %v", left, err)
	}
	cause := errors.New("this is the failure")
	e.host.SetFaults(fake.Faults{Restore: fake.Fail(context.DeadlineExceeded), Destroy: fake.Fail(cause)})
	if err := e.restore(t.Context(), kindOf(200)); !errors.Is(err, cause) {
		t.Errorf("the restore whose box could not be destroyed: %v", err)
	}
	e.wantFiles(1)
}

// TestCanceledRestores: restores whose sandboxes are deleted meanwhile do not count as failures.
func TestCanceledRestores(t *testing.T) {
	e := newEnv(t, 1<<40)
	if _, err := e.add(kindOf(200), 1, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.host.SetFaults(fake.Faults{Restore: func(ctx context.Context, id sandbox.ID) error {
		cancel()
		return fake.Hang(ctx, id)
	}})
	for range maxLate + 1 {
		if err := e.restore(ctx, kindOf(200)); !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled restore: %v", err)
		}
	}
	e.wantFiles(1)
}
