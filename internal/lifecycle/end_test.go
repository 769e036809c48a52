package lifecycle_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// steps are the calls of a creation that change something, in order.
var steps = []string{"driver.Create", "store.SetBox", "driver.Start", "store.Transition running"}

func TestFailedStep(t *testing.T) {
	boom := sandbox.Errorf(sandbox.Unavailable, "boom")
	tests := []struct {
		step string
		want sandbox.CauseCode
		text string
	}{
		{"driver.Create", sandbox.CauseStart, "boom"},
		{"store.SetBox", sandbox.CauseInternal, ""},
		{"driver.Start", sandbox.CauseStart, "boom"},
		{"store.Transition running", sandbox.CauseInternal, ""},
	}
	for _, tt := range tests {
		for _, when := range []string{"Before", "After"} {
			t.Run(strings.ReplaceAll(tt.step, " ", "-")+when, func(t *testing.T) {
				e := newEnv(t)
				s := e.start()
				fault := func(_ int, call string) error {
					if call == tt.step {
						return boom
					}
					return nil
				}
				if when == "Before" {
					s.driver.faults.on(fault, nil)
				} else {
					s.driver.faults.on(nil, fault)
				}
				id := string(s.create(lifecycle.CreateRequest{}).ID)
				sb := s.reach(id, sandbox.Failed)
				if sb.Cause.Code != tt.want || !strings.Contains(sb.Cause.Message, tt.text) {
					t.Errorf("cause %v, want %s with %q", sb.Cause, tt.want, tt.text)
				}
				if ids := e.host.ids(); len(ids) != 0 {
					t.Errorf("boxes left: %v", ids)
				}
				types := s.eventTypes(id)
				if last := types[len(types)-1]; last != sandbox.EventFailed {
					t.Errorf("last event is %s, want failed", last)
				}
			})
		}
	}
}

func TestImageFails(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	hold := make(chan struct{})
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "store.CreateSandbox" {
			e.images.mu.Lock()
			defer e.images.mu.Unlock()
			e.images.fail = sandbox.Errorf(sandbox.NotFound, "it was removed")
			close(hold)
		}
		return nil
	})
	id := string(s.create(lifecycle.CreateRequest{}).ID)
	<-hold
	sb := s.reach(id, sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseImage || !strings.Contains(sb.Cause.Message, "it was removed") {
		t.Errorf("cause %v, want image and why", sb.Cause)
	}
}

func TestDestroyInTheMiddleOfEachStep(t *testing.T) {
	for _, step := range steps {
		t.Run(strings.ReplaceAll(step, " ", "-"), func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			entered, release := make(chan struct{}), make(chan struct{})
			s.driver.faults.on(nil, func(_ int, call string) error {
				if call == step {
					close(entered)
					<-release
				}
				return nil
			})
			id := string(s.create(lifecycle.CreateRequest{}).ID)
			<-entered
			done := make(chan sandbox.Sandbox, 1)
			go func() {
				sb, err := s.Destroy(t.Context(), e.caller, id, "")
				if err != nil {
					t.Errorf("Destroy: %v", err)
				}
				done <- sb
			}()
			close(release)
			if sb := <-done; sb.State != sandbox.Destroyed || sb.Cause.Code != sandbox.CauseDestroyed {
				t.Errorf("Destroy = %s (%v), want destroyed", sb.State, sb.Cause)
			}
			if ids := e.host.ids(); len(ids) != 0 {
				t.Errorf("boxes left: %v", ids)
			}
		})
	}
}

func TestDestroyIsBoundedByItsContext(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	id := string(s.run(lifecycle.CreateRequest{}).ID)
	release := make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Destroy" {
			<-release
		}
		return nil
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.driver.faults.mu.Lock()
	s.driver.faults.after = func(_ int, call string) error {
		if call == "store.Transition destroying" {
			cancel()
		}
		return nil
	}
	s.driver.faults.mu.Unlock()
	sb, err := s.Destroy(ctx, e.caller, id, "")
	if sandbox.CodeOf(err) != sandbox.Timeout || sb.State != sandbox.Destroying {
		t.Errorf("Destroy = %s, %v, want destroying and code timeout", sb.State, err)
	}
	if _, err := s.Guest().Exec(t.Context(), e.caller, id, agentapi.Command{Argv: []string{"true"}}); sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("Exec while it is destroyed: %v, want code ended", err)
	}
	close(release)
	s.reach(id, sandbox.Destroyed)
}

func TestStubbornBoxIsDestroyedInTheEnd(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	id := string(s.run(lifecycle.CreateRequest{}).ID)
	var mu sync.Mutex
	refusals := 3
	s.driver.faults.on(func(_ int, call string) error {
		mu.Lock()
		defer mu.Unlock()
		if (call == "driver.Destroy" || call == "store.Transition destroyed") && refusals > 0 {
			refusals--
			return errors.New("not now")
		}
		return nil
	}, nil)
	if sb := s.destroy(id); sb.State != sandbox.Destroyed || len(e.host.ids()) != 0 {
		t.Errorf("state %s, boxes %v, want destroyed and none", sb.State, e.host.ids())
	}
}

