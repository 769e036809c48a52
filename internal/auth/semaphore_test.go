package auth

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestTurnsAreSharedByAddress queues many requests of an address beside single requests of two
// others.
func TestTurnsAreSharedByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSemaphore(1)
		if err := q.acquire(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		served := make(chan string, 100)
		wait := func(ctx context.Context, key string) {
			go func() {
				if err := q.acquire(ctx, key); err != nil {
					served <- string(sandbox.CodeOf(err))
					return
				}
				served <- key
				q.release()
			}()
			synctest.Wait()
		}
		for range waitingOfKey {
			wait(t.Context(), "many")
		}
		ctx, leave := context.WithCancel(t.Context())
		wait(ctx, "leaves")
		wait(t.Context(), "b")
		wait(t.Context(), "c")
		if err := q.acquire(t.Context(), "many"); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
			t.Errorf("request %d of an address: %v, want code %s", waitingOfKey+1, err, sandbox.QuotaExceeded)
		}
		leave()
		synctest.Wait()
		<-served // receive the error
		q.release()
		synctest.Wait()
		var got []string
		for len(served) > 0 {
			got = append(got, <-served)
		}
		want := strings.Fields("many b c" + strings.Repeat(" many", waitingOfKey-1))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("served in the order (-want +got):\n%s", d)
		}
		if q.free != 1 || q.count != 0 || len(q.waiting) != 0 || len(q.order) != 0 {
			t.Errorf("when all are served: %d free, %d wait, %d keys, order %q", q.free, q.count, len(q.waiting), q.order)
		}
	})
}

func TestTurnsAreBoundedInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSemaphore(1)
		if err := q.acquire(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range waitingInAll {
			go func() { _ = q.acquire(ctx, fmt.Sprint(i)) }()
		}
		synctest.Wait()
		if err := q.acquire(t.Context(), "further"); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("with %d waiting: %v, want code %s", waitingInAll, err, sandbox.Unavailable)
		}
		cancel()
		synctest.Wait()
		if q.count != 0 || len(q.waiting) != 0 || len(q.order) != 0 {
			t.Errorf("when all have left: %d wait, %d keys, order of %d", q.count, len(q.waiting), len(q.order))
		}
	})
}

// TestBrakeDelaysFew tries an account from more addresses at once than the brake may delay.
func TestBrakeDelaysFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := newAttempts()
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		const tries = brakeBurst + brakeWaiters + 10
		let := make(chan error, tries)
		for i := range tries {
			go func() {
				_, err := a.begin(t.Context(), "ada", fmt.Sprint("address ", i))
				let <- err
			}()
		}
		synctest.Wait()
		if want := brakeBurst + 10; len(let) != want || len(a.delayed) != brakeWaiters {
			t.Errorf("%d attempts were let through at once and %d delayed, want %d and %d", len(let), len(a.delayed), want, brakeWaiters)
		}
		for range tries {
			if err := <-let; err != nil {
				t.Fatalf("an attempt was refused: %v", err)
			}
		}
		if len(a.delayed) != 0 {
			t.Errorf("%d attempts are still delayed", len(a.delayed))
		}
	})
}
