package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// startFilled runs a server whose pool of size boxes is full.
func (e *env) startFilled(size int) *server {
	e.t.Helper()
	e.cfg.PoolSize = size
	s := e.start()
	s.filled(size)
	return s
}

// filled waits until so many boxes are in the pool.
func (s *server) filled(size int) {
	s.t.Helper()
	eventually(s.t, "the pool is filled", func() bool { return len(s.Ready()) == size })
}

// fromPool reports whether a running sandbox was given a box of the pool.
func (s *server) fromPool(ref string) bool {
	s.t.Helper()
	events, err := s.Events(s.t.Context(), s.caller, ref, sandbox.EventFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, ev := range events.Items {
		if ev.Type == sandbox.EventRunning {
			return ev.Data["from_pool"] == "true"
		}
	}
	s.t.Fatalf("sandbox %s never ran: %v", ref, events)
	return false
}

func TestPoolGivesItsBoxes(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	waiting := e.host.ids()
	sb := s.run(lifecycle.CreateRequest{Name: "job", Env: map[string]string{"WHO": "me"}})
	if !slices.Contains(waiting, sb.ID) || !s.fromPool("job") {
		t.Errorf("sandbox %s has none of the boxes %v", sb.ID, waiting)
	}
	stream, err := s.Guest().Exec(t.Context(), s.caller, "job", agentapi.Command{Argv: []string{"sh", "-c", `test "$WHO $MODBOX_SANDBOX_NAME" = "me job"`}})
	if err != nil {
		t.Fatal(err)
	}
	if code := exitCode(t, stream); code != 0 {
		t.Errorf("the sandbox's environment is not there: exit code %d", code)
	}
	s.filled(2)
	// It is watched as any other.
	e.host.End(sb.ID, driver.Exit{Cause: sandbox.CauseOOM})
	if sb := s.reach("job", sandbox.Failed); sb.Cause.Code != sandbox.CauseOOM {
		t.Errorf("cause %v, want oom", sb.Cause)
	}
}

// Sandboxes of creates, of the pool, and of forks are in the shards of their server.
func TestNewSandboxesAreInTheShardsOfTheServer(t *testing.T) {
	e := newEnv(t)
	e.owner = sandbox.Own(sandbox.RangesFrom(6, 6))
	s := e.startFilled(6)
	check := func(what string, id sandbox.ID) {
		t.Helper()
		if err := e.owner.Check(id); err != nil {
			t.Errorf("%s: %s: %v", what, id, err)
		}
	}
	for _, id := range e.host.ids() {
		check("a box of the pool", id)
	}
	check("an ID of a dialect", s.NewID())
	check("of the pool", s.run(lifecycle.CreateRequest{Name: "warm"}).ID)
	if !s.fromPool("warm") {
		t.Error("the sandbox has no box of the pool")
	}
	for i := range 4 {
		check("created", s.run(lifecycle.CreateRequest{Name: fmt.Sprint("cold", i), Resources: sandbox.Resources{MemoryBytes: 200 << 20}}).ID)
	}
	children, err := s.Fork(t.Context(), e.caller, "warm", lifecycle.ForkRequest{Count: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		check("a fork", c.Sandbox.ID)
	}
}

// exitCode reads a command to its end.
func exitCode(t *testing.T, stream *guest.Command) int {
	t.Helper()
	defer func() { _ = stream.Close() }()
	for {
		f, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Exit != nil {
			return f.Exit.Code
		}
	}
}

func TestPoolBoxesAreNobodysSandbox(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{})
	if err != nil || len(page.Items) != 0 {
		t.Errorf("List = %v, %v, want none", page.Items, err)
	}
	for _, id := range e.host.ids() {
		if _, err := s.Get(t.Context(), e.caller, string(id)); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Get(%s): %v, want code not_found", id, err)
		}
		if _, err := s.Guest().Dial(t.Context(), id, 80); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Dial(%s): %v, want code not_found", id, err)
		}
	}
	s.Sweep()
	if ids := e.host.ids(); len(ids) != 2 {
		t.Errorf("boxes after a sweep: %v, want 2", ids)
	}
}