func TestTTL(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	short := s.create(lifecycle.CreateRequest{Name: "short", TTL: 50 * time.Millisecond})
	long := s.create(lifecycle.CreateRequest{Name: "long", TTL: time.Hour})
	sb := s.reach("short", sandbox.Destroyed)
	deadline, _ := short.Deadline()
	if sb.Cause.Code != sandbox.CauseTTL || sb.EndedAt.Before(deadline) {
		t.Errorf("ended %s after the deadline by %v, want ttl and not before", sb.EndedAt.Sub(deadline), sb.Cause)
	}
	s.reach(string(long.ID), sandbox.Running)
}

func TestTTLSurvivesRestart(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	passed := s.run(lifecycle.CreateRequest{Name: "passed", TTL: time.Hour})
	soon := s.run(lifecycle.CreateRequest{Name: "soon", TTL: time.Hour})
	s.kill()
	// As if the server had been away for the time.
	e.backdate(passed.ID, time.Now().Add(-2*time.Hour))
	e.backdate(soon.ID, time.Now().Add(500*time.Millisecond-time.Hour))
	s = e.start()
	for _, name := range []string{"passed", "soon"} {
		sb := s.reach(name, sandbox.Destroyed)
		deadline, _ := sb.Deadline()
		if sb.Cause.Code != sandbox.CauseTTL || sb.EndedAt.Before(deadline) {
			t.Errorf("%s ended at %s by %v, want by ttl after %s", name, sb.EndedAt, sb.Cause, deadline)
		}
	}
}

func TestBoxEndsByItself(t *testing.T) {
	for _, tt := range []struct {
		exit driver.Exit
		want sandbox.CauseCode
	}{
		{driver.Exit{Cause: sandbox.CauseOOM, Detail: "512 MiB"}, sandbox.CauseOOM},
		{driver.Exit{Cause: sandbox.CauseExited, Detail: "signal 9"}, sandbox.CauseExited},
	} {
		t.Run(string(tt.want), func(t *testing.T) {
			e := newEnv(t)
			s := e.start()
			sb := s.run(lifecycle.CreateRequest{})
			e.host.End(sb.ID, tt.exit)
			sb = s.reach(string(sb.ID), sandbox.Failed)
			if sb.Cause.Code != tt.want || !strings.Contains(sb.Cause.Message, tt.exit.Detail) {
				t.Errorf("cause %v, want %s with %q", sb.Cause, tt.want, tt.exit.Detail)
			}
			if ids := e.host.ids(); len(ids) != 0 {
				t.Errorf("boxes left: %v", ids)
			}
		})
	}
}

func TestBoxEndsWhileProvisioning(t *testing.T) {
	e := newEnv(t)
	e.cfg.ReadinessTimeout = time.Hour // nothing but the end of the box ends the probe
	s := e.start()
	started := make(chan struct{})
	s.driver.faults.on(nil, func(_ int, call string) error {
		if call == "driver.Start" {
			close(started)
		}
		return nil
	})
	sb := s.create(lifecycle.CreateRequest{Image: "modbox/web"})
	<-started
	e.host.End(sb.ID, driver.Exit{Cause: sandbox.CauseExited})
	sb = s.reach(string(sb.ID), sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseExited {
		t.Errorf("cause %v, want exited", sb.Cause)
	}
}

func TestReadiness(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Image: "modbox/web"})
	asked, looked := make(chan struct{}), make(chan struct{})
	ready := sync.OnceFunc(func() { close(asked) })
	var n atomic.Int64
	e.host.serve(sb.ID, 8080, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case 2:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			<-looked // it is ready when the test has seen that it is not
			ready()
		}
	}))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Guest().Exec(gone, e.caller, string(sb.ID), agentapi.Command{Argv: []string{"true"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Exec of a caller who has gone, before it is ready: %v, want canceled", err)
	}
	executed := make(chan error)
	go func() {
		cmd, err := s.Guest().Exec(t.Context(), e.caller, string(sb.ID), agentapi.Command{Argv: []string{"true"}})
		if err == nil {
			cmd.Close()
			select {
			case <-asked:
			default:
				err = errors.New("the command started before the sandbox was ready")
			}
		}
		executed <- err
	}()
	close(looked)
	s.reach(string(sb.ID), sandbox.Running)
	if err := <-executed; err != nil {
		t.Errorf("Exec before it is ready: %v", err)
	}
	select {
	case <-asked:
	default:
		t.Error("it counts as running before its port answered with a 2xx")
	}
}

func TestNeverReady(t *testing.T) {
	e := newEnv(t)
	e.cfg.ReadinessTimeout = 50 * time.Millisecond
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{Image: "modbox/web"})
	sb = s.reach(string(sb.ID), sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseNotReady || !strings.Contains(sb.Cause.Message, "8080") {
		t.Errorf("cause %v, want not_ready naming the port", sb.Cause)
	}
}

func TestAgentNeverAnswers(t *testing.T) {
	e := newEnv(t)
	e.cfg.StartTimeout = 200 * time.Millisecond
	e.host.SetFaults(fake.Faults{Dial: fake.Hang})
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{})
	sb = s.reach(string(sb.ID), sandbox.Failed)
	if sb.Cause.Code != sandbox.CauseStart {
		t.Errorf("cause %v, want start", sb.Cause)
	}
}

