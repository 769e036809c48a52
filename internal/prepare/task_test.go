package prepare

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
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
			_, err = s.run(t.Context(), places, "b", &task{}, func(ctx context.Context, _ func(phase.Event)) (spec.Image, error) {
				time.Sleep(50 * time.Second)
				return spec.Image{}, ctx.Err()
			})
			done <- err
		}()
		time.Sleep(10 * time.Minute)
		release()
		if err := <-done; err != nil {
			t.Errorf("made within its time: %v", err)
		}
		_, err = s.run(t.Context(), places, "b", &task{}, func(ctx context.Context, _ func(phase.Event)) (spec.Image, error) {
			<-ctx.Done()
			return spec.Image{}, ctx.Err()
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
		tasks: tasks{byKey: map[string]*task{}}, times: newTaskTimes(),
	}
	places := fairsem.New(2)
	gone, leave := context.WithCancel(t.Context())
	leave()
	nested := func(key string) {
		_, _ = s.share(gone, places, "a", key, func(phase.Event) {}, func(ctx context.Context, _ func(phase.Event)) (spec.Image, error) {
			return spec.Image{}, ctx.Err()
		})
	}
	var phases []phase.Phase // written by one call at a time
	done := make(chan error, 1)
	go func() {
		_, err := s.share(t.Context(), places, "a", "image", func(e phase.Event) {
			phases = append(phases, e.Phase)
			nested("image")
			nested("another")
		}, func(_ context.Context, progress func(phase.Event)) (spec.Image, error) {
			for _, p := range []phase.Phase{"one", "two", "three"} {
				progress(phase.Event{Phase: p})
			}
			return spec.Image{}, nil
		})
		done <- err
	}()
	select {
	case err := <-done:
		if want := []phase.Phase{"one", "two", "three"}; err != nil || !slices.Equal(phases, want) {
			t.Errorf("share = %v with the phases %v, want %v", err, phases, want)
		}
	case <-time.After(time.Minute): // it never ends
		t.Fatal("a progress function that calls the service waits for itself")
	}
}

// TestCheckOfTheDiskMayCallTheService: the check that precedes a task is made without the lock, and a task that another request
// starts meanwhile is joined.
func TestCheckOfTheDiskMayCallTheService(t *testing.T) {
	work := background.New()
	work.Start()
	defer work.Cancel()
	s := &Service{ctx: work.Context(), work: work, cfg: Config{ImageTimeout: time.Hour}, tasks: tasks{byKey: map[string]*task{}}, times: newTaskTimes()}
	places := fairsem.New(2)
	runs, started, joined := 0, make(chan struct{}), make(chan struct{})
	share := func(progress func(phase.Event)) error {
		_, err := s.share(t.Context(), places, "a", "image", progress, func(_ context.Context, progress func(phase.Event)) (spec.Image, error) {
			runs++
			progress(phase.Event{Phase: "one"})
			close(started)
			<-joined
			return spec.Image{}, nil
		})
		return err
	}
	var others sync.WaitGroup
	checks := 0
	s.cfg.CheckFree = func() error {
		if checks++; checks > 1 {
			return nil
		}
		if !s.tasks.mu.TryLock() {
			t.Error("the disk is checked under the lock")
			return nil
		}
		s.tasks.mu.Unlock()
		others.Go(func() {
			if err := share(nil); err != nil {
				t.Errorf("the request that started the task: %v", err)
			}
		})
		<-started
		return nil
	}
	if err := share(func(phase.Event) { close(joined) }); err != nil || runs != 1 {
		t.Errorf("share = %v after %d runs, want one run, which it joins", err, runs)
	}
	others.Wait()
}
