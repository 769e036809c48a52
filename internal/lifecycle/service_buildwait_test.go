package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// halves are the resources of which two fill the workspace of [withHalves].
var halves = sandbox.Resources{MemoryBytes: 1 << 30, CPUMilli: 1000, DiskBytes: 1 << 30}

// withHalves returns a workspace whose quota fits two builds or sandboxes.
func withHalves(t *testing.T) *env {
	t.Helper()
	e := newEnv(t)
	e.cfg.MaxBuilds = 4
	e.cfg.Build = halves
	e.cfg.Quota = quota.Limits{quota.LimitMemory: 2 << 30}
	return e
}

// TestBuildsWaitForQuota: a build waits in the line of the creates, in which nobody is
// passed, and holds no place meanwhile.
func TestBuildsWaitForQuota(t *testing.T) {
	s := withHalves(t).start()
	s.run(lifecycle.CreateRequest{Name: "a", Resources: halves})
	s.run(lifecycle.CreateRequest{Name: "b", Resources: halves})
	_, _, err := s.builds.AcquireSlot(t.Context(), s.caller, halves, 0, func(string) {})
	wantRefused(t, "a build that does not wait", err, quota.LimitMemory)
	var g sync.WaitGroup
	said := make(chan string, 1)
	built := make(chan func(), 1)
	g.Go(func() {
		have, release, err := s.builds.AcquireSlot(t.Context(), s.caller, halves, time.Minute, func(what string) { said <- what })
		if err != nil || have.MemoryBytes != halves.MemoryBytes {
			t.Errorf("a build that waits: %+v, %v", have, err)
			release = func() {}
		}
		built <- release
	})
	eventually(t, "the build waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	if what := <-said; what != "the quota of the workspace or the server's capacity is used up" {
		t.Errorf("it says %q", what)
	}
	if used := s.used(); used.MemoryBytes != 2<<30 {
		t.Errorf("used while it waits: %+v, want that of two sandboxes", used)
	}
	made := make(chan error, 1)
	g.Go(func() {
		_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "c", Resources: halves, WaitForQuota: time.Minute})
		made <- err
	})
	eventually(t, "a create waits behind it", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 2 })
	s.destroy("a")
	release := <-built // before the create, which came later
	if n := s.Quotas().Waiting(s.caller.Workspace); n != 1 {
		t.Errorf("%d wait, want the create", n)
	}
	_, _, err = s.builds.AcquireSlot(t.Context(), s.caller, sandbox.Resources{MemoryBytes: 64 << 20}, 0, nil)
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("a small build beside one who waits: %v, want it refused", err)
	}
	release()
	if err := <-made; err != nil {
		t.Errorf("the create: %v", err)
	}
	g.Wait()
	if n, used := s.Quotas().Waiting(s.caller.Workspace), s.used(); n != 0 || used.MemoryBytes != 2<<30 {
		t.Errorf("%d wait and %+v is used afterwards, want none, and two sandboxes", n, used)
	}
}

// TestBuildWhoseCallerLeavesTheLine leaves nothing: no waiter, no reservation, no place.
func TestBuildWhoseCallerLeavesTheLine(t *testing.T) {
	e := withHalves(t)
	e.cfg.MaxBuilds = 1
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a", Resources: sandbox.Resources{MemoryBytes: 2 << 30}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.builds.AcquireSlot(ctx, s.caller, halves, time.Minute, func(string) {})
		failed <- err
	}()
	eventually(t, "the build waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a build whose caller leaves: %v, want its context's error", err)
	}
	if n, used := s.Quotas().Waiting(s.caller.Workspace), s.used(); n != 0 || used.MemoryBytes != 2<<30 {
		t.Errorf("%d wait and %+v is used, want none, and the sandbox", n, used)
	}
	s.destroy("a")
	_, release, err := s.builds.AcquireSlot(t.Context(), s.caller, halves, 0, nil)
	if err != nil {
		t.Fatalf("the next build: %v", err)
	}
	release()
}

// TestBuildThatNeverFits is refused at once, and so is a wait that is too long, by its field.
func TestBuildThatNeverFits(t *testing.T) {
	e := withHalves(t)
	e.cfg.Max = sandbox.Resources{MemoryBytes: 8 << 30, CPUMilli: 8000, DiskBytes: 8 << 30}
	s := e.start()
	_, _, err := s.builds.AcquireSlot(t.Context(), s.caller, sandbox.Resources{MemoryBytes: 4 << 30}, time.Minute, nil)
	if !errors.Is(err, quota.ErrNeverFits) {
		t.Errorf("a build beyond the quota: %v, want that it never fits", err)
	}
	err = s.builds.CheckLimits(halves, quota.WaitMax+time.Second)
	var coded *sandbox.Error
	if !errors.As(err, &coded) || coded.Code != sandbox.Invalid || coded.Field != "wait_for_quota_seconds" {
		t.Errorf("a wait that is too long: %v, want the field named", err)
	}
}

// TestWaitingBuildsEndWithTheServer: their error says that the server stops.
func TestWaitingBuildsEndWithTheServer(t *testing.T) {
	s := withHalves(t).start()
	s.run(lifecycle.CreateRequest{Name: "a", Resources: sandbox.Resources{MemoryBytes: 2 << 30}})
	failed := make(chan error, 1)
	go func() {
		_, _, err := s.builds.AcquireSlot(t.Context(), s.caller, halves, time.Minute, func(string) {})
		failed <- err
	}()
	eventually(t, "the build waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	s.Quotas().StopWaiting()
	if err := <-failed; sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a build that waits when the server stops: %v, want unavailable", err)
	}
}

// TestSnapshotBuildsWaitForQuota: the finish waits, and the build stays begun when the quota has no
// capacity, or nobody waits any more; all its boxes share the reservation.
func TestSnapshotBuildsWaitForQuota(t *testing.T) {
	e, calls := withTools(t, map[string]string{"npm": works})
	e.cfg.Build = halves
	e.cfg.Quota = quota.Limits{quota.LimitMemory: 1 << 30, quota.LimitDisk: 3 << 30}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a", Resources: halves})
	begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	finish := func(ctx context.Context, testTimeout time.Duration) (sandbox.Snapshot, error) {
		return s.Snapshots().Assemblies().Finish(ctx, s.caller, begun.ID, snapshot.Contents{NpmPackages: []string{"x"}, WaitForQuota: testTimeout})
	}
	_, err = finish(t.Context(), time.Nanosecond)
	wantRefused(t, "a finish that does not wait for long", err, quota.LimitMemory)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := finish(ctx, time.Minute)
		failed <- err
	}()
	eventually(t, "the finish waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("a finish whose caller leaves: %v, want its context's error", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := finish(t.Context(), time.Minute)
		done <- err
	}()
	eventually(t, "the finish waits again", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	if got := calls(); got[0] != "" {
		t.Errorf("calls %q while it waits, want none", got)
	}
	s.destroy("a")
	if err := <-done; err != nil {
		t.Errorf("a finish that waits: %v", err)
	}
	eventually(t, "nothing is reserved", func() bool { u := s.used(); return u.MemoryBytes == 0 && u.Disk.Builds == 0 })
	if n := s.Quotas().Waiting(s.caller.Workspace); n != 0 {
		t.Errorf("%d wait afterwards", n)
	}
}
