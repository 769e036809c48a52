package lifecycle_test

import (
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestCreatesOfTheSameID: of several creates at once that name the same id at most one makes a
// sandbox, whose box survives the failure of the others.
func TestCreatesOfTheSameID(t *testing.T) {
	s := newEnv(t).start()
	for range 10 {
		id := sandbox.NewID()
		var g sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for range 4 {
			g.Go(func() {
				_, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{ID: id})
				mu.Lock()
				defer mu.Unlock()
				if err == nil && created {
					made++
				}
			})
		}
		g.Wait()
		if made != 1 {
			t.Fatalf("%d sandboxes made with id %s, want 1", made, id)
		}
		s.reach(string(id), sandbox.Running)
		s.Sweep()
		usable(t, s, string(id))
	}
}

// TestRefusedCreateLeavesThePool: a create that the quota refuses gives its warm box back, to
// the next create that is accepted.
func TestRefusedCreateLeavesThePool(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(1)
	warm := e.host.ids()[0]
	s.setQuota(quota.Limits{quota.LimitMemory: 1 << 20})
	for range 3 {
		if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Fatalf("a create beyond the quota: %v, want code quota_exceeded", err)
		}
	}
	s.setQuota(quota.Limits{})
	if sb := s.run(lifecycle.CreateRequest{Name: "job"}); sb.ID != warm || !s.fromPool("job") {
		t.Errorf("sandbox %s, from the pool: %v; want the warm box %s", sb.ID, s.fromPool("job"), warm)
	}
}
