package box_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// running returns a box whose sandbox runs, in a group that takes work.
func running(t *testing.T) (*box.Box, *background.Group) {
	t.Helper()
	group := background.New()
	group.Start()
	t.Cleanup(func() {
		group.Stop()
		group.Cancel()
		if err := group.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	id := sandbox.NewID()
	b := box.New(group, id, agentapi.NewMemory(1<<20).NewClient(nil))
	set(b, sandbox.Sandbox{ID: id, Name: "one", Workspace: "w", State: sandbox.Running})
	return b, group
}

func set(b *box.Box, sb sandbox.Sandbox) {
	b.Lock()
	defer b.Unlock()
	b.Set(sb)
}

func TestOperationsRunOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := running(t)
		release := make(chan struct{})
		first := make(chan error, 1)
		go func() { first <- b.Exclusively(t.Context(), box.Fork, func() error { <-release; return nil }) }()
		synctest.Wait()
		if !b.Busy() {
			t.Fatal("Busy() = false while an operation runs")
		}
		began := false
		second := make(chan error, 1)
		go func() { second <- b.Exclusively(t.Context(), box.Fork, func() error { began = true; return nil }) }()
		synctest.Wait()
		if began {
			t.Error("a second fork began while the first ran")
		}
		close(release)
		if err := errors.Join(<-first, <-second); err != nil || !began || b.Busy() {
			t.Errorf("after both: err %v, second began %v, busy %v; want nil, true, false", err, began, b.Busy())
		}
	})
}

// TestTurnOfAnOperation checks that a box goes on until it is its turn, that it has one turn at a time, and none when the sandbox does not run.
// Only a pause waits for its turn longer than its caller.
func TestTurnOfACallerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := running(t)
		ctx, gone := context.WithCancel(t.Context())
		waited := false
		err := b.ExclusivelyInTurn(ctx, box.Checkpoint, func(ctx context.Context) (func(), error) {
			gone()
			<-ctx.Done()
			waited = true
			return nil, ctx.Err()
		}, func() error {
			t.Error("the checkpoint is made")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ExclusivelyInTurn = %v, want the context's error", err)
		}
		synctest.Wait()
		if !waited || b.Busy() {
			t.Errorf("the wait ended: %v, busy: %v", waited, b.Busy())
		}
	})
}

func TestTurnOfAnOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := running(t)
		granted, release := make(chan struct{}), make(chan struct{})
		turns := 0
		turn := func(context.Context) (func(), error) {
			turns++
			<-granted
			return func() { turns-- }, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() {
			results <- b.ExclusivelyInTurn(ctx, box.Pause, turn, func() error { <-release; set(b, sandbox.Sandbox{State: sandbox.Paused}); return nil })
		}()
		synctest.Wait()
		if turns != 1 || b.Busy() {
			t.Fatalf("%d turns, busy %v; want one and no operation yet", turns, b.Busy())
		}
		if err := errors.Join(b.Settled(t.Context()), b.Exclusively(t.Context(), box.Network, func() error { return nil })); err != nil {
			t.Errorf("another operation: %v", err)
		}
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("ExclusivelyInTurn = %v, want the context's error", err)
		}
		go func() {
			results <- b.ExclusivelyInTurn(t.Context(), box.Pause, turn, func() error {
				if turns != 0 || b.Sandbox().State != sandbox.Paused {
					t.Errorf("%d turns of a sandbox that is %s", turns, b.Sandbox().State)
				}
				return nil
			})
		}()
		close(granted)
		synctest.Wait()
		if turns != 1 || !b.Busy() {
			t.Errorf("%d turns, busy %v; want one and the operation", turns, b.Busy())
		}
		close(release)
		if err := <-results; err != nil {
			t.Errorf("the second: %v", err)
		}
		failure := errors.New("no turn")
		set(b, sandbox.Sandbox{State: sandbox.Running})
		if err := b.ExclusivelyInTurn(t.Context(), box.Pause, func(context.Context) (func(), error) { return nil, failure }, func() error {
			t.Error("it ran without a turn")
			return nil
		}); err != failure {
			t.Errorf("without a turn: %v", err)
		}
	})
}

func TestPausesShareOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := running(t)
		release, failure := make(chan struct{}), errors.New("no space")
		results := make(chan error, 2)
		go func() { results <- b.Exclusively(t.Context(), box.Pause, func() error { <-release; return failure }) }()
		synctest.Wait()
		go func() {
			results <- b.Exclusively(t.Context(), box.Pause, func() error { t.Error("a second pause ran"); return nil })
		}()
		synctest.Wait()
		close(release)
		if a, c := <-results, <-results; a != failure || c != failure {
			t.Errorf("Exclusively = %v and %v, want the result of the first for both", a, c)
		}
	})
}

func TestOperationGoesOnWithoutItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := running(t)
		release := make(chan struct{})
		ended := false
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Exclusively(ctx, box.Checkpoint, func() error { <-release; ended = true; return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Exclusively = %v, want the context's error", err)
		}
		close(release)
		if err := b.Settled(t.Context()); err != nil || !ended {
			t.Errorf("Settled = %v, ended %v; want nil and true", err, ended)
		}
	})
}

func TestNoOperationAfterTheEnd(t *testing.T) {
	b, group := running(t)
	set(b, sandbox.Sandbox{ID: b.ID, Name: "one", State: sandbox.Destroying, Cause: &sandbox.Cause{Code: sandbox.CauseTTL}})
	b.Cancel()
	err := b.Exclusively(t.Context(), box.Pause, func() error { t.Error("it ran"); return nil })
	if sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("Exclusively after the end = %v, want code ended", err)
	}
	group.Stop()
	other := box.New(group, sandbox.NewID(), agentapi.NewMemory(1<<20).NewClient(nil))
	set(other, sandbox.Sandbox{ID: other.ID, Workspace: "w", State: sandbox.Running})
	err = other.Exclusively(t.Context(), box.Pause, func() error { t.Error("it ran"); return nil })
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Exclusively after Stop = %v, want code unavailable", err)
	}
}

func TestActivityOnlyMovesForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a box.Activity
		if !a.Last().IsZero() {
			t.Errorf("Last() = %v before any activity, want zero", a.Last())
		}
		now := time.Now()
		a.At(now)
		a.At(now.Add(-time.Minute))
		if !a.Last().Equal(now) {
			t.Errorf("Last() = %v after an older activity, want %v", a.Last(), now)
		}
		end := a.Begin()
		time.Sleep(time.Minute)
		if !a.Last().Equal(time.Now()) {
			t.Errorf("Last() = %v while a call is under way, want now, %v", a.Last(), time.Now())
		}
		end()
		time.Sleep(time.Minute)
		if want := time.Now().Add(-time.Minute); !a.Last().Equal(want) {
			t.Errorf("Last() = %v, want the end of the call, %v", a.Last(), want)
		}
		closed := a.Open()
		time.Sleep(time.Minute)
		closed()
		if want := time.Now().Add(-2 * time.Minute); !a.Last().Equal(want) {
			t.Errorf("Last() = %v after an idle connection was closed, want %v", a.Last(), want)
		}
		if got := a.Unrecorded(0); got.IsZero() {
			t.Error("Unrecorded = zero before Recorded")
		}
		a.Recorded(a.Last())
		if got := a.Unrecorded(time.Second); !got.IsZero() {
			t.Errorf("Unrecorded = %v after Recorded, want zero", got)
		}
	})
}

func TestSaveWaitsForTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr box.Transfers
		tr.Begin()
		begin := time.Now()
		tr.Wait(t.Context(), time.Minute)
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("Wait took %v with a transfer that does not end, want its bound of a minute", waited)
		}
		go func() {
			time.Sleep(time.Second)
			tr.End()
		}()
		begin = time.Now()
		tr.Wait(t.Context(), time.Minute)
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("Wait took %v, want the second until the transfer ended", waited)
		}
	})
}

func TestSavedSince(t *testing.T) {
	b, _ := running(t)
	before := b.Saves()
	if b.SavedSince(before) {
		t.Error("SavedSince = true before any save")
	}
	end := b.BeginSave()
	during := b.Saves()
	if !b.SavedSince(before) || !b.SavedSince(during) {
		t.Error("SavedSince = false during a save")
	}
	end()
	if !b.SavedSince(before) || b.SavedSince(b.Saves()) {
		t.Error("after a save, SavedSince must be true for an earlier number and false for the current number")
	}
}
