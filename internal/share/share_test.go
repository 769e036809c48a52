package share_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/share"
)

func take(t *testing.T, a *share.Account, n int64) {
	t.Helper()
	if err := a.Take(t.Context(), n); err != nil {
		t.Fatalf("Take(%d) = %v", n, err)
	}
}

// TestNobodyTakesAll checks that the next workspace gets something, however much the others want.
func TestNobodyTakesAll(t *testing.T) {
	b := share.New(900, time.Minute)
	for i, key := range []string{"a", "b", "c", "d"} {
		greedy := []*share.Account{b.Open(key), b.Open(key)} // two of the same are no more
		n := int64(0)
		for greedy[n%2].TryTake(1) {
			n++
		}
		if n < 10 {
			t.Errorf("the greedy workspace %d gets %d bytes, want some", i+1, n)
		}
		if want := int64(600); i == 0 && n != want {
			t.Errorf("the first gets %d bytes, want %d", n, want)
		}
	}
	if used, peak := b.Used(); used > 900 || peak != used {
		t.Errorf("all have %d bytes, at most %d", used, peak)
	}
}

func TestTooLarge(t *testing.T) {
	a := share.New(900, time.Minute).Open("a")
	take(t, a, 600)
	if err := a.Take(t.Context(), 1); !errors.Is(err, share.ErrTooLarge) {
		t.Errorf("Take of more than there can be = %v", err)
	}
	a.Close()
	take(t, a, 600)
}

// TestWaits: until somebody gives back, for a time, or until the context ends.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := share.New(900, time.Minute)
		first, second := b.Open("a"), b.Open("b")
		take(t, first, 600)
		got := make(chan error, 1)
		go func() { got <- second.Take(t.Context(), 300) }()
		synctest.Wait()
		select {
		case err := <-got:
			t.Fatalf("Take came back with %v while there was nothing", err)
		default:
		}
		first.Give(400)
		if err := <-got; err != nil || second.Has() != 300 {
			t.Errorf("Take = %v with %d bytes, want 300", err, second.Has())
		}
		begun := time.Now()
		if err := second.Take(t.Context(), 290); !errors.Is(err, share.ErrBusy) || time.Since(begun) != time.Minute {
			t.Errorf("Take = %v after %s, want %v after a minute", err, time.Since(begun), share.ErrBusy)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := second.Take(ctx, 290); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Take = %v, want %v", err, context.DeadlineExceeded)
		}
		second.Close()
		first.Close()
		if used, _ := b.Used(); used != 0 {
			t.Errorf("%d bytes are used after all was given back", used)
		}
	})
}

// TestWaitsForEachOther: of all who wait for each other, the last one gives up, and the
// others go on.
func TestWaitsForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := share.New(900, time.Hour)
		begun := time.Now()
		first, second := b.Open("a"), b.Open("b")
		take(t, first, 300)
		take(t, second, 300)
		got := make(chan error, 1)
		go func() {
			err := first.Take(t.Context(), 250)
			first.Close()
			got <- err
		}()
		synctest.Wait()
		if err := second.Take(t.Context(), 250); !errors.Is(err, share.ErrBusy) {
			t.Errorf("the last one gets %v, want %v", err, share.ErrBusy)
		}
		second.Close()
		if err := <-got; err != nil || time.Since(begun) != 0 {
			t.Errorf("the first one gets %v after %s", err, time.Since(begun))
		}
	})
}

func TestNoAccount(t *testing.T) {
	var a *share.Account
	take(t, a, 1<<40)
	if !a.TryTake(1<<40) || a.Has() != 0 {
		t.Error("an account that is nil refuses something")
	}
	a.Close()
}
