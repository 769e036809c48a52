package fairsem

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// wait waits for a place in the background and hands over its release.
func wait(t *testing.T, places *Semaphore, ws sandbox.WorkspaceID) <-chan func() {
	t.Helper()
	got, waits := make(chan func(), 1), make(chan struct{})
	go func() {
		release, err := places.Acquire(t.Context(), ws, func() { close(waits) })
		if err != nil {
			t.Errorf("place of %s: %v", ws, err)
		}
		got <- release
	}()
	<-waits
	return got
}

func mustTake(t *testing.T, places *Semaphore, ws sandbox.WorkspaceID) func() {
	t.Helper()
	release, err := places.Acquire(t.Context(), ws, func() { t.Errorf("%s has to wait", ws) })
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func TestPlacesAreShared(t *testing.T) {
	places := New(3)
	mustTake(t, places, "b")() // so that it may want another
	a1, a2 := mustTake(t, places, "a"), mustTake(t, places, "a")
	a3 := wait(t, places, "a") // although a place is free
	b1 := mustTake(t, places, "b")
	a4, b2, c1 := wait(t, places, "a"), wait(t, places, "b"), wait(t, places, "c")
	a1()
	releaseC := <-c1 // c has none, and the others have one
	releaseC()
	releaseC() // twice is once
	releaseA := <-a3
	b1()
	(<-b2)()
	releaseA()
	a2()
	(<-a4)()
	places.mu.Lock()
	defer places.mu.Unlock()
	if places.free != 3 || places.waiting != 0 {
		t.Errorf("in the end %d are free, and %d wait", places.free, places.waiting)
	}
	for ws, l := range places.lines {
		if l.has != 0 || len(l.waiting) != 0 {
			t.Errorf("in the end %s has %d places, and %d wait", ws, l.has, len(l.waiting))
		}
	}
}

// TestSharedPlaces: however many places a workspace asks for, others find some.
func TestSharedPlaces(t *testing.T) {
	places := NewShared(9)
	var taken []func()
	take := func(ws sandbox.WorkspaceID, n int) {
		t.Helper()
		for range n {
			taken = append(taken, mustTake(t, places, ws))
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	none := func(ws sandbox.WorkspaceID) {
		t.Helper()
		if _, err := places.Acquire(over, ws, nil); err == nil {
			t.Fatalf("%s has more places than its share", ws)
		}
	}
	take("a", 6)
	none("a")
	take("b", 2)
	none("b")
	taken[0]()
	none("a")
	take("c", 1)
	take("d", 1) // the place that a gave back
	none("e")
	taken = append(taken, places.Add("b"))
	if used := places.Used(); used != 10 {
		t.Errorf("%d places are used, want 10", used)
	}
	for _, release := range taken {
		release()
	}
	if used := places.Used(); used != 0 {
		t.Errorf("in the end %d places are used", used)
	}
}

// TestPlacesOfTheServer: the places of the server itself count as free in shares, and as many are lacking as workspaces wait for within their shares.
func TestPlacesOfTheServer(t *testing.T) {
	places := NewShared(9)
	var own, taken []func()
	for range 6 {
		own = append(own, mustTake(t, places, ""))
	}
	if n := places.Lacking(); n != 0 {
		t.Errorf("%d places are lacking while nobody waits", n)
	}
	for range 3 {
		taken = append(taken, mustTake(t, places, "a"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	got := make(chan func(), 9)
	wait := func(ws sandbox.WorkspaceID, n int) {
		for range n {
			waits := make(chan struct{})
			callers.Go(func() {
				if release, err := places.Acquire(ctx, ws, func() { close(waits) }); err == nil {
					got <- release
				}
			})
			<-waits
		}
	}
	wait("a", 5)
	if n := places.Lacking(); n != 3 { // of the 9, a may have 6
		t.Errorf("%d places are lacking for a, want 3", n)
	}
	wait("b", 1)
	if n := places.Lacking(); n != 3 { // with 1 for b, a may have 5
		t.Errorf("%d places are lacking for a and b, want 3", n)
	}
	for i := range 3 {
		own[i]()
		taken = append(taken, <-got)
	}
	if n := places.Lacking(); n != 0 {
		t.Errorf("%d places are lacking for what is beyond the share of a", n)
	}
	own[3]()
	own[4]()
	cancel()
	callers.Wait()
	if len(got) != 0 {
		t.Error("a has more places than its share")
	}
	own[5]()
	for _, release := range taken {
		release()
	}
	if used := places.Used(); used != 0 {
		t.Errorf("in the end %d places are used", used)
	}
}

// TestTurns: a workspace with very many callers delays the caller of another by one turn at most, also when there is one
// place, and two such workspaces alternate.
func TestTurns(t *testing.T) {
	places := NewBrief(1)
	first := mustTake(t, places, "a")
	const many = 200
	order := make(chan sandbox.WorkspaceID, 2*many+1)
	var done sync.WaitGroup
	line := func(ws sandbox.WorkspaceID, n int) {
		for range n {
			waits := make(chan struct{})
			done.Go(func() {
				release, err := places.Acquire(t.Context(), ws, func() { close(waits) })
				if err != nil {
					t.Error(err)
					return
				}
				order <- ws
				release()
			})
			<-waits
		}
	}
	line("a", many)
	line("b", 1)
	line("c", many)
	if places.Used() != 1 {
		t.Errorf("%d places are used, want 1", places.Used())
	}
	first()
	done.Wait()
	close(order)
	var got []sandbox.WorkspaceID
	for ws := range order {
		got = append(got, ws)
	}
	if b := slices.Index(got, "b"); b > 1 {
		t.Errorf("b came after %d others", b)
	}
	for i := 3; i < 2*many-1; i++ {
		if got[i] == got[i-1] {
			t.Fatalf("%s has two turns in a row, the %dth and the next, while another waits", got[i], i)
		}
	}
	places.mu.Lock()
	defer places.mu.Unlock()
	if places.free != 1 || places.waiting != 0 {
		t.Errorf("in the end %d are free, and %d wait", places.free, places.waiting)
	}
}

// TestBriefPlacesAreKeptBriefly: the last place of a semaphore for brief work goes to a workspace that has the others when no
// other asked within the last minute, even if nothing else happens, and not because the workspace itself waits for longer.
func TestBriefPlacesAreKeptBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := NewBrief(2)
		a1 := mustTake(t, places, "a")
		mustTake(t, places, "b")()
		a2 := wait(t, places, "a")
		for range 4 {
			time.Sleep(keepFreeBriefly - time.Second)
			mustTake(t, places, "b")()
		}
		asked := time.Now()
		release := <-a2
		if got := time.Since(asked); got < keepFreeBriefly || got > keepFreeBriefly+time.Second {
			t.Errorf("the place that is kept for others was given away after %s", got)
		}
		a1()
		release()
		time.Sleep(keepFreeBriefly + time.Second)
		mustTake(t, places, "c")()
		places.mu.Lock()
		defer places.mu.Unlock()
		if places.free != 2 || len(places.lines) != 1 {
			t.Errorf("in the end %d are free, and %d workspaces are remembered", places.free, len(places.lines))
		}
	})
}

// TestOneWorkspaceGetsAllPlaces checks that a single workspace gets all places.
func TestOneWorkspaceGetsAllPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := New(2)
		mustTake(t, places, "b")()
		time.Sleep(keepFree + time.Second)
		mustTake(t, places, "")() // the server's own, for which none is reserved
		a1, a2 := mustTake(t, places, "a"), mustTake(t, places, "a")
		b1, a3 := wait(t, places, "b"), wait(t, places, "a")
		a1()
		releaseB := <-b1
		a2()
		releaseA := <-a3
		a4 := wait(t, places, "a")
		releaseB()
		synctest.Wait()
		select {
		case <-a4:
			t.Error("the place that b may want again was given away")
		default:
		}
		releaseA()
		(<-a4)()
	})
}

