package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// turnDriver is a driver that saves a few boxes at a time.
type turnDriver struct {
	*faultyDriver
	turn func(ctx context.Context, id sandbox.ID) (release func(), err error)
}

func (d *turnDriver) ReserveSave(ctx context.Context, id sandbox.ID, _ sandbox.WorkspaceID) (release func(), err error) {
	return d.turn(ctx, id)
}

// TestSandboxGoesOnUntilItsTurn checks that calls into a sandbox, its commands and other operations go on until the driver can save it, and that
// the save then follows, of a pause and a fork also without the request.
func TestSandboxGoesOnUntilItsTurn(t *testing.T) {
	for name, op := range map[string]func(ctx context.Context, s *server) error{
		"Pause":      func(ctx context.Context, s *server) error { _, err := s.Pause(ctx, s.caller, "p"); return err },
		"PauseFiles": func(ctx context.Context, s *server) error { _, err := s.PauseFiles(ctx, s.caller, "p"); return err },
		"Checkpoint": func(ctx context.Context, s *server) error {
			_, err := s.Checkpoints().Create(ctx, s.caller, "p", "c")
			return err
		},
		"Fork": func(ctx context.Context, s *server) error {
			_, err := s.Fork(ctx, s.caller, "p", lifecycle.ForkRequest{Count: 1})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			asked, granted, released := make(chan struct{}), make(chan struct{}), make(chan []string, 1)
			var s *server
			e.turn = func(ctx context.Context, _ sandbox.ID) (func(), error) {
				close(asked)
				select {
				case <-granted:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return func() { released <- s.driver.faults.called() }, nil
			}
			s = e.start()
			s.run(lifecycle.CreateRequest{Name: "p"})
			x := s.startExecution("p", shell("while :; do sleep 0.01; done"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- op(ctx, s) }()
			select {
			case <-asked:
			case err := <-done:
				t.Fatalf("it did not wait for its turn: %v", err)
			}
			s.write("p", "/a", "content")
			s.resume("p") // another operation
			if now, err := s.Executions().Get(t.Context(), s.caller, x.ID); err != nil || now.State != sandbox.ExecutionRunning {
				t.Errorf("its command: %+v, %v", now, err)
			}
			if sb := s.get("p"); sb.State != sandbox.Running {
				t.Errorf("it is %s before its turn", sb.State)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("without its request: %v", err)
			}
			if name == "Checkpoint" { // nobody waits for it
				if calls := s.driver.faults.called(); slices.Contains(calls, "driver.Checkpoint") {
					t.Errorf("it is made without its request: %q", calls)
				}
				return
			}
			close(granted)
			if calls := <-released; !slices.Contains(calls, "driver.Checkpoint") {
				t.Errorf("its turn was over before the save: %q", calls)
			}
		})
	}
}

// TestEndBeforeItsTurn checks that a sandbox which waits for its turn can be ended.
func TestEndBeforeItsTurn(t *testing.T) {
	e := newEnv(t)
	asked := make(chan struct{})
	e.turn = func(ctx context.Context, _ sandbox.ID) (func(), error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "p", Timeouts: sandbox.Timeouts{Idle: time.Millisecond, OnIdle: sandbox.OnIdlePause}})
	<-asked
	s.Sweep() // does not ask again
	done := make(chan error, 1)
	go func() {
		_, err := s.Pause(t.Context(), s.caller, "p")
		done <- err
	}()
	s.destroy("p")
	s.reach("p", sandbox.Destroyed)
	if err := <-done; sandbox.CodeOf(err) != sandbox.Ended {
		t.Errorf("Pause of a sandbox that was ended = %v", err)
	}
}