// TestBlankBoxFitsAnyImage: a create from an image without boxes in the pool gets a blank box, with the root filesystem
// of the image.
func TestBlankBoxFitsAnyImage(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(3)
	sb := s.run(lifecycle.CreateRequest{Name: "job", Image: "modbox/other"})
	spec, _ := s.driver.specs.Load(sb.ID)
	if spec.(driver.Spec).RootFS != "" || !s.fromPool("job") {
		t.Errorf("the box of sandbox %s was made with %+v, want a blank one of the pool", sb.ID, spec)
	}
	if given, _ := s.driver.furnished.Load(sb.ID); given != "/nowhere/sha256:4" {
		t.Errorf("it was given %v, want the image's root filesystem", given)
	}
	usable(t, s, "job")
	// A box of the image comes first.
	s.filled(3)
	sb = s.run(lifecycle.CreateRequest{Name: "default"})
	if spec, _ := s.driver.specs.Load(sb.ID); spec.(driver.Spec).RootFS == "" || !s.fromPool("default") {
		t.Errorf("the box of sandbox %s was made with %+v, want one of the image of the pool", sb.ID, spec)
	}
}

// TestBlankBoxThatCannotBeFurnished: the sandbox gets a box of its own.
func TestBlankBoxThatCannotBeFurnished(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Furnish" {
			return errors.New("no")
		}
		return nil
	}, nil)
	s.run(lifecycle.CreateRequest{Name: "job", Image: "modbox/other"})
	if s.fromPool("job") {
		t.Error("the sandbox has a box of the pool")
	}
	usable(t, s, "job")
}

// TestBlankBoxesThatCannotBeMade: they are not tried again at once, and boxes of images are made all the same.
func TestBlankBoxesThatCannotBeMade(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(3)
	var tried atomic.Int32
	e.host.SetFaults(fake.Faults{Start: func(_ context.Context, id sandbox.ID) error {
		if spec, _ := s.driver.specs.Load(id); spec.(driver.Spec).RootFS != "" {
			return nil
		}
		tried.Add(1)
		return errors.New("no")
	}})
	for _, id := range e.host.ids() {
		e.host.End(id, driver.Exit{Cause: sandbox.CauseExited})
	}
	eventually(t, "the box of the image is made again", func() bool {
		s.PlanPool()
		return tried.Load() > 0 && len(s.Ready()) == 1 && len(e.host.ids()) == 1
	})
	n := tried.Load()
	for range 5 {
		s.PlanPool()
	}
	if now := tried.Load(); now != n {
		t.Errorf("blank boxes were tried %d more times", now-n)
	}
}

// TestBlankBoxOfAMovedReference: a reference means another image by the time at which the image is provided.
// The sandbox must run with the image that its row names.
func TestBlankBoxOfAMovedReference(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	e.images.missing(func(context.Context, string, func(phase.Event)) error {
		e.images.mu.Lock()
		defer e.images.mu.Unlock()
		for i := range e.images.list {
			if img := &e.images.list[i]; img.Name == "modbox/other" {
				img.Digest = "sha256:moved"
			}
		}
		return nil
	})
	e.images.mu.Lock()
	e.images.unmade, e.images.stale = nil, "modbox/other:latest"
	e.images.mu.Unlock()
	sb := s.run(lifecycle.CreateRequest{Image: "modbox/other"})
	got, err := s.Get(t.Context(), s.caller, string(sb.ID))
	spec, _ := s.driver.specs.Load(sb.ID)
	if err != nil || got.ImageDigest != "sha256:moved" || spec.(driver.Spec).RootFS != "/nowhere/sha256:moved" {
		t.Errorf("the row names the image %s, the box has %s, %v; want sha256:moved", got.ImageDigest, spec.(driver.Spec).RootFS, err)
	}
}

