package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// dieAt has the server die before or after its first call of that name, and returns what waits for that.
func (s *server) dieAt(call string, before bool) (wait func()) {
	died := make(chan struct{})
	tell := sync.OnceFunc(func() { close(died) })
	die := func(_ int, c string) error {
		if c == call {
			s.driver.faults.die()
			tell()
		}
		return nil
	}
	if before {
		s.driver.faults.on(die, nil)
	} else {
		s.driver.faults.on(nil, die)
	}
	return func() {
		s.t.Helper()
		select {
		case <-died:
		case <-time.After(testTimeout):
			s.t.Fatalf("the server does not come to %s", call)
		}
	}
}

// interrupt has a server die when the box of a new sandbox has started.
func (e *env) interrupt(req lifecycle.CreateRequest) sandbox.Sandbox {
	e.t.Helper()
	s := e.start()
	wait := s.dieAt("driver.Start", false)
	sb := s.create(req)
	wait()
	s.kill()
	return sb
}

// again is the calls that change something when a start begins again whose box had started, in order.
var again = []string{"store.StartAgain", "driver.Recover", "driver.Destroy", "store.SetBox", "driver.Create", "store.SetBox", "driver.Start", "store.Transition running"}

func TestCallsOfAStartThatBeginsAgain(t *testing.T) {
	e := newEnv(t)
	sb := e.interrupt(lifecycle.CreateRequest{})
	s := e.start()
	s.reach(string(sb.ID), sandbox.Running)
	if d := cmp.Diff(again, s.driver.faults.called()); d != "" {
		t.Errorf("the box of the first attempt is gone before the second begins (-want +got):\n%s", d)
	}
	usable(t, s, string(sb.ID))
	if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
		t.Errorf("boxes (-want +got):\n%s", d)
	}
}

// TestCrashAtEveryStepOfAStartThatBeginsAgain kills the second server right before and right after each of its steps.
func TestCrashAtEveryStepOfAStartThatBeginsAgain(t *testing.T) {
	for i, call := range again {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d %s before=%v", i, call, before), func(t *testing.T) {
				e := newEnv(t)
				sb := e.interrupt(lifecycle.CreateRequest{Name: "job"})
				s := e.prepare()
				wait := s.dieAt(call, before)
				_ = s.Start(t.Context())
				wait()
				s.kill()
				s = e.start()
				if got := s.reach("job", sandbox.Running); got.ID != sb.ID {
					t.Errorf("sandbox %s, want %s", got.ID, sb.ID)
				}
				usable(t, s, "job")
				s.Sweep()
				if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
					t.Errorf("boxes (-want +got):\n%s", d)
				}
				s.destroy("job")
			})
		}
	}
}

// TestStartThatEndsServers checks that a start which ends each server that makes it is given up.
func TestStartThatEndsServers(t *testing.T) {
	e := newEnv(t)
	e.interrupt(lifecycle.CreateRequest{Name: "job"})
	const more = 3
	for range more {
		s := e.prepare()
		wait := s.dieAt("driver.Start", true)
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait()
		s.kill()
	}
	s := e.start()
	if sb := s.reach("job", sandbox.Failed); sb.Cause.Code != sandbox.CauseHostRestart {
		t.Errorf("cause %v, want host_restart", sb.Cause)
	}
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes left: %v", ids)
	}
}

// TestStartsThatDoNotBeginAgain checks the starts whose row lacks something, and those nobody waits for.
func TestStartsThatDoNotBeginAgain(t *testing.T) {
	command := &execution.Request{Kind: sandbox.Job, Argv: []string{"true"}}
	for name, c := range map[string]struct {
		req   lifecycle.CreateRequest
		then  func(e *env, id sandbox.ID)
		state sandbox.State
		cause sandbox.CauseCode
	}{
		"command":  {req: lifecycle.CreateRequest{Command: command}, state: sandbox.Failed, cause: sandbox.CauseHostRestart},
		"one shot": {req: lifecycle.CreateRequest{Command: command, OneShot: true}, state: sandbox.Failed, cause: sandbox.CauseHostRestart},
		"old": {
			then:  func(e *env, id sandbox.ID) { e.backdate(id, time.Now().Add(-2*time.Hour)) },
			state: sandbox.Failed, cause: sandbox.CauseHostRestart,
		},
		"ttl": {
			req:   lifecycle.CreateRequest{TTL: time.Minute},
			then:  func(e *env, id sandbox.ID) { e.backdate(id, time.Now().Add(-2*time.Minute)) },
			state: sandbox.Destroyed, cause: sandbox.CauseTTL,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			sb := e.interrupt(c.req)
			if c.then != nil {
				c.then(e, sb.ID)
			}
			s := e.start()
			if sb := s.reach(string(sb.ID), c.state); sb.Cause.Code != c.cause {
				t.Errorf("cause %v, want %s", sb.Cause, c.cause)
			}
			if slices.Contains(s.driver.faults.called(), "driver.Create") {
				t.Errorf("another box was made: %v", s.driver.faults.called())
			}
			if ids := e.host.ids(); len(ids) != 0 {
				t.Errorf("boxes left: %v", ids)
			}
		})
	}
}

