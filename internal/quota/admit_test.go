package quota

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// noStore is a store in which nothing is set and no build is recorded.
type noStore struct{ Store }

func (noStore) Quota(context.Context, sandbox.WorkspaceID) (Limits, error) {
	return Limits{}, nil
}

// fakeDisk is a disk that may be nearly full.
type fakeDisk struct {
	low, evicting atomic.Bool
	checks        atomic.Int64 // calls of CheckFree
	cached        atomic.Int64 // evictions for which the build cache has enough
}

var errLow = sandbox.Errorf(sandbox.Unavailable, "the disk is nearly full")

func (*fakeDisk) Unrecorded(sandbox.WorkspaceID) UnrecordedDisk { return UnrecordedDisk{} }

func (d *fakeDisk) FreeCache(context.Context, sandbox.WorkspaceID, int64) (bool, error) {
	return d.cached.Add(-1) >= 0, nil
}

func (d *fakeDisk) CheckFree(int64) error {
	d.checks.Add(1)
	if d.low.Load() {
		return errLow
	}
	return nil
}

func (d *fakeDisk) Evicting() bool { return d.evicting.Load() }

// host counts the records of each workspace, and limits them to the workspace's capacity.
type host struct {
	*Controller
	disk fakeDisk

	mu    sync.Mutex
	room  map[sandbox.WorkspaceID]int // guarded by mu
	tries map[sandbox.WorkspaceID]int // guarded by mu
	order []string                    // names of admitted requests; guarded by mu
}

func newHost() *host {
	h := &host{room: map[sandbox.WorkspaceID]int{}, tries: map[sandbox.WorkspaceID]int{}}
	h.Controller = New(Config{}, noStore{}, &h.disk, slog.New(slog.NewTextHandler(io.Discard, nil)))
	return h
}

// admit asks for a sandbox of a workspace.
func (h *host) admit(ctx context.Context, ws sandbox.WorkspaceID, name string, maxWait time.Duration) error {
	return h.Admit(ctx, Request{Workspace: ws, Count: 1, MaxWait: maxWait}, func(a Admission) (int, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tries[ws]++
		if a.Refuse != nil {
			return 0, a.Refuse
		}
		if h.room[ws] == 0 {
			e := sandbox.Errorf(sandbox.QuotaExceeded, "no room")
			e.RetryAfter = time.Second
			return 0, e
		}
		h.room[ws]--
		h.order = append(h.order, name)
		return 1, nil
	})
}

// tried returns the number of records of a workspace since the last call.
func (h *host) tried(ws sandbox.WorkspaceID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.tries[ws]
	h.tries[ws] = 0
	return n
}

// release frees the capacity for n sandboxes of a workspace.
func (h *host) release(ws sandbox.WorkspaceID, n int) {
	h.mu.Lock()
	h.room[ws] += n
	h.mu.Unlock()
	h.Released()
}

// TestThousandWaitingCreatesOfOneWorkspace: a hundred wait, of which one tries, at a modest
// interval; the others are refused; another workspace is admitted at its first try.
func TestThousandWaitingCreatesOfOneWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		const creates = 1000
		errs := make(chan error, creates)
		for i := range creates {
			go func() { errs <- h.admit(t.Context(), "many", fmt.Sprint(i), 10*time.Minute) }()
		}
		synctest.Wait()
		if n := h.Waiting("many"); n != waitersMax {
			t.Errorf("%d creates wait, want %d", n, waitersMax)
		}
		for range creates - waitersMax {
			if err := <-errs; sandbox.CodeOf(err) != sandbox.QuotaExceeded {
				t.Fatalf("a create beyond those that may wait: %v, want code quota_exceeded", err)
			}
		}
		h.tried("many")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := h.tried("many"); n == 0 || n > 60 {
			t.Errorf("%d tries in a minute without any change, want 1 to 60", n)
		}
		h.release("other", 1)
		synctest.Wait()
		if n := h.tried("many"); n > 2 {
			t.Errorf("%d tries after room was made for others, want the head's alone", n)
		}
		if err := h.admit(t.Context(), "other", "other", 0); err != nil {
			t.Errorf("a create of another workspace: %v", err)
		}
		if n := h.tried("other"); n != 1 {
			t.Errorf("%d tries of another workspace, want 1", n)
		}
		h.release("many", waitersMax)
		for range waitersMax {
			if err := <-errs; err != nil {
				t.Fatalf("a create that waits, when there is room: %v", err)
			}
		}
		if n := h.tried("many"); n > waitersMax+1 {
			t.Errorf("%d tries for %d creates", n, waitersMax)
		}
		if n := h.Waiting("many"); n != 0 {
			t.Errorf("%d creates wait in the end", n)
		}
	})
}

