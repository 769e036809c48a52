package warmbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// machine has free disk, and has promised nothing.
type machine struct{ Host }

func (machine) CheckFree(int64) error { return nil }

func (machine) Promised(context.Context) (quota.Promise, error) { return quota.Promise{}, nil }

// TestReserveSpace: boxes that are being made count for the capacity as boxes of the pool do.
func TestReserveSpace(t *testing.T) {
	work := background.New()
	defer work.Cancel()
	kind := pool.Kind{Digest: "data", Resources: sandbox.Resources{MemoryBytes: 10, DiskBytes: 10}}
	boxes := pool.New[Box](5, false)
	k := New(Config{Promise: func() quota.Promise { return quota.Promise{MemoryBytes: 30} }}, Deps{Pool: boxes, Host: machine{}, Store: machine{}, Work: work})
	boxes.Add(&pool.Box[Box]{Kind: kind})
	var releases []func()
	for range 2 {
		release, ok := k.ReserveSpace(kind)
		if !ok {
			t.Fatal("a box that fits has no space")
		}
		releases = append(releases, release)
	}
	if _, ok := k.ReserveSpace(kind); ok {
		t.Error("a box that does not fit has space")
	}
	releases[0]()
	releases[0]()
	release, ok := k.ReserveSpace(kind)
	if !ok {
		t.Fatal("a box has no space in the place of another")
	}
	if _, ok := k.ReserveSpace(kind); ok {
		t.Error("a second box has space in the place of another")
	}
	releases[1]()
	release()
	if len(k.making) > 0 {
		t.Errorf("boxes count that are not made any more: %v", k.making)
	}
}

// TestAwaitCalm: a server that always starts sandboxes makes a box after a while, and a server that closes makes none.
func TestAwaitCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		k := New(Config{}, Deps{Pool: pool.New[Box](5, false), Host: busy{}, Work: work})
		begin := time.Now()
		if calm := k.AwaitCalm(); !calm || time.Since(begin) < calmMax || time.Since(begin) > 2*calmMax {
			t.Errorf("after %v a box may be made: %v", time.Since(begin), calm)
		}
		work.Cancel()
		if k.AwaitCalm() {
			t.Error("a server that closes makes a box")
		}
	})
}

// busy always starts sandboxes.
type busy struct{ Host }

func (busy) Starting() int { return 1 }

// slowLink is a driver that gets the file "slow" never, and others at once. It makes no box.
type slowLink struct {
	driver.Driver
	mu              sync.Mutex
	staged, created map[string]int // guarded by mu
}

// counts returns the numbers of boxes made, and of transfers under way, of each file.
func (d *slowLink) counts() (created, staged map[string]int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.created), maps.Clone(d.staged)
}

// count adds n to a number.
func (d *slowLink) count(of map[string]int, rootfs string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of[rootfs] += n
}

func (d *slowLink) Stage(ctx context.Context, _ sandbox.WorkspaceID, spec driver.Spec, _ string) (func(), error) {
	rootfs := spec.RootFS
	d.count(d.staged, rootfs, 1)
	if rootfs == "slow" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return func() { d.count(d.staged, rootfs, -1) }, nil
}

func (d *slowLink) Create(_ context.Context, s driver.Spec) (driver.Handle, error) {
	d.count(d.created, s.RootFS, 1)
	return nil, errors.New("no box can be made")
}

func (d *slowLink) Destroy(context.Context, sandbox.ID) error { return nil }

// maker makes boxes that run nothing, of images whose digests are the paths of their root filesystems.
type maker struct {
	machine
	work *background.Group
}

func (m maker) NewBox(id sandbox.ID) *box.Box { return box.New(m.work, id, agentapi.NewClient(nil)) }

func (maker) Forget(*box.Box) {}

func (maker) Spec(_ *sandbox.Sandbox, rootfs string) driver.Spec { return driver.Spec{RootFS: rootfs} }

func (maker) Starting() int { return 0 }

func (maker) StandingKinds(context.Context) []pool.Kind { return nil }