func TestForkIsNotStartedAgain(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "parent"})
	wait := s.dieAt("driver.Restore", true)
	ctx, cancel := context.WithCancel(t.Context())
	forked := make(chan struct{})
	go func() {
		defer close(forked)
		_, _ = s.Fork(ctx, e.caller, "parent", lifecycle.ForkRequest{Names: []string{"child"}}) // the server dies
	}()
	wait()
	cancel()
	<-forked
	s.kill()
	s = e.start()
	if sb := s.reach("child", sandbox.Failed); sb.Cause.Code != sandbox.CauseHostRestart {
		t.Errorf("cause %v, want host_restart", sb.Cause)
	}
	usable(t, s, "parent")
}

// TestStartAgainHasWhatTheFirstHad checks secrets, network and the key of the create.
func TestStartAgainHasWhatTheFirstHad(t *testing.T) {
	e, n := withNetwork(t)
	req := lifecycle.CreateRequest{
		Name: "job", IdempotencyKey: "k", Env: map[string]string{"TOKEN": "s3cret"}, Labels: map[string]string{"a": "b"},
		Network: sandbox.Network{Enabled: true, AllowOut: []string{"10.1.0.0/16"}, DenyOut: []string{"0.0.0.0/0"}},
	}
	sb := e.interrupt(req)
	s := e.start()
	same, created, err := s.Create(t.Context(), e.caller, req)
	if err != nil || created || same.ID != sb.ID {
		t.Fatalf("the create again: sandbox %s, created %v, %v; want %s", same.ID, created, err, sb.ID)
	}
	got := s.reach("job", sandbox.Running)
	if got.Env["TOKEN"] != "s3cret" || got.Labels["a"] != "b" {
		t.Errorf("variables %v, labels %v", got.Env, got.Labels)
	}
	n.wantRules(t, sb.ID, []string{"10.1.0.0/16"}, []string{"0.0.0.0/0"})
	out := s.ended(s.startExecution("job", execution.Request{Kind: sandbox.Job, Argv: []string{"sh", "-c", "echo $TOKEN"}}).ID)
	if text := s.read(out.Stdout.ID, 0); text != "s3cret\n" {
		t.Errorf("the variable in the sandbox: %q", text)
	}
	if events := s.eventTypes("job"); !slices.Equal(events[:3], []sandbox.EventType{sandbox.EventCreated, sandbox.EventRecovered, sandbox.EventRunning}) {
		t.Errorf("events %v", events)
	}
}

// TestStartAgainOfAWarmBox has the server die while it configures a box of the pool.
func TestStartAgainOfAWarmBox(t *testing.T) {
	e := newEnv(t)
	s := e.startFilled(1)
	wait := s.dieAt("store.Transition running", true)
	sb := s.create(lifecycle.CreateRequest{Name: "job"})
	wait()
	if len(sb.Handle) == 0 {
		t.Fatal("it took no box of the pool")
	}
	s.kill()
	e.cfg.PoolSize = 0
	s = e.start()
	s.reach("job", sandbox.Running)
	s.Sweep()
	if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
		t.Errorf("boxes (-want +got):\n%s", d)
	}
	usable(t, s, "job")
}

