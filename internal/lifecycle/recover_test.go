package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// life is the calls that change something in the life of a sandbox, in order.
var life = []string{
	"store.CreateSandbox", "driver.Create", "store.SetBox", "driver.Start", "store.Transition running",
	"store.Transition destroying", "driver.Destroy", "store.Transition destroyed",
}

func TestCallsOfALife(t *testing.T) {
	s := newEnv(t).start()
	sb := s.run(lifecycle.CreateRequest{})
	s.destroy(string(sb.ID))
	if d := cmp.Diff(life, s.driver.faults.called()); d != "" {
		t.Errorf("the crash tests below miss a step (-want +got):\n%s", d)
	}
}

// TestCrashAtEveryStep kills the server right before and right after each call
// that changes something, starts the next one, and looks at what it makes of it.
func TestCrashAtEveryStep(t *testing.T) {
	// The recorded state when the server dies after the n-th call of life, and the state that the next
	// server makes of it. n is 0 for before the first call.
	after := []struct {
		state sandbox.State // "" for no row
		cause sandbox.CauseCode
	}{
		{"", ""},
		{sandbox.Running, ""},                       // recorded
		{sandbox.Running, ""},                       // box made
		{sandbox.Running, ""},                       // handle recorded
		{sandbox.Running, ""},                       // box started
		{sandbox.Running, ""},                       // running
		{sandbox.Destroyed, sandbox.CauseDestroyed}, // destroying
		{sandbox.Destroyed, sandbox.CauseDestroyed}, // box destroyed
		{sandbox.Destroyed, sandbox.CauseDestroyed}, // destroyed
	}
	for n, call := range life {
		for done, when := range []string{"Before", "After"} {
			t.Run(fmt.Sprintf("%s%d-%s", when, n, strings.ReplaceAll(call, " ", "-")), func(t *testing.T) {
				crashAt(t, call, when == "Before", after[n+done].state, after[n+done].cause)
			})
		}
	}
}

func crashAt(t *testing.T, call string, before bool, state sandbox.State, cause sandbox.CauseCode) {
	e := newEnv(t)
	s := e.start()
	died := make(chan struct{})
	tell := sync.OnceFunc(func() { close(died) }) // the server may retry a failed call before it ends
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
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		if _, _, err := s.Create(ctx, e.caller, lifecycle.CreateRequest{Name: "job"}); err != nil {
			return // it died there
		}
		if sb, err := s.Wait(ctx, e.caller, "job", sandbox.Running, time.Minute); err != nil || sb.State != sandbox.Running {
			return
		}
		_, _ = s.Destroy(ctx, e.caller, "job", "")
	})
	<-died
	cancel()
	wg.Wait()
	s.kill()

	s = e.start()
	s.Sweep()
	if state == "" {
		if sb, err := s.Get(t.Context(), e.caller, "job"); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Get = %s, %v, want code not_found", sb.State, err)
		}
	} else {
		sb := s.reach("job", state)
		if state.Ended() && sb.Cause.Code != cause {
			t.Errorf("cause %v, want %s", sb.Cause, cause)
		}
		checkEvents(t, s.eventTypes("job"), state)
	}
	var want []sandbox.ID
	if state == sandbox.Running {
		sb, err := s.Get(t.Context(), e.caller, "job")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, sb.ID)
		usable(t, s, "job")
	}
	if d := cmp.Diff(want, e.host.ids(), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("boxes on the host differ (-want +got):\n%s", d)
	}
	// After any crash the name is usable and the next life is normal.
	if state == sandbox.Running {
		s.destroy("job")
	}
	s.run(lifecycle.CreateRequest{Name: "job"})
	s.destroy("job")
}

