package lifecycle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestWorkerIsAway checks that a sandbox and its command go on while no call reaches them, however long that is and whatever
// the idle timeout says.
func TestWorkerIsAway(t *testing.T) {
	e := newEnv(t)
	e.cfg = e.cfg.AgentTimeout(time.Nanosecond) // the agent is not believed after one attempt
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "x"})
	x := s.startExecution("x", shell("sleep 600"))
	eventually(t, "the command runs", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
		return err == nil && now.State == sandbox.ExecutionRunning
	})
	s.kill()

	e.exec("UPDATE sandboxes SET idle_timeout = $1 WHERE name = 'x'", int64(50*time.Millisecond))
	var attempts atomic.Int64
	e.host.SetFaults(fake.Faults{Dial: func(context.Context, sandbox.ID) error {
		attempts.Add(1)
		return driver.ErrAway
	}})
	s = e.prepare()
	s.driver.away.Store(true)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls do not reach the sandbox", func() bool { return attempts.Load() > 10 })
	last := s.get("x").LastActivityAt
	eventually(t, "the idle timeout begins anew", func() bool { return s.get("x").LastActivityAt.After(last) || s.get("x").State != sandbox.Running })
	now, err := s.Executions().Get(t.Context(), s.caller, x.ID)
	if err != nil || now.State != sandbox.ExecutionRunning || s.get("x").State != sandbox.Running {
		t.Errorf("the command is %s (%s), %v, and the sandbox %s", now.State, now.Error, err, s.get("x").State)
	}
	later := s.startExecution("x", shell("true"))
	eventually(t, "another command fails", func() bool {
		now, err := s.Executions().Get(t.Context(), s.caller, later.ID)
		return err == nil && now.State == sandbox.ExecutionFailed
	})
	e.host.SetFaults(fake.Faults{})
	s.driver.away.Store(false)
	if _, err := s.Executions().Cancel(t.Context(), s.caller, x.ID, true); err != nil {
		t.Errorf("Cancel() of the command when the worker is back = %v", err)
	}
}
