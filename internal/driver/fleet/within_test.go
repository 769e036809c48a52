package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/driver"
)

// An error that comes in time is never taken for a worker that is away.
func TestWithinReturnsTheAnswer(t *testing.T) {
	want := errors.New("no such box")
	for range 20_000 { // the answer and the end of its context race
		if _, err := within(t.Context(), time.Hour, func(context.Context) (int, error) { return 0, want }); err != want {
			t.Fatalf("within() = %v, want %v", err, want)
		}
	}
}

func TestWithinEnds(t *testing.T) {
	ended := errors.New("the request ended")
	waits := func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	for name, test := range map[string]struct {
		f    func(context.Context) (int, error)
		end  time.Duration // of the caller's context
		want error
	}{
		"limit":          {waits, time.Hour, driver.ErrAway},
		"limit_no_heed":  {func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, 2 * time.Hour, driver.ErrAway},
		"caller":         {waits, time.Second, ended},
		"caller_no_heed": {func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, time.Second, ended},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), test.end, ended)
				defer cancel()
				if _, err := within(ctx, time.Minute, test.f); err != test.want {
					t.Errorf("within() = %v, want %v", err, test.want)
				}
				time.Sleep(time.Hour) // until f has ended
			})
		})
	}
}