// usable fails the test unless commands run in the sandbox.
func usable(t *testing.T, s *server, ref string) {
	t.Helper()
	stream, err := s.Guest().Exec(t.Context(), s.caller, ref, agentapi.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// checkEvents fails the test unless a sandbox's events are the events of a life that reached state:
// each change once, in order, whatever crashed in between.
func checkEvents(t *testing.T, got []sandbox.EventType, state sandbox.State) {
	t.Helper()
	last := map[sandbox.State]sandbox.EventType{
		sandbox.Destroyed: sandbox.EventDestroyed, sandbox.Failed: sandbox.EventFailed,
	}[state]
	if state == sandbox.Running { // found again, or started again
		recovered := slices.Index(got, sandbox.EventRecovered)
		if other := slices.Index(got, sandbox.EventRunning); recovered < 0 || other < 0 || recovered+other != 3 {
			t.Errorf("events %v, want created, running and recovered", got)
		}
		last = got[len(got)-1]
	}
	if got[0] != sandbox.EventCreated || got[len(got)-1] != last {
		t.Errorf("events %v, want them from created to %s", got, last)
	}
	seen := slices.Clone(got)
	slices.Sort(seen)
	if len(slices.Compact(seen)) != len(got) {
		t.Errorf("events %v, want none twice", got)
	}
}

// TestRecoveryOfBoxesWhoseEndIsKnown checks that a sandbox has the cause that the driver knows for the end of its box while the server was away, and goes
// back to a checkpoint only if its box was lost.
func TestRecoveryOfBoxesWhoseEndIsKnown(t *testing.T) {
	for name, exit := range map[string]driver.Exit{
		"lost": {Cause: sandbox.CauseWorkerLost, Detail: "its Pod was evicted", Lost: true}, "oom": {Cause: sandbox.CauseOOM, Detail: "its Pod has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			s.keeping()
			s.saveAutomatically()
			s.run(lifecycle.CreateRequest{Name: "b"})
			s.kill()
			s = e.prepare()
			s.driver.faults.on(func(_ int, call string) error {
				if call == "driver.Recover" {
					return sandbox.Wrap(sandbox.NotFound, driver.EndedError{Exit: exit}, "there is no such box")
				}
				return nil
			}, nil)
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if sb := s.reach("b", sandbox.Failed); sb.Cause.Code != exit.Cause || !strings.Contains(sb.Cause.Message, exit.Detail) {
				t.Errorf("cause %v, want %s with %q", sb.Cause, exit.Cause, exit.Detail)
			}
			if exit.Lost {
				eventually(t, "the sandbox with a checkpoint goes on", func() bool { return slices.Contains(s.eventsOf("a"), sandbox.EventRolledBack) })
			} else if sb := s.reach("a", sandbox.Failed); sb.Cause.Code != exit.Cause {
				t.Errorf("cause %v, want %s", sb.Cause, exit.Cause)
			}
		})
	}
}

func TestRecoverySortsOutWhatIsGone(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	stays := s.run(lifecycle.CreateRequest{Name: "stays"})
	dies := s.run(lifecycle.CreateRequest{Name: "dies"})
	vanishes := s.run(lifecycle.CreateRequest{Name: "vanishes"})
	s.kill()
	e.host.End(dies.ID, driver.Exit{Cause: sandbox.CauseExited})
	e.host.destroy(vanishes.ID)

	s = e.start()
	for _, name := range []string{"dies", "vanishes"} {
		if sb := s.reach(name, sandbox.Failed); sb.Cause.Code != sandbox.CauseHostRestart {
			t.Errorf("%s: cause %v, want host_restart", name, sb.Cause)
		}
	}
	usable(t, s, "stays")
	// The watcher also works again.
	e.host.End(stays.ID, driver.Exit{Cause: sandbox.CauseOOM})
	if sb := s.reach("stays", sandbox.Failed); sb.Cause.Code != sandbox.CauseOOM {
		t.Errorf("cause %v, want oom", sb.Cause)
	}
	if ids := e.host.ids(); len(ids) != 0 {
		t.Errorf("boxes left: %v", ids)
	}
}

func TestRecoveryOfManySandboxes(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const n = 50
	for i := range n {
		s.create(lifecycle.CreateRequest{Name: fmt.Sprint(i)})
	}
	for i := range n {
		s.reach(fmt.Sprint(i), sandbox.Running)
	}
	s.kill()
	begin := time.Now()
	s = e.start()
	t.Logf("recovered %d sandboxes in %s", n, time.Since(begin))
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{States: []sandbox.State{sandbox.Running}, Limit: 1000})
	if err != nil || len(page.Items) != n {
		t.Fatalf("%d sandboxes run, %v, want %d", len(page.Items), err, n)
	}
}

func TestOrderlyShutdownKeepsSandboxes(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "job"})
	s.stop()
	for name, err := range map[string]error{
		"Create":  func() error { _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{}); return err }(),
		"Destroy": func() error { _, err := s.Destroy(t.Context(), e.caller, "job", ""); return err }(),
	} {
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s after Close: %v, want code unavailable", name, err)
		}
	}
	s = e.start()
	s.reach("job", sandbox.Running)
	usable(t, s, "job")
}