// TestFailingBoxesCostNoOthers: a host that can start no box for a moment does not lose the boxes that it has.
func TestFailingBoxesCostNoOthers(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(4)
	for range 2 {
		for _, image := range []string{"modbox/base", "modbox/other"} {
			s.destroy(string(s.run(lifecycle.CreateRequest{Image: image}).ID))
		}
	}
	eventually(t, "only the boxes of the plan are there", func() bool {
		s.PlanPool()
		return len(s.Ready()) == 4 && len(e.host.ids()) == 4
	})
	before := e.host.ids()
	var tried atomic.Int32
	e.host.SetFaults(fake.Faults{Start: func(context.Context, sandbox.ID) error {
		tried.Add(1)
		return errors.New("no")
	}})
	e.host.End(before[0], driver.Exit{Cause: sandbox.CauseExited})
	eventually(t, "another box is tried", func() bool { s.PlanPool(); return tried.Load() > 0 })
	for range 3 {
		s.PlanPool()
	}
	// The boxes that ended or failed are destroyed in the background.
	eventually(t, "exactly the boxes that did not end are there", func() bool { return slices.Equal(before[1:], e.host.ids()) })
}

func TestPoolLearnsWhatIsAskedFor(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	big := sandbox.Resources{MemoryBytes: 1 << 30}
	for i := range 8 {
		sb := s.run(lifecycle.CreateRequest{Resources: big})
		if i == 0 && s.fromPool(string(sb.ID)) { // later sandboxes can get boxes that a plan has made for them
			t.Fatal("a sandbox was given a box with other limits")
		}
		s.destroy(string(sb.ID))
	}
	eventually(t, "all boxes are of what was asked for", func() bool {
		s.PlanPool()
		ready := s.Ready()
		return len(ready) == 2 && ready[0].MemoryBytes == 1<<30 && ready[1].MemoryBytes == 1<<30
	})
	if sb := s.run(lifecycle.CreateRequest{Resources: big}); !s.fromPool(string(sb.ID)) || sb.Resources.MemoryBytes != 1<<30 {
		t.Errorf("sandbox %+v is not from the pool", sb)
	}
	if ids := len(e.host.ids()); ids > 4 {
		t.Errorf("%d boxes on the host; given up ones stay", ids)
	}
}

func TestPoolIsNotShakenByOneCreate(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	before := e.host.ids()
	sb := s.run(lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 1 << 30}})
	s.PlanPool()
	want := append(slices.Clone(before), sb.ID)
	slices.Sort(want)
	if d := cmp.Diff(want, e.host.ids()); d != "" {
		t.Errorf("boxes differ (-want +got):\n%s", d)
	}
}

func TestPoolTakesBackWhatWasNotNeeded(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(1)
	s.run(lifecycle.CreateRequest{Name: "job"})
	s.filled(1)
	before := e.host.ids()
	if _, created, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: "job"}); created || err != nil {
		t.Fatalf("Create = created %v, %v, want the existing one", created, err)
	}
	if d := cmp.Diff(before, e.host.ids()); d != "" {
		t.Errorf("boxes differ (-want +got):\n%s", d)
	}
	if n := len(s.Ready()); n != 1 {
		t.Errorf("%d boxes in the pool, want 1", n)
	}
}

func TestPoolReplacesWhatDied(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(2)
	old := e.host.ids()
	for _, id := range old {
		e.host.End(id, driver.Exit{Cause: sandbox.CauseExited})
	}
	eventually(t, "there are new ones", func() bool {
		s.PlanPool()
		ids := e.host.ids()
		return len(s.Ready()) == 2 && len(ids) == 2 && !slices.Contains(old, ids[0]) && !slices.Contains(old, ids[1])
	})
}

// TestDeadBoxOfThePool has a box die in the moment it is given away.
func TestDeadBoxOfThePool(t *testing.T) {
	e := newEnv(t)
	e.host.SetFaults(fake.Faults{Wait: fake.Hang}) // nobody notices
	s := e.startFilled(1)
	id := e.host.ids()[0]
	e.host.End(id, driver.Exit{Cause: sandbox.CauseExited})
	sb := s.run(lifecycle.CreateRequest{Name: "job"})
	if sb.ID != id || s.fromPool("job") {
		t.Errorf("sandbox %s, from the pool: %v; want %s with a box of its own", sb.ID, s.fromPool("job"), id)
	}
	usable(t, s, "job")
}

func TestPoolGivesUpARemovedImage(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(1)
	e.images.mu.Lock()
	e.images.removed = true
	e.images.mu.Unlock()
	eventually(t, "the box is gone", func() bool {
		s.PlanPool()
		return len(e.host.ids()) == 0
	})
}

