package lifecycle_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestVacate checks that a sandbox that runs is saved and resumed, with its processes, and that others stay as they are.
func TestVacate(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	running, paused := s.run(lifecycle.CreateRequest{Name: "running"}), s.run(lifecycle.CreateRequest{Name: "paused"})
	s.write("running", "/file", "kept")
	s.pause("paused")
	s.Vacate(t.Context(), []sandbox.ID{running.ID, paused.ID, sandbox.NewID()}, "the worker w is being ended")
	if sb := s.get("running"); sb.State != sandbox.Running || sb.MemoryLost != "" || s.readFile("running", "/file") != "kept" {
		t.Errorf("the sandbox that ran is %+v", sb)
	}
	if sb := s.get("paused"); sb.State != sandbox.Paused {
		t.Errorf("the paused sandbox is %s", sb.State)
	}
	events, err := s.Events(t.Context(), s.caller, "running", sandbox.EventFilter{})
	if err != nil || !slices.ContainsFunc(events.Items, func(ev sandbox.Event) bool {
		return ev.Type == sandbox.EventPausing && strings.Contains(ev.Message, "the worker w is being ended")
	}) {
		t.Errorf("its events are %+v, %v", events, err)
	}
}

// TestVacateWithoutSpace checks that a sandbox that cannot be resumed elsewhere stays paused, and that a sandbox that cannot be saved goes on.
func TestVacateWithoutSpace(t *testing.T) {
	for name, tc := range map[string]struct {
		fails string
		want  sandbox.State
	}{
		"resume": {"driver.Restore", sandbox.Paused},
		"save":   {"driver.Checkpoint", sandbox.Running},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			sb := s.run(lifecycle.CreateRequest{Name: "s"})
			s.driver.faults.on(func(_ int, call string) error {
				if call == tc.fails {
					return sandbox.Errorf(sandbox.Unavailable, "no worker")
				}
				return nil
			}, nil)
			s.Vacate(t.Context(), []sandbox.ID{sb.ID}, "the worker w is being ended")
			if got := s.get("s"); got.State != tc.want {
				t.Errorf("the sandbox is %s, want %s", got.State, tc.want)
			}
		})
	}
}

// TestVacateUntilThereIsSpace checks that a sandbox that was paused to be moved is resumed when there is space, unless it was paused by a call meanwhile,
// which may come while it is being saved.
func TestVacateUntilThereIsSpace(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	moved, later, during := s.run(lifecycle.CreateRequest{Name: "moved"}), s.run(lifecycle.CreateRequest{Name: "later"}), s.run(lifecycle.CreateRequest{Name: "during"})
	var full atomic.Bool
	full.Store(true)
	var refused atomic.Int64
	saves, asked, paused := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		switch {
		case call == "driver.Restore" && full.Load():
			refused.Add(1)
			return sandbox.Errorf(sandbox.Unavailable, "no worker has space")
		case call == "driver.Checkpoint":
			saves <- struct{}{}
			<-asked
		}
		return nil
	}, nil)
	go func() { // the request to pause comes while the sandbox is being saved
		<-saves
		go func() {
			if _, err := s.Pause(t.Context(), s.caller, "during"); err != nil {
				t.Errorf("Pause() = %v", err)
			}
			close(paused)
		}()
		time.Sleep(50 * time.Millisecond) // if the request comes too late, the test passes nevertheless
		asked <- struct{}{}
	}()
	s.Vacate(t.Context(), []sandbox.ID{during.ID}, "the worker w is being ended")
	<-paused
	go func() {
		for range 2 {
			<-saves
			asked <- struct{}{}
		}
	}()
	s.Vacate(t.Context(), []sandbox.ID{moved.ID, later.ID}, "the worker w is being ended")
	s.pause("later")
	before := refused.Load()
	eventually(t, "the sandbox is tried again and again", func() bool { return refused.Load() >= before+2 })
	full.Store(false)
	eventually(t, "the sandbox runs", func() bool { return s.get("moved").State == sandbox.Running })
	events := map[sandbox.EventType]int{}
	for _, of := range s.eventsOf("moved") {
		events[of]++
	}
	if events[sandbox.EventResuming] != 1 || events[sandbox.EventResumeFailed] != 1 || events[sandbox.EventResumed] != 1 {
		t.Errorf("events %v, want a single failed attempt and the resume", events)
	}
	time.Sleep(2 * time.Second) // the others would be resumed in this time
	for _, name := range []string{"later", "during"} {
		if sb := s.get(name); sb.State != sandbox.Paused {
			t.Errorf("the sandbox %q, which a call paused, is %s", name, sb.State)
		}
	}
}

// TestVacateDuringStart checks that a sandbox that is being started is to be tried again, and that nothing is paused after the end of the context.
func TestVacateDuringStart(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	begun, release := make(chan struct{}), make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Start" {
			close(begun)
			<-release
		}
		return nil
	}, nil)
	sb := s.create(lifecycle.CreateRequest{Name: "s"})
	<-begun
	if busy := s.Vacate(t.Context(), []sandbox.ID{sb.ID}, "the worker w is being ended"); !slices.Equal(busy, []sandbox.ID{sb.ID}) {
		t.Errorf("Vacate() = %v", busy)
	}
	close(release)
	s.reach("s", sandbox.Running)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if busy := s.Vacate(ctx, []sandbox.ID{sb.ID}, "the worker w is being ended"); len(busy) > 0 || s.get("s").State != sandbox.Running {
		t.Errorf("Vacate() after the end of its context = %v, the sandbox is %s", busy, s.get("s").State)
	}
}

// TestVacateDuringRecovery checks that a sandbox whose box is being taken over is not moved before that is done: the box would be saved and ended
// meanwhile, and the sandbox with it.
func TestVacateDuringRecovery(t *testing.T) {
	e := newEnv(t)
	first := e.start()
	sb := first.run(lifecycle.CreateRequest{Name: "s"})
	first.write("s", "/file", "kept")
	first.stop()
	s := e.prepare()
	begun, release, started := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Recover" {
			close(begun)
			<-release
		}
		return nil
	}, nil)
	go func() { started <- s.Start(t.Context()) }()
	<-begun
	if busy := s.Vacate(t.Context(), []sandbox.ID{sb.ID}, "the worker w is being ended"); !slices.Equal(busy, []sandbox.ID{sb.ID}) {
		t.Errorf("Vacate() = %v during the start of the server", busy)
	}
	close(release)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if busy := s.Vacate(t.Context(), []sandbox.ID{sb.ID}, "the worker w is being ended"); len(busy) > 0 {
		t.Errorf("Vacate() = %v after the start of the server", busy)
	}
	if got := s.get("s"); got.State != sandbox.Running || got.MemoryLost != "" || s.readFile("s", "/file") != "kept" {
		t.Errorf("the sandbox is %+v", got)
	}
}
