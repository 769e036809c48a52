package eviction_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/eviction"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	mib       = 1 << 20
	threshold = 512 * mib
)

// host is a disk whose boxes and caches have sizes chosen by the test.
type host struct {
	total  int64
	caches int64
	// quarantine has the sizes of the quarantined entries, oldest first.
	quarantine []int64
	boxes      map[sandbox.ID]int64
	order      []sandbox.ID
	// lingers makes evicted boxes remain, as boxes that are being destroyed.
	lingers bool
	ending  map[sandbox.ID]bool
	evicted []sandbox.ID
	fails   error
	// stuck blocks the removal of caches for ever, and slow the removal from quarantine until it is
	// closed.
	stuck bool
	slow  chan struct{}
	// removals counts the removals from quarantine in progress.
	removals int
}

func (h *host) Free() (int64, error) {
	free := h.total - h.caches
	for _, n := range h.quarantine {
		free -= n
	}
	for _, n := range h.boxes {
		free -= n
	}
	return free, nil
}

func (h *host) RemoveQuarantined(_ context.Context, bytes int64) error {
	h.removals++
	defer func() { h.removals-- }()
	if h.slow != nil {
		<-h.slow
	}
	for ; bytes > 0 && len(h.quarantine) > 0; h.quarantine = h.quarantine[1:] {
		bytes -= h.quarantine[0]
	}
	return nil
}

func (h *host) RemoveCaches(ctx context.Context) (int64, error) {
	if h.stuck {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	n := h.caches
	h.caches = 0
	return n, nil
}

func (h *host) DiskUse(context.Context) (uses []eviction.Use, err error) {
	for _, id := range h.order {
		if n, ok := h.boxes[id]; ok {
			uses = append(uses, eviction.Use{ID: id, Bytes: n, Ending: h.ending[id]})
		}
	}
	return uses, nil
}

func (h *host) Evict(_ context.Context, id sandbox.ID, _ string) error {
	if h.fails != nil {
		return h.fails
	}
	h.evicted = append(h.evicted, id)
	if h.lingers {
		h.ending[id] = true
	} else {
		delete(h.boxes, id)
	}
	return nil
}

func (h *host) Looked(int64, bool) {}

func start(total int64, boxes map[sandbox.ID]int64, order ...sandbox.ID) (*host, *eviction.Manager) {
	h := &host{total: total, boxes: boxes, order: order, ending: map[sandbox.ID]bool{}}
	return h, eviction.New(eviction.Config{Threshold: threshold, Critical: 64 * mib}, h, slog.New(slog.DiscardHandler))
}

func (h *host) want(t *testing.T, want ...sandbox.ID) {
	t.Helper()
	if diff := cmp.Diff(want, h.evicted); diff != "" {
		t.Errorf("evicted (-want +got):\n%s", diff)
	}
}

func TestSandboxThatGrewMostEndsOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"quiet": 1500 * mib, "slow": 100 * mib, "fast": 100 * mib}, "quiet", "slow", "fast")
		m.Look(t.Context())
		h.boxes["slow"], h.boxes["fast"] = 700*mib, 1400*mib
		m.Look(t.Context())
		h.want(t, "fast")
		for range 10 {
			m.Look(t.Context())
		}
		h.want(t, "fast") // that was enough
		h.boxes["slow"] += 2000 * mib
		m.Look(t.Context())
		h.want(t, "fast", "slow")
	})
}

func TestCachesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		h.caches = 1000 * mib
		m.Look(t.Context())
		h.boxes["grows"] = 3000 * mib
		m.Look(t.Context())
		h.want(t)
		if h.caches != 0 {
			t.Error("caches were left")
		}
		h.boxes["grows"] = 4000 * mib
		m.Look(t.Context())
		h.want(t, "grows")
	})
}

// Quarantined files are removed before caches and sandboxes, and only as many as needed.
func TestQuarantineGoesBeforeEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		h.caches, h.quarantine = 100*mib, []int64{700 * mib, 700 * mib, 700 * mib}
		m.Look(t.Context())
		h.boxes["grows"] = 1600 * mib
		m.Look(t.Context())
		h.want(t)
		if len(h.quarantine) != 2 || h.caches == 0 {
			t.Errorf("in quarantine: %d, caches: %d bytes; want 2 left of 3, and the caches", len(h.quarantine), h.caches)
		}
		h.boxes["grows"] = 3900 * mib
		m.Look(t.Context())
		if len(h.quarantine) != 0 {
			t.Errorf("in quarantine: %d, want none when that does not suffice", len(h.quarantine))
		}
	})
}

