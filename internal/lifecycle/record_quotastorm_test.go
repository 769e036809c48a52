package lifecycle_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// TestNoWayAroundTheQuota has requests of every kind that records something made
// many at once against a quota of few, and the server killed in between.
func TestNoWayAroundTheQuota(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const most, each = 6, 4
	s.run(lifecycle.CreateRequest{Name: "parent"})
	s.write("parent", "/f", "x")
	sn := s.snap("parent", snapshot.Request{})
	for i := range each {
		for _, kind := range []string{"resumed-", "restored-", "woken-"} {
			name := fmt.Sprint(kind, i)
			s.run(lifecycle.CreateRequest{Name: name})
			if kind == "restored-" {
				if _, err := s.Checkpoints().Create(t.Context(), s.caller, name, "c"); err != nil {
					t.Fatal(err)
				}
			}
			s.pause(name)
		}
	}
	disk := s.used().Disk.Total() + (most-1)*(2<<30) + 5000
	s.setQuota(quota.Limits{quota.LimitSandboxes: most, quota.LimitDisk: disk})
	// The use is not read at a single moment: the sum of the disk counts when all is quiet.
	check := func(when string, quiet bool) {
		t.Helper()
		if used := s.used(); used.Sandboxes > most || quiet && used.Disk.Total() > disk {
			t.Errorf("%s: used %+v, want at most %d and %d of disk", when, used, most, disk)
		}
	}
	create := func(req lifecycle.CreateRequest) error {
		_, _, err := s.Create(t.Context(), s.caller, req)
		return err
	}
	kinds := map[string]func(i int) error{
		"create":  func(i int) error { return create(lifecycle.CreateRequest{Name: fmt.Sprint("new-", i)}) },
		"wait":    func(i int) error { return create(lifecycle.CreateRequest{WaitForQuota: time.Second}) },
		"replace": func(i int) error { return create(lifecycle.CreateRequest{Name: "replaced", Replace: true}) },
		"create from a snapshot": func(i int) error {
			return create(lifecycle.CreateRequest{Snapshot: string(sn.ID)})
		},
		"fork": func(i int) error {
			_, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{Count: 2})
			return err
		},
		"resume": func(i int) error {
			_, err := s.Resume(t.Context(), s.caller, fmt.Sprint("resumed-", i), lifecycle.ResumeRequest{})
			return err
		},
		"restore": func(i int) error {
			_, err := s.Checkpoints().Restore(t.Context(), s.caller, fmt.Sprint("restored-", i), "c")
			return err
		},
		"call": func(i int) error {
			_, err := s.Guest().Stat(t.Context(), s.caller, fmt.Sprint("woken-", i), "/")
			return err
		},
		"snapshot": func(i int) error {
			_, err := s.Snapshots().Create(t.Context(), s.caller, "parent", snapshot.Request{Name: fmt.Sprint("s", i)})
			return err
		},
		"checkpoint": func(i int) error {
			_, err := s.Checkpoints().Create(t.Context(), s.caller, "parent", fmt.Sprint("c", i))
			return err
		},
	}
	for round := range 2 {
		var g sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for kind, do := range kinds {
			for i := range each {
				g.Go(func() {
					err := do(i)
					mu.Lock()
					defer mu.Unlock()
					switch sandbox.CodeOf(err) {
					case sandbox.QuotaExceeded:
						refused++
					case sandbox.Internal, sandbox.Invalid:
						t.Errorf("%s: %v", kind, err)
					}
				})
			}
		}
		watched := make(chan struct{})
		go func() {
			g.Wait()
			close(watched)
		}()
		for done := false; !done; {
			check(fmt.Sprint("round ", round), false)
			select {
			case <-watched:
				done = true
			default:
			}
		}
		if refused == 0 {
			t.Error("nobody was refused: the test shows nothing")
		}
		check("when all were answered", true)
		s.kill()
		s = e.start()
		check("after the server was killed", true)
	}
}

// TestSnapshotThatDoesNotFit: the size of a snapshot is known when it is made; if it is too large,
// its files are removed.
func TestSnapshotThatDoesNotFit(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/f", "x")
	sn := s.snap("a", snapshot.Request{Name: "first"})
	s.setQuota(quota.Limits{quota.LimitDisk: s.used().Disk.Total() + sn.SizeBytes - 1})
	_, err := s.Snapshots().Create(t.Context(), s.caller, "a", snapshot.Request{Name: "second"})
	wantRefused(t, "a snapshot that does not fit", err, quota.LimitDisk)
	s.setQuota(quota.Limits{quota.LimitDisk: s.used().Disk.Total() + sn.SizeBytes})
	s.snap("a", snapshot.Request{Name: "third"})
	if d := s.used().Disk; d.Snapshots != 2*sn.SizeBytes {
		t.Errorf("snapshots count %d, want %d", d.Snapshots, 2*sn.SizeBytes)
	}
}
