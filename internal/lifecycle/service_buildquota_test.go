package lifecycle_test

import (
	"context"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// TestBuildsCount: a build counts as long as it has its place, and no longer than its server.
func TestBuildsCount(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxBuilds = 2
	e.cfg.Quota = quota.Limits{quota.LimitMemory: 1 << 30, quota.LimitCPU: 3000}
	s := e.start()
	asked := sandbox.Resources{MemoryBytes: 600 << 20, CPUMilli: 1000}
	_, release, err := s.builds.AcquireSlot(t.Context(), s.caller, asked, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if used := s.used(); used.Sandboxes != 0 || used.MemoryBytes != 600<<20 || used.CPUMilli != 1000 {
		t.Errorf("used by a build: %+v", used)
	}
	half := lifecycle.CreateRequest{Name: "half", Resources: asked}
	_, _, err = s.Create(t.Context(), s.caller, half)
	wantRefused(t, "a sandbox beside a build", err, quota.LimitMemory)
	for range 3 { // a refused create holds no place
		_, _, err = s.builds.AcquireSlot(t.Context(), s.caller, asked, 0, nil)
		wantRefused(t, "a build beside a build", err, quota.LimitMemory)
	}
	other, err := s.Prepare().AcquireInstall(t.Context(), s.caller.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	other() // a command of a Dockerfile may take longer than a sandbox waits for its image
	s.Sweep()
	if used := s.used(); used.MemoryBytes != 600<<20 {
		t.Errorf("used by a build that is under way, after a sweep: %+v", used)
	}
	release()
	release()
	s.create(half)
	s.destroy("half")
	if _, _, err := s.builds.AcquireSlot(t.Context(), s.caller, asked, 0, nil); err != nil {
		t.Fatal(err)
	}
	s.kill()
	s = e.start()
	if used := s.used(); used.MemoryBytes != 0 || used.CPUMilli != 0 {
		t.Errorf("used after a restart: %+v", used)
	}
}

// TestBuildsLeaveSnapshotsTheirPlaces: what is installed for builds holds none of
// the places in which snapshots are made.
func TestBuildsLeaveSnapshotsTheirPlaces(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	entered, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered) }) // a sandbox that finds no image has it made again
	e.images.missing(func(ctx context.Context, _ string, _ func(phase.Event)) error {
		first()
		<-release
		return nil
	})
	var g sync.WaitGroup
	for range 3 {
		begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/big"})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() {
			if _, err := s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{Env: map[string]string{"A": "b"}}); err != nil {
				t.Errorf("build: %v", err)
			}
		})
	}
	<-entered
	s.snap("a", snapshot.Request{})
	close(release)
	g.Wait()
}

// TestBuildsFitSmallQuotas: what a build takes without asking for it is no more than
// the workspace may have in all.
func TestBuildsFitSmallQuotas(t *testing.T) {
	s := newEnv(t).start()
	s.setQuota(quota.Limits{quota.LimitMemory: 512 << 20, quota.LimitCPU: 700})
	have, release, err := s.builds.AcquireSlot(t.Context(), s.caller, sandbox.Resources{}, 0, nil)
	if err != nil || have.MemoryBytes != 512<<20 || have.CPUMilli != 700 {
		t.Fatalf("a build in a small workspace has %+v, %v", have, err)
	}
	release()
	_, _, err = s.builds.AcquireSlot(t.Context(), s.caller, sandbox.Resources{MemoryBytes: 1 << 30}, 0, nil)
	wantRefused(t, "a build that asks for too much", err, quota.LimitMemory)
}
