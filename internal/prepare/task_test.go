package prepare

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestWaitingForATurnCostsNoTime: the timeout of a task begins with its turn.
func TestWaitingForATurnCostsNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{ctx: t.Context(), cfg: Config{ImageTimeout: time.Minute}}
		places := fairsem.New(1)
		release, err := places.Acquire(t.Context(), "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err = s.run(t.Context(), places, "b", &task{}, func(ctx context.Context, _ func(sandbox.ImageEvent)) (sandbox.Image, error) {
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
		_, err = s.run(t.Context(), places, "b", &task{}, func(ctx context.Context, _ func(sandbox.ImageEvent)) (sandbox.Image, error) {
			<-ctx.Done()
			return sandbox.Image{}, ctx.Err()
		})
		if sandbox.CodeOf(err) != sandbox.Timeout {
			t.Errorf("made in more than its time: %v, want code timeout", err)
		}
	})
}
