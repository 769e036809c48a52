package prepare

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/background"
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

// TestProgressMayCallTheService: a progress function starts and joins tasks, and leaves them.
func TestProgressMayCallTheService(t *testing.T) {
	work := background.New()
	work.Start()
	defer work.Cancel()
	s := &Service{
		ctx: work.Context(), work: work, cfg: Config{ImageTimeout: time.Hour, CheckFree: func() error { return nil }},
		tasks: tasks{byKey: map[string]*task{}},
	}
	places := fairsem.New(2)
	gone, leave := context.WithCancel(t.Context())
	leave()
	nested := func(key string) {
		_, _ = s.share(gone, places, "a", key, func(sandbox.ImageEvent) {}, func(ctx context.Context, _ func(sandbox.ImageEvent)) (sandbox.Image, error) {
			return sandbox.Image{}, ctx.Err()
		})
	}
	var phases []sandbox.ImagePhase // written by one call at a time
	done := make(chan error, 1)
	go func() {
		_, err := s.share(t.Context(), places, "a", "image", func(e sandbox.ImageEvent) {
			phases = append(phases, e.Phase)
			nested("image")
			nested("another")
		}, func(_ context.Context, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
			for _, phase := range []sandbox.ImagePhase{"one", "two", "three"} {
				progress(sandbox.ImageEvent{Phase: phase})
			}
			return sandbox.Image{}, nil
		})
		done <- err
	}()
	select {
	case err := <-done:
		if want := []sandbox.ImagePhase{"one", "two", "three"}; err != nil || !slices.Equal(phases, want) {
			t.Errorf("share = %v with the phases %v, want %v", err, phases, want)
		}
	case <-time.After(time.Minute): // it never ends
		t.Fatal("a progress function that calls the service waits for itself")
	}
}
