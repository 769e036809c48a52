package lifecycle_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
	"golang.org/x/sys/unix"
)

// barrier makes a script wait until the test opens the barrier.
func barrier(t *testing.T) (script string, open func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	return "read x <" + fifo + "\nexit 0\n", func() {
		t.Helper()
		f, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() }) // not before the script has read
		if _, err := f.WriteString("go\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// workboxes returns the limits of the boxes in which something was installed.
func (s *server) workboxes() (list []sandbox.Resources) {
	s.driver.specs.Range(func(_, spec any) bool {
		if spec := spec.(driver.Spec); strings.HasPrefix(spec.Hostname, "build-") {
			list = append(list, spec.Resources)
		}
		return true
	})
	return list
}

// TestInstallsCount: the box in which dependencies are installed counts for what it has
// beyond the sandbox that waits, and is as large as the quota lets it be.
func TestInstallsCount(t *testing.T) {
	const mib = int64(1 << 20)
	for name, c := range map[string]struct {
		quota       quota.Limits
		memory, cpu int64 // of the box
		disk        int64
	}{
		"no_quota": {nil, 2048 * mib, 2000, 16384 * mib},
		"room": {
			quota.Limits{quota.LimitMemory: 3000 * mib, quota.LimitCPU: 4000, quota.LimitDisk: 6000 * mib},
			2048 * mib, 2000, (6000 - 2048) * mib,
		},
		"some_room": {quota.Limits{quota.LimitMemory: 1500 * mib, quota.LimitCPU: 2500}, 988 * mib, 1500, 16384 * mib},
		"no_room":   {quota.Limits{quota.LimitMemory: 1024 * mib, quota.LimitCPU: 2000}, 512 * mib, 1000, 16384 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			wait, open := barrier(t)
			e, calls := withTools(t, map[string]string{"npm": wait})
			s := e.start()
			s.run(lifecycle.CreateRequest{}) // 512 MiB, a core and 2 GiB of disk, as the other
			s.setQuota(c.quota)
			req := lifecycle.CreateRequest{NpmPackages: []string{"x"}}
			first := s.create(req)
			eventually(t, "npm runs", func() bool { return calls()[0] != "" })
			s.Sweep()
			if used := s.used(); used.Sandboxes != 2 || used.MemoryBytes != 512*mib+c.memory || used.CPUMilli != 1000+c.cpu {
				t.Errorf("used while it installs: %+v, want %d and %d more than by a sandbox", used, c.memory, c.cpu)
			}
			if c.quota != nil {
				_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 1200 * mib}})
				if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
					t.Errorf("a sandbox beside it: %v, want it refused", err)
				}
			}
			open()
			s.reach(string(first.ID), sandbox.Running)
			if used := s.used(); used.MemoryBytes != 1024*mib || used.CPUMilli != 2000 {
				t.Errorf("used afterwards: %+v, want that of two sandboxes", used)
			}
			want := sandbox.Resources{MemoryBytes: c.memory, CPUMilli: c.cpu, DiskBytes: c.disk}
			if boxes := s.workboxes(); len(boxes) != 1 || boxes[0] != want {
				t.Errorf("it was installed in boxes of %+v, want one of %+v", boxes, want)
			}
			s.destroy(first.Name)
			if got := s.create(req); got.ImageDigest == "" { // needs no box any more
				t.Errorf("a second sandbox is made of nothing known")
			}
		})
	}
}

// TestInstallOfAKilledServer counts no more for the next one.
func TestInstallOfAKilledServer(t *testing.T) {
	wait, _ := barrier(t)
	e, calls := withTools(t, map[string]string{"npm": wait})
	e.cfg.Quota = quota.Limits{quota.LimitMemory: 2 << 30}
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{NpmPackages: []string{"x"}})
	eventually(t, "npm runs", func() bool { return calls()[0] != "" })
	if used := s.used(); used.MemoryBytes != 2<<30 {
		t.Errorf("used while it installs: %+v", used)
	}
	s.kill()
	s = e.start()
	eventually(t, "npm runs again", func() bool { return len(calls()) == 2 })
	if used := s.used(); used.MemoryBytes != 2<<30 {
		t.Errorf("used while it installs again: %+v", used)
	}
	s.destroy(string(sb.ID))
	eventually(t, "nothing is used", func() bool {
		used := s.used()
		return used.MemoryBytes == 0 && used.CPUMilli == 0
	})
}

