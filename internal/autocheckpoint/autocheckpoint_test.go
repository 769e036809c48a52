package autocheckpoint_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/autocheckpoint"
	"github.com/modbox/modbox/internal/sandbox"
)

// host has sandboxes each of whose checkpoints takes a minute.
type host struct {
	mu     sync.Mutex
	list   []autocheckpoint.Sandbox
	now    map[sandbox.WorkspaceID]int // being saved
	most   int
	saves  []time.Time
	saved  map[sandbox.WorkspaceID]int
	minute time.Duration
}

func (h *host) Running() []autocheckpoint.Sandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]autocheckpoint.Sandbox(nil), h.list...)
}

func (h *host) Save(ctx context.Context, id sandbox.ID) {
	h.mu.Lock()
	var ws sandbox.WorkspaceID
	for _, sb := range h.list {
		if sb.ID == id {
			ws = sb.Workspace
		}
	}
	h.now[ws]++
	total := 0
	for _, n := range h.now {
		total += n
	}
	h.most = max(h.most, total)
	h.saves = append(h.saves, time.Now())
	h.mu.Unlock()
	select {
	case <-time.After(h.minute):
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now[ws]--
	h.saved[ws]++
	for i := range h.list {
		if h.list[i].ID == id {
			h.list[i].Since = time.Now()
		}
	}
}

// run has the checkpoints of h made for some time, at most so many at once.
func run(t *testing.T, h *host, concurrent int, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	h.now, h.saved = map[sandbox.WorkspaceID]int{}, map[sandbox.WorkspaceID]int{}
	autocheckpoint.New(h, concurrent, time.Second).Run(ctx)
}

func sandboxes(ws sandbox.WorkspaceID, n int) (list []autocheckpoint.Sandbox) {
	for i := range n {
		list = append(list, autocheckpoint.Sandbox{ID: sandbox.ID(fmt.Sprint(ws, i)), Workspace: ws, Interval: 10 * time.Minute, Since: time.Now()})
	}
	return list
}

func TestCheckpointsAreSpreadAndRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{list: sandboxes("a", 20), minute: time.Millisecond}
		begin := time.Now()
		run(t, h, 20, 12*time.Minute)
		if len(h.saves) != 20 {
			t.Fatalf("%d checkpoints in 12 minutes, want one of each", len(h.saves))
		}
		first, last := h.saves[0].Sub(begin), h.saves[len(h.saves)-1].Sub(begin)
		if first < 10*time.Minute || last-first < 20*time.Second {
			t.Errorf("checkpoints from %s to %s, want them after the interval and spread", first, last)
		}
	})
}

func TestFewCheckpointsAtOnceInFairTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{list: append(sandboxes("large", 50), sandboxes("small", 3)...), minute: time.Minute}
		run(t, h, 2, 18*time.Minute)
		if h.most != 2 {
			t.Errorf("%d checkpoints at once, want 2", h.most)
		}
		if h.saved["small"] < 3 || h.saved["large"] < 3 {
			t.Errorf("checkpoints by workspace: %v, want all of the small one", h.saved)
		}
	})
}
