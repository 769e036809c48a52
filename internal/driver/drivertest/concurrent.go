package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

func testConcurrentBoxes(t *testing.T, h *host) {
	const boxes = 6
	var wg sync.WaitGroup
	for range boxes {
		spec := h.Spec()
		wg.Go(func() {
			ctx := within(t)
			if _, err := h.Driver.Create(ctx, spec); err != nil {
				t.Errorf("Create() = %v", err)
				return
			}
			if err := h.Driver.Start(ctx, spec.ID); err != nil {
				t.Errorf("Start() = %v", err)
			}
			if err := h.Driver.Destroy(ctx, spec.ID); err != nil {
				t.Errorf("Destroy() = %v", err)
			}
		})
	}
	wg.Wait()
	if left := h.list(within(t), t); len(left) != 0 {
		t.Errorf("List() = %v", left)
	}
}

func testConcurrentStarts(t *testing.T, h *host) {
	b := h.create(t)
	var wg sync.WaitGroup
	var started atomic.Int32
	for range 4 {
		wg.Go(func() {
			err := h.Driver.Start(within(t), b.id)
			if err == nil {
				started.Add(1)
			} else if sandbox.CodeOf(err) != sandbox.Conflict {
				t.Errorf("Start() = %v", err)
			}
		})
	}
	wg.Wait()
	if started.Load() != 1 {
		t.Errorf("%d of the Start()s succeeded, want 1", started.Load())
	}
	b.connect(t)
}

func testConcurrentDestroys(t *testing.T, h *host) {
	b := h.start(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := h.Driver.Destroy(within(t), b.id); err != nil {
				t.Errorf("Destroy() = %v", err)
			}
			if _, err := h.Driver.Stats(within(t), b.id); sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("Stats() after Destroy() = %v, want code not_found", err)
			}
		})
	}
	wg.Wait()
	// While a Destroy runs, List may have the box.
	if ids, err := h.Driver.List(within(t)); err != nil || slices.Contains(ids, b.id) {
		t.Errorf("List() after Destroy() = %v, %v", ids, err)
	}
}

func testDialsWhileDestroying(t *testing.T, h *host) {
	b := h.start(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	dialed := make(chan struct{}, 4)
	for range 4 {
		wg.Go(func() {
			for first := true; ; first = false {
				c, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
				if err == nil {
					c.Close()
				}
				if first {
					dialed <- struct{}{}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 4 {
		<-dialed
	}
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Errorf("Destroy() = %v", err)
	}
	close(stop)
	wg.Wait()
	_, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() afterwards", err, sandbox.NotFound)
}

func testDeadContext(t *testing.T, h *host) {
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	spec := h.Spec()
	if _, err := h.Driver.Create(dead, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("Create() = %v, want the context's error", err)
	}
	if slices.Contains(h.list(within(t), t), spec.ID) {
		t.Error("Create() with a dead context left something")
	}
	b := h.start(t)
	if _, err := h.Driver.Wait(dead, b.id); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait() = %v, want the context's error", err)
	}
	if c, err := h.Driver.Dial(dead, b.id, driver.AgentPort); err == nil {
		c.Close()
		t.Error("Dial() with a dead context succeeded")
	}
}

func testContextsEndAnywhere(t *testing.T, h *host) {
	// The duration of a whole create and start shows when cancelling is of interest.
	began := time.Now()
	h.start(t)
	span := time.Since(began) + time.Millisecond
	for range 15 {
		spec := h.Spec()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(span))))
		_, err := h.Driver.Create(ctx, spec)
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Create() = %v, want the context's error", err)
			}
			if slices.Contains(h.list(within(t), t), spec.ID) {
				t.Errorf("Create() that ended with %v left something", err)
			}
			cancel()
			continue
		}
		err = h.Driver.Start(ctx, spec.ID)
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start() = %v, want the context's error", err)
		}
		cancel()
		if err := h.Driver.Destroy(within(t), spec.ID); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
}