func TestSweepDestroysOrphansOnly(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "job"})
	orphan := sandbox.NewID()
	other := e.host.open()
	defer func() { _ = other.Close() }()
	if _, err := other.Create(t.Context(), driver.Spec{ID: orphan, Hostname: "x", RootFS: "/x", Resources: sb.Resources}); err != nil {
		t.Fatal(err)
	}
	s.Sweep()
	if d := cmp.Diff([]sandbox.ID{sb.ID}, e.host.ids()); d != "" {
		t.Errorf("boxes after the sweep differ (-want +got):\n%s", d)
	}
}

// TestCloseAfterStartLeavesNoOrphan stops a server while its first sweep may not have begun.
func TestCloseAfterStartLeavesNoOrphan(t *testing.T) {
	e := newEnv(t)
	orphan := sandbox.NewID()
	before := e.host.open()
	if _, err := before.Create(t.Context(), driver.Spec{ID: orphan, Hostname: "x", RootFS: "/x", Resources: sandbox.Resources{CPUMilli: 500, MemoryBytes: 64 << 20, DiskBytes: 64 << 20}}); err != nil {
		t.Fatal(err)
	}
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	e.start().stop()
	if left := e.host.ids(); len(left) > 0 {
		t.Errorf("boxes after a server has started and stopped: %v", left)
	}
}

// TestCloseWaitsForNoHost stops a server whose sweep waits for a host that does not answer.
func TestCloseWaitsForNoHost(t *testing.T) {
	s := newEnv(t).start()
	waits := make(chan struct{}, 1)
	s.driver.vanished.Store(&waits)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		s.Sweep()
	}()
	<-waits
	s.stop()
	<-swept
}

// TestSweepTakesNoDestroyedBoxForAnOrphan destroys a sandbox between the sweep's
// look at the host and its look at the sandboxes.
func TestSweepTakesNoDestroyedBoxForAnOrphan(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "job"})
	between := func() { s.destroy("job") }
	s.driver.listed.Store(&between)
	s.Sweep()
	destroyed := slices.DeleteFunc(s.driver.faults.called(), func(call string) bool { return call != "driver.Destroy" })
	if len(destroyed) != 1 {
		t.Errorf("the driver was told %d times to destroy a box, want once: the sweep found none", len(destroyed))
	}
}

func TestSweepSparesWhatIsBeingMade(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	for _, step := range append([]string{"store.CreateSandbox"}, steps...) {
		entered, release := make(chan struct{}), make(chan struct{})
		s.driver.faults.on(nil, func(_ int, call string) error {
			if call == step {
				close(entered)
				<-release
			}
			return nil
		})
		done := make(chan error)
		go func() {
			_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: step})
			done <- err
		}()
		<-entered
		s.Sweep()
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		s.reach(step, sandbox.Running)
	}
}

// TestSweepFindsLostRow has the store say that a record failed that succeeded.
func TestSweepFindsLostRow(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "store.CreateSandbox" {
			return errors.New("connection lost")
		}
		return nil
	})
	if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{Name: "job"}); err == nil {
		t.Fatal("Create succeeded")
	}
	s.driver.faults.on(nil, nil)
	s.Sweep()
	if sb := s.reach("job", sandbox.Failed); sb.Cause.Code != sandbox.CauseInternal {
		t.Errorf("cause %v, want internal", sb.Cause)
	}
}

// TestSweepRepeatsAnEndThatWasNotRecorded has the store fail when a box ends.
func TestSweepRepeatsAnEndThatWasNotRecorded(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{Name: "job"})
	failed := make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "store.Transition destroying" {
			close(failed)
			return errors.New("disk I/O error")
		}
		return nil
	}, nil)
	e.host.End(sb.ID, driver.Exit{Cause: sandbox.CauseOOM})
	<-failed
	s.driver.faults.on(nil, nil)
	eventually(t, "the sweep ends it", func() bool {
		s.Sweep()
		sb, err := s.Get(t.Context(), e.caller, "job")
		return err == nil && sb.State == sandbox.Failed && sb.Cause.Code == sandbox.CauseOOM
	})
}

// TestSweepDuringAFailedStart sweeps after the start of a sandbox has failed, and before that is recorded.
func TestSweepDuringAFailedStart(t *testing.T) {
	e, n := withNetwork(t)
	e.cfg.SweepInterval = time.Millisecond // sandboxes without progress for longer are lost
	var s *server
	var swept atomic.Int64
	e.onLog = func(message string) {
		if message == "sandbox could not be started" {
			time.Sleep(2 * e.cfg.SweepInterval)
			s.Sweep()
			swept.Add(1)
		}
	}
	s = e.start()
	n.setFail(errors.New("out of files"))
	sb := s.create(lifecycle.CreateRequest{Name: "new", Network: sandbox.Network{Enabled: true}})
	if sb = s.reach(string(sb.ID), sandbox.Failed); sb.Cause.Code != sandbox.CauseStart || swept.Load() != 1 {
		t.Errorf("cause %v after %d sweeps, want start after 1", sb.Cause, swept.Load())
	}
}