// TestKeptPlacesLapse checks that a reserved place goes to a waiter when its workspace has made no
// request for long, even if nothing else happens.
func TestKeptPlacesLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := New(2)
		mustTake(t, places, "b")()
		time.Sleep(keepFree / 2)
		mustTake(t, places, "c")()
		time.Sleep(keepFree / 4)
		asked := time.Now()
		a1 := mustTake(t, places, "a")
		a2 := wait(t, places, "a")
		(<-a2)()
		if got := time.Since(asked); got < keepFree/2 || got > MaxWait {
			t.Errorf("the place that is kept for others was given away after %s", got)
		}
		a1()
	})
}

func TestWaitersGiveUp(t *testing.T) {
	places := New(1)
	release := mustTake(t, places, "a") // the only place may be anybody's
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, waitersMax)
	for range waitersMax {
		waits := make(chan struct{})
		go func() {
			_, err := places.Acquire(ctx, "b", func() { close(waits) })
			left <- err
		}()
		<-waits
	}
	if _, err := places.Acquire(t.Context(), "b", nil); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many in the line: %v, want code quota_exceeded", err)
	}
	cancel()
	for range waitersMax {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who went away got %v", err)
		}
	}
	release()
	mustTake(t, places, "c")()
}

// TestWaitIsBounded checks that waiting ends with an error when no place becomes free.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := New(1)
		release := mustTake(t, places, "a")
		_, err := places.Acquire(t.Context(), "b", nil)
		var coded *sandbox.Error
		if !errors.As(err, &coded) || coded.Code != sandbox.Unavailable || coded.RetryAfter <= 0 {
			t.Errorf("after %s: %v, want code unavailable and a time to try again", MaxWait, err)
		}
		release()
		mustTake(t, places, "c")()
	})
}

// TestPlaceOfACallerThatGivesUp: a place that comes at the moment in which a caller gives up goes back.
func TestPlaceOfACallerThatGivesUp(t *testing.T) {
	places := New(1)
	gone := 0
	for range 100 { // chance decides which comes first
		first := mustTake(t, places, "a")
		ctx, cancel := context.WithCancel(t.Context())
		release, err := places.Acquire(ctx, "a", func() {
			cancel()
			first()
		})
		if err == nil {
			release()
			continue
		}
		gone++
		if used := places.Used(); used != 0 {
			t.Fatalf("%d places are used after the only caller gave up: %v", used, err)
		}
	}
	if gone == 0 {
		t.Error("no caller gave up")
	}
}