// TestInstallsThatNoSandboxWaitsFor: they are refused when the quota has too little, with a time to
// try again.
func TestInstallsThatNoSandboxWaitsFor(t *testing.T) {
	wait, open := barrier(t)
	e, calls := withTools(t, map[string]string{"npm": wait, "apt-get": works, "apt-cache": works})
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.setQuota(quota.Limits{quota.LimitMemory: 1<<30 - 1})
	build := func() error {
		begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{NpmPackages: []string{"x"}})
		return err
	}
	wantRefused(t, "a build", build(), quota.LimitMemory)
	_, err := s.Prepare().ValidateAptPackages(t.Context(), s.caller, "", []string{"curl"})
	wantRefused(t, "a look at the mirrors", err, quota.LimitMemory)
	if got := calls(); got[0] != "" {
		t.Errorf("calls %q, want none", got)
	}
	s.setQuota(quota.Limits{quota.LimitMemory: 1 << 30})
	if _, err := s.Prepare().ValidateAptPackages(t.Context(), s.caller, "", []string{"curl"}); err != nil {
		t.Errorf("a look at the mirrors: %v", err)
	}
	var g sync.WaitGroup
	g.Go(func() {
		s.setQuota(quota.Limits{quota.LimitMemory: 5 << 29})
		if err := build(); err != nil {
			t.Errorf("a build: %v", err)
		}
	})
	eventually(t, "npm runs", func() bool { return len(calls()) > 2 })
	if used := s.used(); used.MemoryBytes != 5<<29 {
		t.Errorf("used by a build: %+v", used)
	}
	open()
	g.Wait()
	if used := s.used(); used.MemoryBytes != 512<<20 {
		t.Errorf("used after a build: %+v", used)
	}
}

// TestInstallsCountForTheDisk: an installation counts for every workspace that uses it, and is
// refused when the disk quota does not fit it.
func TestInstallsCountForTheDisk(t *testing.T) {
	const sandboxDisk, size = int64(2 << 30), int64(300 << 20)
	e, calls := withTools(t, map[string]string{"npm": works})
	e.images.layerBytes = size
	s := e.start()
	req := lifecycle.CreateRequest{NpmPackages: []string{"x"}}
	for _, c := range []struct {
		most  int64
		calls string
	}{{sandboxDisk, ""}, {sandboxDisk + size - 1, "npm"}} {
		s.setQuota(quota.Limits{quota.LimitDisk: c.most})
		sb := s.reach(string(s.create(req).ID), sandbox.Failed)
		if sb.Cause.Code != sandbox.CauseImage || !strings.Contains(sb.Cause.Message, "quota of disk") {
			t.Errorf("with %d of disk: %v, want the quota named", c.most, sb.Cause)
		}
		if got := calls(); len(got) != 1 || !strings.HasPrefix(got[0], c.calls) || c.calls == "" && got[0] != "" {
			t.Errorf("with %d of disk: calls %q, want %q", c.most, got, c.calls)
		}
	}
	s.setQuota(quota.Limits{quota.LimitDisk: sandboxDisk + size})
	s.run(req)
	if want := []sandbox.WorkspaceID{s.caller.Workspace}; !slices.Equal(e.images.cachedFor(), want) {
		t.Errorf("it counts for %v, want %v", e.images.cachedFor(), want)
	}
	before := len(calls())
	other := e.workspace("other")
	sb, _, err := s.Create(t.Context(), other, req)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Wait(t.Context(), other, string(sb.ID), sandbox.Running, time.Minute); err != nil || got.State != sandbox.Running {
		t.Fatalf("a sandbox of another workspace is %s, %v, %v", got.State, got.Cause, err)
	}
	if want := []sandbox.WorkspaceID{s.caller.Workspace, other.Workspace}; !slices.Equal(e.images.cachedFor(), want) || len(calls()) != before {
		t.Errorf("it counts for %v after %d more calls, want %v and none", e.images.cachedFor(), len(calls())-before, want)
	}
}