func (maker) Lookup(context.Context, string) (spec.Image, error) { return spec.Image{}, nil }

func (maker) Resolve(_ context.Context, digest string) (spec.Image, string, error) {
	if digest == "gone" {
		return spec.Image{}, "", sandbox.Errorf(sandbox.NotFound, "there is no image gone")
	}
	return spec.Image{}, digest, nil
}

// TestSlowTransferKeepsNoOtherKind: boxes of other kinds are made while the driver gets the files of a kind, which it is asked for once.
func TestSlowTransferKeepsNoOtherKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		work.Start()
		defer func() { work.Cancel(); synctest.Wait() }()
		d := &slowLink{staged: map[string]int{}, created: map[string]int{}}
		host := maker{work: work}
		boxes := pool.New[Box](5, false)
		k := New(Config{StartTimeout: time.Minute, Promise: func() quota.Promise { return quota.Promise{MemoryBytes: 1 << 40} }}, Deps{
			Pool: boxes, Host: host, Store: host, Images: host, Driver: d, Work: work, Logger: slog.New(slog.DiscardHandler),
		})
		demand := func(digest string) {
			for range 9 {
				boxes.Created("w", pool.Kind{Digest: digest})
			}
		}
		demand("slow")
		work.Go(k.Run)
		time.Sleep(2 * planInterval)
		synctest.Wait()
		if _, staged := d.counts(); staged["slow"] != 1 {
			t.Fatalf("the slow files are asked for %d times", staged["slow"])
		}
		demand("other")
		time.Sleep(2 * planInterval)
		synctest.Wait()
		created, staged := d.counts()
		if created["other"] != 1 || created["slow"] != 0 || staged["slow"] != 1 || staged["other"] != 0 {
			t.Errorf("boxes %v, transfers %v; want a box of the other kind", created, staged)
		}
		time.Sleep(2 * failurePause)
		synctest.Wait()
		if created, staged := d.counts(); created["other"] < 2 || staged["slow"] != 1 {
			t.Errorf("boxes %v, transfers %v; want another attempt", created, staged)
		}
	})
}

// drained is a driver whose box "stays" alone may get a sandbox.
type drained struct {
	driver.Driver
	destroyed chan sandbox.ID
}

func (drained) TakesSandbox(id sandbox.ID) bool { return id == "stays" }

func (drained) MakeSpace(context.Context, driver.Spec, string, []sandbox.ID) ([]sandbox.ID, bool) {
	return nil, false
}

func (d drained) Destroy(_ context.Context, id sandbox.ID) error {
	d.destroyed <- id
	return nil
}

// TestDrainedHost: a box on a host that gets no new sandboxes is not taken, and is given up.
func TestDrainedHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := background.New()
		work.Start()
		defer func() { work.Cancel(); synctest.Wait() }()
		kind := pool.Kind{Digest: "data"}
		boxes := pool.New[Box](5, false)
		host, d := maker{work: work}, drained{destroyed: make(chan sandbox.ID, 2)}
		k := New(Config{}, Deps{Pool: boxes, Host: host, Images: host, Driver: d, Work: work, Logger: slog.New(slog.DiscardHandler)})
		add := func(id sandbox.ID) {
			boxes.Created("w", kind)
			boxes.Add(&pool.Box[Box]{Kind: kind, Started: time.Now(), Value: Box{Box: host.NewBox(id), stop: func() {}}})
			time.Sleep(time.Second)
		}
		add("goes")
		add("stays")
		r := k.Reserve(t.Context(), "w", kind)
		if r == nil || r.Box().Value.ID != "stays" {
			t.Fatalf("Reserve() = %+v, want the box that may get a sandbox", r)
		}
		r.Commit()
		if id := <-d.destroyed; id != "goes" {
			t.Errorf("the box %q is destroyed", id)
		}
		add("goes, too")
		k.Plan()
		if id := <-d.destroyed; id != "goes, too" {
			t.Errorf("the box %q is destroyed", id)
		}
		if all, _ := boxes.Len(); all != 0 {
			t.Errorf("%d boxes are in the pool", all)
		}
	})
}