// TestStorm has many callers create, use and destroy the same few names while boxes die and the
// server is killed now and then, and then looks for leaks.
func TestStorm(t *testing.T) {
	e := newEnv(t)
	e.cfg.SweepInterval = 5 * time.Millisecond
	const rounds, workers, calls = 3, 8, 25
	for round := range rounds {
		e.cfg.PoolSize = 2 * (round % 2)
		s := e.start()
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(w)))
				for range calls {
					s.stormCall(t.Context(), e, rng)
				}
			})
		}
		wg.Wait()
		s.kill()
	}

	s := e.start()
	page, err := s.List(t.Context(), e.caller, lifecycle.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range page.Items {
		if deadline, _ := sb.Deadline(); sb.State == sandbox.Running && time.Until(deadline) > testTimeout {
			usable(t, s, string(sb.ID))
		}
		s.destroy(string(sb.ID))
	}
	eventually(t, "nothing is left on the host", func() bool { return len(e.host.ids()) == 0 })
	page, err = s.List(t.Context(), e.caller, lifecycle.Filter{States: sandbox.States, Limit: 1000})
	if err != nil || page.Next != "" || len(page.Items) == 0 {
		t.Fatalf("List = %d sandboxes, next %q, %v", len(page.Items), page.Next, err)
	}
	for _, sb := range page.Items {
		if !sb.State.Ended() || sb.Cause == nil || sb.EndedAt.IsZero() {
			t.Errorf("%s is %s (%v) at the end of all", sb.Name, sb.State, sb.Cause)
		}
		if sb.Cause != nil && sb.Cause.Code == sandbox.CauseInternal {
			t.Errorf("%s ended by a fault of ours: %v", sb.Name, sb.Cause)
		}
		checkEvents(t, slices.DeleteFunc(s.eventTypes(string(sb.ID)), func(e sandbox.EventType) bool {
			return e == sandbox.EventRecovered // more than one restart is fine
		}), sb.State)
	}
}

// stormCall makes one call that may fail only in the ways a storm explains.
func (s *server) stormCall(ctx context.Context, e *env, rng *rand.Rand) {
	name := fmt.Sprint("n", rng.IntN(3))
	var err error
	switch rng.IntN(6) {
	case 0, 1:
		req := lifecycle.CreateRequest{Name: name, Replace: rng.IntN(4) == 0}
		if rng.IntN(3) == 0 {
			req.TTL = time.Duration(1+rng.IntN(20)) * time.Millisecond
		}
		_, _, err = s.Create(ctx, e.caller, req)
	case 2:
		_, err = s.Wait(ctx, e.caller, name, sandbox.Running, time.Second)
	case 3:
		var stream *guest.Command
		if stream, err = s.Guest().Exec(ctx, e.caller, name, agentapi.Command{Argv: []string{"true"}}); err == nil {
			_ = stream.Close()
		}
	case 4:
		_, err = s.Destroy(ctx, e.caller, name, "")
	case 5:
		if sb, getErr := s.Get(ctx, e.caller, name); getErr == nil && sb.State == sandbox.Running && rng.IntN(3) == 0 {
			e.host.End(sb.ID, driver.Exit{Cause: sandbox.CauseExited})
		}
	}
	switch code := sandbox.CodeOf(err); code {
	case "", sandbox.NotFound, sandbox.Exists, sandbox.Ended, sandbox.NotRunning, sandbox.Unavailable:
	default:
		s.t.Errorf("call on %s: %v (code %s)", name, err, code)
	}
}

// TestHostilePort has a readiness port answer without end.
func TestHostilePort(t *testing.T) {
	e := newEnv(t)
	e.cfg.ReadinessTimeout = 300 * time.Millisecond
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Image: "modbox/web"})
	e.host.serve(sb.ID, 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = conn.Write([]byte("HTTP/1.1 200 OK\r\n"))
		for err == nil {
			_, err = conn.Write([]byte("X: " + strings.Repeat("x", 1000) + "\r\n"))
		}
	}))
	if sb := s.reach(string(sb.ID), sandbox.Failed); sb.Cause.Code != sandbox.CauseNotReady {
		t.Errorf("cause %v, want not_ready", sb.Cause)
	}
}