func TestWait(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	entered, release := make(chan struct{}), make(chan struct{})
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.Create" {
			close(entered)
			<-release
		}
		return nil
	}, nil)
	sb := s.create(lifecycle.CreateRequest{Name: "w"})
	<-entered
	if got, err := s.Wait(t.Context(), e.caller, "w", sandbox.Running, time.Millisecond); err != nil || got.State != sandbox.Provisioning {
		t.Errorf("Wait past its timeout = %s, %v, want provisioning and no error", got.State, err)
	}
	if got, err := s.Wait(t.Context(), e.caller, "w", sandbox.Provisioning, time.Hour); err != nil || got.State != sandbox.Provisioning {
		t.Errorf("Wait for what is = %s, %v", got.State, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Wait(ctx, e.caller, "w", "", time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a dead context: %v, want canceled", err)
	}
	if _, err := s.Wait(t.Context(), e.caller, "w", "bogus", time.Hour); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("Wait for a bogus state: %v, want code invalid", err)
	}
	waiters := make(chan sandbox.State)
	for _, want := range []sandbox.State{sandbox.Running, sandbox.Destroyed} {
		go func() {
			got, err := s.Wait(t.Context(), e.caller, "w", want, time.Hour)
			if err != nil {
				t.Errorf("Wait for %s: %v", want, err)
			}
			waiters <- got.State
		}()
	}
	close(release)
	if got := <-waiters; got != sandbox.Running {
		t.Errorf("first waiter woke at %s, want running", got)
	}
	s.destroy(string(sb.ID))
	if got := <-waiters; got != sandbox.Destroyed {
		t.Errorf("second waiter woke at %s, want destroyed", got)
	}
	if got, err := s.Wait(t.Context(), e.caller, "w", sandbox.Running, time.Hour); err != nil || got.State != sandbox.Destroyed {
		t.Errorf("Wait for an ended one = %s, %v, want destroyed at once", got.State, err)
	}
}

func TestDial(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{})
	e.host.serve(sb.ID, 80, http.NotFoundHandler())
	conn, err := s.Guest().Dial(t.Context(), sb.ID, 80)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := s.Guest().Dial(t.Context(), sb.ID, 81); sandbox.CodeOf(err) != sandbox.PortClosed {
		t.Errorf("Dial to a closed port: %v, want code port_closed", err)
	}
	if _, err := s.Guest().Dial(t.Context(), sb.ID, driver.AgentPort); sandbox.CodeOf(err) != sandbox.PortClosed {
		t.Errorf("Dial to the agent: %v, want code port_closed", err)
	}
	if _, err := s.Guest().Dial(t.Context(), sandbox.NewID(), 80); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Dial to an unknown sandbox: %v, want code not_found", err)
	}
}

func TestUnreachableAgentOfAnEndedBoxIsExplained(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	sb := s.run(lifecycle.CreateRequest{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		eventually(t, "the box is seen to have ended", func() bool {
			sb, err := s.Get(t.Context(), e.caller, string(sb.ID))
			return err != nil || sb.State != sandbox.Running
		})
	}()
	e.host.End(sb.ID, driver.Exit{Cause: sandbox.CauseOOM})
	_, err := s.Guest().Exec(t.Context(), e.caller, string(sb.ID), agentapi.Command{Argv: []string{"true"}})
	if sandbox.CodeOf(err) != sandbox.Ended || !strings.Contains(err.Error(), "oom") {
		t.Errorf("Exec in a box that just died: %v, want code ended and the cause oom", err)
	}
	<-done
}

func TestAgentErrorCodes(t *testing.T) {
	got := map[string]sandbox.Code{}
	for name, err := range map[string]error{
		"nil":         nil,
		"refused":     &agentapi.Error{Code: agentapi.CodeNoFile, Message: "no file"},
		"made-up":     &agentapi.Error{Code: "made-up", Message: "?"},
		"bad":         agentapi.ErrBadAnswer,
		"unreachable": agentapi.ErrUnreachable,
		"deadline":    errors.Join(agentapi.ErrUnreachable, context.DeadlineExceeded),
		"driver":      errors.Join(agentapi.ErrUnreachable, sandbox.Errorf(sandbox.Unavailable, "it ended")),
		"closed":      errors.Join(agentapi.ErrUnreachable, sandbox.Errorf(sandbox.PortClosed, "no agent")),
		"other":       net.ErrClosed,
	} {
		got[name] = sandbox.CodeOf(box.AgentError(err))
	}
	want := map[string]sandbox.Code{
		"nil": "", "refused": sandbox.FileNotFound, "made-up": sandbox.AgentUnreachable, "bad": sandbox.AgentUnreachable,
		"unreachable": sandbox.AgentUnreachable, "deadline": sandbox.Timeout, "driver": sandbox.Unavailable,
		"closed": sandbox.AgentUnreachable, "other": sandbox.Internal,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("codes differ (-want +got):\n%s", d)
	}
}