// TestQueueKeepsItsOrder: requests of a workspace are admitted in the order in which they came.
func TestQueueKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		var g sync.WaitGroup
		want := []string{"a", "b", "c", "d"}
		for _, name := range want {
			g.Go(func() {
				if err := h.admit(t.Context(), "w", name, time.Hour); err != nil {
					t.Errorf("request %s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		h.release("w", 1)
		synctest.Wait()
		if err := h.admit(t.Context(), "w", "late", 0); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Errorf("a request that overtakes: %v, want code quota_exceeded", err)
		}
		h.release("w", 3)
		g.Wait()
		if !slices.Equal(h.order, want) {
			t.Errorf("admitted in the order %v, want %v", h.order, want)
		}
	})
}

// TestHeadsOfManyWorkspacesShareThePolls: the polls of all together are bounded.
func TestHeadsOfManyWorkspacesShareThePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		ctx, cancel := context.WithCancel(t.Context())
		const workspaces = 500
		var g sync.WaitGroup
		for i := range workspaces {
			ws := sandbox.WorkspaceID(fmt.Sprint(i))
			g.Go(func() {
				if err := h.admit(ctx, ws, "x", time.Hour); !errors.Is(err, context.Canceled) {
					t.Errorf("a request that is cancelled: %v", err)
				}
			})
		}
		synctest.Wait()
		sum := func() (n int) {
			for i := range workspaces {
				n += h.tried(sandbox.WorkspaceID(fmt.Sprint(i)))
			}
			return n
		}
		time.Sleep(time.Minute) // the first polls had a shorter interval
		synctest.Wait()
		sum()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := sum(); n == 0 || n > 60*pollsPerSecond+workspaces {
			t.Errorf("%d tries in a minute, want at most %d a second", n, pollsPerSecond)
		}
		cancel()
		g.Wait()
	})
}

// TestLowDiskIsWaitedForInMemory: creates that wait for the disk neither poll the database nor each
// the disk, and all go on when there is space.
func TestLowDiskIsWaitedForInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.disk.low.Store(true)
		h.disk.evicting.Store(true)
		h.room["w"] = 1000
		const creates = 300
		errs := make(chan error, creates)
		for i := range creates {
			go func() { errs <- h.admit(t.Context(), "w", fmt.Sprint(i), 0) }()
		}
		synctest.Wait()
		for range creates - waitersMax {
			if err := <-errs; !errors.Is(err, errLow) {
				t.Fatalf("a create beyond those that may wait: %v, want the disk nearly full", err)
			}
		}
		if n := h.tried("w"); n != creates {
			t.Errorf("%d tries, want one of each create", n)
		}
		h.disk.checks.Store(0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := h.disk.checks.Load(); n == 0 || n > int64(10*time.Second/diskPoll)+2 {
			t.Errorf("the disk was looked at %d times in ten seconds", n)
		}
		if n := h.tried("w"); n != 0 {
			t.Errorf("%d tries while the disk is nearly full, want none", n)
		}
		h.disk.low.Store(false)
		for range waitersMax {
			if err := <-errs; err != nil {
				t.Fatalf("a create that waited for the disk: %v", err)
			}
		}
		if n := h.tried("w"); n != waitersMax {
			t.Errorf("%d tries afterwards, want %d", n, waitersMax)
		}
	})
}

// TestLowDiskThatNobodyFrees: a create is refused after a second, with the reason, or after the
// longest wait while sandboxes are being ended.
func TestLowDiskThatNobodyFrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		h.disk.low.Store(true)
		for _, c := range []struct {
			evicting bool
			want     time.Duration
		}{{false, diskGrace}, {true, diskMaxWait}} {
			h.disk.evicting.Store(c.evicting)
			begin := time.Now()
			if err := h.admit(t.Context(), "w", "x", 0); !errors.Is(err, errLow) {
				t.Errorf("evicting %v: %v, want the disk nearly full", c.evicting, err)
			}
			if got := time.Since(begin); got < c.want || got > c.want+2*diskPoll {
				t.Errorf("evicting %v: refused after %s, want %s", c.evicting, got, c.want)
			}
		}
	})
}

// TestStopWaiting refuses all requests that wait, for quota and for the disk, and all later
// requests.
func TestStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		errs := make(chan error, 3)
		go func() { errs <- h.admit(t.Context(), "queued", "x", time.Hour) }()
		synctest.Wait()
		h.disk.low.Store(true)
		h.disk.evicting.Store(true)
		for range 2 {
			go func() { errs <- h.admit(t.Context(), "disk", "x", 0) }()
		}
		synctest.Wait()
		h.StopWaiting()
		h.StopWaiting()
		for range 3 {
			if err := <-errs; sandbox.CodeOf(err) != sandbox.Unavailable || errors.Is(err, errLow) {
				t.Errorf("a request that waits when the server stops: %v, want code unavailable", err)
			}
		}
		h.disk.low.Store(false)
		if err := h.admit(t.Context(), "late", "x", time.Hour); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("a request that would wait: %v, want code unavailable", err)
		}
	})
}

// TestRecordEvictsUntilItFits records an object that counts an image when the layers over the image are evicted.
func TestRecordEvictsUntilItFits(t *testing.T) {
	for cached, want := range map[int64]error{2: nil, 1: errNoDisk} {
		h := newHost()
		h.disk.cached.Store(cached)
		calls := 0
		err := h.Record(t.Context(), Admission{}, "me", func(Admission) error {
			if calls++; calls <= 2 {
				return errNoDisk
			}
			return nil
		})
		if !errors.Is(err, want) {
			t.Errorf("with a cache for %d evictions, Record() = %v after %d calls, want %v", cached, err, calls, want)
		}
	}
}

var errNoDisk = full(LimitDisk, 1, "1", "1", "")