// TestFirstBoxThatCannotBeRemoved checks that no second box is made while the first may be there.
func TestFirstBoxThatCannotBeRemoved(t *testing.T) {
	for _, call := range []string{"driver.Recover", "driver.Destroy"} {
		t.Run(call, func(t *testing.T) {
			e := newEnv(t)
			sb := e.interrupt(lifecycle.CreateRequest{Name: "job"})
			s := e.prepare()
			var failed atomic.Int64
			s.driver.faults.on(func(_ int, c string) error {
				if c == call && failed.Add(1) <= 3 {
					return driver.ErrAway
				}
				if c == "driver.Create" && failed.Load() <= 3 {
					t.Error("a second box is made")
				}
				return nil
			}, nil)
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.reach("job", sandbox.Running)
			if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
				t.Errorf("boxes (-want +got):\n%s", d)
			}
		})
	}
}

// TestManyStartsBeginAgain checks that they take turns, and that the quota counts them once.
func TestManyStartsBeginAgain(t *testing.T) {
	const n, places = 60, 2
	e := newEnv(t)
	e.cfg.CreateConcurrency, e.cfg.MaxSandboxes = places, n
	e.host.SetFaults(fake.Faults{Start: fake.Hang})
	s := e.start()
	for i := range n {
		s.create(lifecycle.CreateRequest{Name: fmt.Sprint(i)})
	}
	s.kill()
	var now, most atomic.Int64
	e.host.SetFaults(fake.Faults{Start: func(context.Context, sandbox.ID) error {
		defer now.Add(-1)
		for at := now.Add(1); ; {
			if seen := most.Load(); seen >= at || most.CompareAndSwap(seen, at) {
				return nil
			}
		}
	}})
	s = e.start()
	if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: "more"}); sandbox.CodeOf(err) != sandbox.QuotaExceeded && sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("one more: %v, want no capacity", err)
	}
	for i := range n {
		s.reach(fmt.Sprint(i), sandbox.Running)
	}
	if most.Load() > places {
		t.Errorf("%d sandboxes were started at a time, want at most %d", most.Load(), places)
	}
	if ids := e.host.ids(); len(ids) != n {
		t.Errorf("%d boxes, want %d", len(ids), n)
	}
}

// TestDestroyOfAStartThatBeginsAgain destroys a sandbox while the box of its first start is removed.
func TestDestroyOfAStartThatBeginsAgain(t *testing.T) {
	e := newEnv(t)
	e.interrupt(lifecycle.CreateRequest{Name: "job"})
	s := e.prepare()
	begun := make(chan struct{})
	tell := sync.OnceFunc(func() { close(begun) })
	var ended atomic.Bool
	s.driver.faults.on(func(_ int, c string) error {
		if c == "driver.Destroy" && !ended.Load() {
			tell()
			return errors.New("busy")
		}
		return nil
	}, nil)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Destroy(ctx, e.caller, "job", ""); sandbox.CodeOf(err) != sandbox.Timeout {
		t.Fatalf("Destroy = %v, want that it goes on", err)
	}
	ended.Store(true)
	if sb := s.reach("job", sandbox.Destroyed); sb.Cause.Code != sandbox.CauseDestroyed {
		t.Errorf("cause %v, want destroyed", sb.Cause)
	}
	if ids := e.host.ids(); len(ids) != 0 || slices.Contains(s.driver.faults.called(), "driver.Create") {
		t.Errorf("boxes left: %v; calls %v", ids, s.driver.faults.called())
	}
}

// TestMainCommandOfAStartThatBeginsAgain checks that the record of the first main command does not follow the second command.
func TestMainCommandOfAStartThatBeginsAgain(t *testing.T) {
	e := newEnv(t)
	e.images.list[0].Config.Entrypoint = []string{"sleep", "1000"}
	s := e.start()
	wait := s.dieAt("store.Transition running", true)
	sb := s.create(lifecycle.CreateRequest{Name: "job"})
	wait()
	s.kill()
	s = e.start()
	s.reach("job", sandbox.Running)
	eventually(t, "the first record has ended, and the second follows the command", func() bool {
		found, err := s.Executions().List(t.Context(), e.caller, string(sb.ID), sandbox.Main, page.Request{})
		if err != nil || len(found.Items) != 2 {
			t.Fatalf("records %+v, %v, want two", found.Items, err)
		}
		second, first := found.Items[0], found.Items[1]
		return first.State == sandbox.ExecutionFailed && strings.Contains(first.Error, "restarted") && second.State == sandbox.ExecutionRunning
	})
}
