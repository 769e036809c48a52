package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// wait waits for a place in the background and hands over its release.
func wait(t *testing.T, places *turns, ws sandbox.WorkspaceID) <-chan func() {
	t.Helper()
	got, waits := make(chan func(), 1), make(chan struct{})
	go func() {
		release, err := places.take(t.Context(), ws, func() { close(waits) })
		if err != nil {
			t.Errorf("place of %s: %v", ws, err)
		}
		got <- release
	}()
	<-waits
	return got
}

func mustTake(t *testing.T, places *turns, ws sandbox.WorkspaceID) func() {
	t.Helper()
	release, err := places.take(t.Context(), ws, func() { t.Errorf("%s has to wait", ws) })
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func TestTurnsAreFair(t *testing.T) {
	places := newTurns(3)
	mustTake(t, places, "b")() // which may want one again
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
	if places.free != 3 || len(places.has) != 0 || len(places.waiting) != 0 {
		t.Errorf("in the end %d are free, taken by %v", places.free, places.has)
	}
}

// TestTurnsOfOneWorkspace: who is alone has all places.
func TestTurnsOfOneWorkspace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newTurns(2)
		mustTake(t, places, "b")()
		time.Sleep(turnsMemory + time.Second)
		mustTake(t, places, "")() // the server's own, for which none is kept free
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

// TestTurnsThatAreKeptLapse: a place that is kept free for a workspace is given to who waits
// when that has not asked for long, also when nothing else happens.
func TestTurnsThatAreKeptLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newTurns(2)
		mustTake(t, places, "b")()
		time.Sleep(turnsMemory / 2)
		mustTake(t, places, "c")()
		time.Sleep(turnsMemory / 4)
		asked := time.Now()
		a1 := mustTake(t, places, "a")
		a2 := wait(t, places, "a")
		(<-a2)()
		if got := time.Since(asked); got < turnsMemory/2 || got > turnsPatience {
			t.Errorf("the place that is kept for others was given away after %s", got)
		}
		a1()
	})
}

func TestTurnsAreGivenUp(t *testing.T) {
	places := newTurns(1)
	release := mustTake(t, places, "a") // the only place may be anybody's
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, turnsMax)
	for range turnsMax {
		waits := make(chan struct{})
		go func() {
			_, err := places.take(ctx, "b", func() { close(waits) })
			left <- err
		}()
		<-waits
	}
	if _, err := places.take(t.Context(), "b", nil); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one too many in the line: %v, want code quota_exceeded", err)
	}
	cancel()
	for range turnsMax {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who went away got %v", err)
		}
	}
	release()
	mustTake(t, places, "c")()
}

// TestTurnsDoNotTakeForEver: who waits is told when no turn comes.
func TestTurnsDoNotTakeForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := newTurns(1)
		release := mustTake(t, places, "a")
		_, err := places.take(t.Context(), "b", nil)
		if sandbox.CodeOf(err) != sandbox.Unavailable || !passes(err) {
			t.Errorf("after %s: %v, want code unavailable and a time to try again", turnsPatience, err)
		}
		release()
		mustTake(t, places, "c")()
	})
}

// TestWaitingForATurnCostsNoTime: what is made has its whole time when its turn comes.
func TestWaitingForATurnCostsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{ctx: t.Context(), cfg: Config{ImageTimeout: time.Minute}}
		places := newTurns(1)
		release := mustTake(t, places, "a")
		done := make(chan error, 1)
		go func() {
			_, err := s.runMaking(t.Context(), places, "b", &making{}, func(ctx context.Context, _ func(sandbox.ImageEvent)) (sandbox.Image, error) {
				time.Sleep(50 * time.Second)
				return sandbox.Image{}, ctx.Err()
			})
			done <- err
		}()
		time.Sleep(10 * time.Minute)
		release()
		if err := <-done; err != nil {
			t.Errorf("made within its time: %v", err)
		}
		_, err := s.runMaking(t.Context(), places, "b", &making{}, func(ctx context.Context, _ func(sandbox.ImageEvent)) (sandbox.Image, error) {
			<-ctx.Done()
			return sandbox.Image{}, ctx.Err()
		})
		if sandbox.CodeOf(err) != sandbox.Timeout {
			t.Errorf("made in more than its time: %v, want code timeout", err)
		}
	})
}