func TestBrokenPoolHarmsNobody(t *testing.T) {
	e := newEnv(t)
	e.cfg.PoolSize = 1
	tried := make(chan struct{}, 100)
	e.host.SetFaults(fake.Faults{Start: func(context.Context, sandbox.ID) error {
		tried <- struct{}{}
		return errors.New("no")
	}})
	s := e.start()
	<-tried
	eventually(t, "what was tried is removed", func() bool { return len(e.host.ids()) == 0 })
	e.host.SetFaults(fake.Faults{})
	s.run(lifecycle.CreateRequest{})
}

func TestShutdownEmptiesThePool(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(3)
	sb := s.run(lifecycle.CreateRequest{})
	s.stop()
	if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
		t.Errorf("boxes differ (-want +got):\n%s", d)
	}
}

func TestCreatesAtOnceShareThePool(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(4)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{})
	if err != nil || len(page.Items) != 12 {
		t.Fatalf("%d sandboxes, %v, want 12", len(page.Items), err)
	}
	hits := 0
	for _, sb := range page.Items {
		s.reach(string(sb.ID), sandbox.Running)
		usable(t, s, string(sb.ID))
		if s.fromPool(string(sb.ID)) {
			hits++
		}
	}
	if hits < 4 {
		t.Errorf("%d sandboxes are from the pool of 4", hits)
	}
}

// poolLife is the calls of a life with a box of the pool.
var poolLife = []string{
	"store.CreateSandbox", "driver.Furnish", "store.Transition running",
	"store.Transition destroying", "driver.Destroy", "store.Transition destroyed",
}

// TestCrashWithAFilledPool kills the server around each step. The next one has
// no pool: all that was in it must go. It finds the sandbox again, or starts it again.
func TestCrashWithAFilledPool(t *testing.T) {
	running := map[string]bool{"after store.CreateSandbox": true, "before store.Transition destroying": true}
	for _, call := range poolLife[1:slices.Index(poolLife, "store.Transition destroying")] {
		running["before "+call], running["after "+call] = true, true
	}
	crash := func(image, call, when string) {
		t.Run(path.Join(image, when+"-"+strings.ReplaceAll(call, " ", "-")), func(t *testing.T) {
			e := newEnv(t)
			s := e.startFilled(2)
			died := make(chan struct{})
			var once sync.Once
			die := func(_ int, c string) error {
				if c == call {
					once.Do(func() {
						s.driver.faults.die()
						close(died)
					})
				}
				return nil
			}
			if when == "before" {
				s.driver.faults.on(die, nil)
			} else {
				s.driver.faults.on(nil, die)
			}
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				_, _, err := s.Create(ctx, e.caller, lifecycle.CreateRequest{Name: "job", Image: image})
				if err != nil {
					return // it died there
				}
				if sb, err := s.Wait(ctx, e.caller, "job", sandbox.Running, time.Minute); err == nil && sb.State == sandbox.Running {
					_, _ = s.Destroy(ctx, e.caller, "job", "")
				}
			})
			<-died
			cancel()
			wg.Wait()
			s.kill()

			e.cfg.PoolSize = 0
			s = e.start()
			s.Sweep()
			var want []sandbox.ID
			if running[when+" "+call] {
				want = append(want, s.reach("job", sandbox.Running).ID)
				usable(t, s, "job")
			}
			eventually(t, "nothing else is left", func() bool { return cmp.Equal(want, e.host.ids(), cmpopts.EquateEmpty()) })
		})
	}
	for _, call := range poolLife {
		for _, when := range []string{"before", "after"} {
			// The pool has no box of this image, so that the sandbox gets a blank one.
			crash("modbox/other", call, when)
			if call != "driver.Furnish" { // a box of the default image has a root filesystem
				crash("", call, when)
			}
		}
	}
}

// TestLostRecordWithAPool has the store say that a record failed that succeeded.
func TestLostRecordWithAPool(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(1)
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "store.CreateSandbox" {
			return errors.New("connection lost")
		}
		return nil
	})
	if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: "job"}); err == nil {
		t.Fatal("Create succeeded")
	}
	s.driver.faults.on(nil, nil)
	s.Sweep()
	s.reach("job", sandbox.Failed)
}
