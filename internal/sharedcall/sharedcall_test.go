package sharedcall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/modbox/modbox/internal/sharedcall"
)

// TestCallersShareWork has three callers, of whom the first leaves: the others get the result of the work that it began.
func TestCallersShareWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g sharedcall.Group[string]
		begun, end, failed := 0, make(chan struct{}), errors.New("failed")
		work := func(ctx context.Context) error {
			begun++
			<-end
			return errors.Join(failed, ctx.Err())
		}
		first, leave := context.WithCancelCause(t.Context())
		results := make(chan error, 3)
		go func() { results <- g.Do(first, "a", work) }()
		synctest.Wait()
		for range 2 {
			go func() { results <- g.Do(t.Context(), "a", work) }()
		}
		synctest.Wait()
		left := errors.New("left")
		leave(left)
		if err := <-results; !errors.Is(err, left) {
			t.Errorf("the caller who leaves gets %v, want its cause", err)
		}
		close(end)
		for range 2 {
			if err := <-results; !errors.Is(err, failed) || errors.Is(err, context.Canceled) {
				t.Errorf("a caller who stays gets %v, want the error of the work, which goes on", err)
			}
		}
		if begun != 1 {
			t.Errorf("the work ran %d times, want once", begun)
		}
		if err := g.Do(t.Context(), "a", func(context.Context) error { return nil }); err != nil {
			t.Errorf("work after the end = %v", err)
		}
	})
}

// TestWorkEndsWithItsCallers has callers who all leave. A caller who comes while the work ends has work of its own after that.
func TestWorkEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g sharedcall.Group[string]
		running, ended := 0, make(chan struct{})
		work := func(ctx context.Context) error {
			if running++; running > 1 {
				t.Error("the work of a key is in progress twice")
			}
			<-ctx.Done()
			<-ended // it removes what it has made
			running--
			return ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		for range 2 {
			go func() { _ = g.Do(ctx, "a", work) }()
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		result := make(chan error, 1)
		go func() { result <- g.Do(t.Context(), "a", func(context.Context) error { running++; return nil }) }()
		synctest.Wait()
		if running != 1 || len(result) > 0 {
			t.Errorf("%d in progress while the first work ends", running)
		}
		if err := g.Do(ctx, "b", work); !errors.Is(err, context.Canceled) {
			t.Errorf("Do of a caller who has left = %v", err)
		}
		close(ended)
		if err := <-result; err != nil || running != 1 {
			t.Errorf("the later caller gets %v, and %d works have begun", err, running)
		}
	})
}