// Removing a very large entry of the quarantine takes long. A sandbox that fills the disk meanwhile
// ends nevertheless, but not while half of the threshold is free.
func TestQuarantineThatIsHardToRemoveHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		h.quarantine, h.slow = []int64{1000 * mib}, make(chan struct{})
		m.Look(t.Context())
		h.boxes["grows"] = 2700 * mib
		for range 5 {
			m.Look(t.Context())
		}
		h.want(t)
		synctest.Wait()
		if h.removals != 1 {
			t.Errorf("%d removals are under way, want one", h.removals)
		}
		h.boxes["grows"] = 3000 * mib
		m.Look(t.Context())
		h.want(t, "grows")
		close(h.slow)
		synctest.Wait()
		if len(h.quarantine) != 0 {
			t.Error("the removal was given up")
		}
		h.quarantine, h.boxes["grows"], h.slow = []int64{700 * mib}, 3000*mib, nil
		m.Look(t.Context())
		h.want(t, "grows")
		if len(h.quarantine) != 0 {
			t.Error("nothing more was removed after that")
		}
	})
}

func TestSlowRemovalFromQuarantineIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		h.quarantine, h.slow = []int64{1000 * mib}, make(chan struct{})
		defer close(h.slow)
		m.Look(t.Context())
		h.boxes["grows"] = 2700 * mib
		m.Look(t.Context())
		h.want(t)
		time.Sleep(time.Minute)
		m.Look(t.Context())
		h.want(t, "grows")
	})
}

func TestNothingElseEndsWhileSpaceIsBeingFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"a": 0, "b": 0}, "a", "b")
		h.lingers = true
		m.Look(t.Context())
		h.boxes["a"], h.boxes["b"] = 2000*mib, 1900*mib
		for range 20 {
			m.Look(t.Context())
			time.Sleep(time.Second)
		}
		h.want(t, "a")
		delete(h.boxes, "a")
		m.Look(t.Context())
		h.want(t, "a")
		// The manager does not wait for ever for a box that cannot be destroyed.
		h.boxes["a"] = 2000 * mib
		time.Sleep(time.Minute)
		m.Look(t.Context())
		h.want(t, "a", "b")
	})
}

func TestAnotherSandboxThatGoesOnGrowingEndsToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"a": 0, "b": 0, "still": 0}, "a", "b", "still")
		h.lingers = true
		m.Look(t.Context())
		h.boxes["a"], h.boxes["b"], h.boxes["still"] = 1600*mib, 1500*mib, 500*mib
		m.Look(t.Context())
		h.want(t, "a")
		h.boxes["b"] += 100 * mib // while there is more than half of the threshold
		m.Look(t.Context())
		h.want(t, "a")
		h.boxes["b"] += 200 * mib
		m.Look(t.Context())
		h.want(t, "a", "b")
		m.Look(t.Context())
		h.want(t, "a", "b") // the third does not grow any more
	})
}

func TestCachesThatAreHardToRemoveHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		h.stuck = true
		m.Look(t.Context())
		h.boxes["grows"] = 4000 * mib
		m.Look(t.Context())
		h.want(t, "grows")
	})
}

func TestSandboxesThatDoNotGrowEndOnlyWhenNothingIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"small": 10 * mib, "large": 800 * mib, "larger": 900 * mib}, "small", "large", "larger")
		m.Look(t.Context())
		h.total -= 2000 * mib // by something else on the host
		for range 100 {
			m.Look(t.Context())
			time.Sleep(time.Second)
		}
		h.want(t)
		h.total = 1730 * mib
		m.Look(t.Context())
		h.want(t, "larger")
		h.total = 830 * mib
		for range 50 {
			m.Look(t.Context())
			time.Sleep(time.Second)
		}
		h.want(t, "larger")
		time.Sleep(time.Minute)
		m.Look(t.Context())
		h.want(t, "larger", "large")
		h.total = 20 * mib
		time.Sleep(time.Hour)
		m.Look(t.Context())
		h.want(t, "larger", "large") // ending the small one would not help
	})
}

func TestGrowthCountsFromBeforeTheDiskBeganToFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"early": 0, "late": 0}, "early", "late")
		m.Look(t.Context())
		h.boxes["early"] = 2000 * mib // long ago
		for range 3 {
			time.Sleep(time.Minute)
			m.Look(t.Context())
		}
		h.boxes["late"] = 1700 * mib
		m.Look(t.Context())
		h.want(t, "late")
	})
}

func TestFailedEvictionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, m := start(4096*mib, map[sandbox.ID]int64{"grows": 0}, "grows")
		m.Look(t.Context())
		h.boxes["grows"], h.fails = 4000*mib, errors.New("not now")
		m.Look(t.Context())
		h.fails = nil
		m.Look(t.Context())
		h.want(t, "grows")
	})
}
