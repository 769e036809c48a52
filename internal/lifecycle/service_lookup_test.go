package lifecycle_test

import (
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestChangedTellsOfStatesAndExecutions(t *testing.T) {
	s := newEnv(t).start()
	sb := s.run(lifecycle.CreateRequest{Name: "a"})
	changed := func() <-chan struct{} {
		t.Helper()
		ch, err := s.Changed(t.Context(), s.caller, "a")
		if err != nil || ch == nil {
			t.Fatalf("Changed(a) = %v, %v, want a channel", ch, err)
		}
		return ch
	}
	told := func(ch <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(testTimeout):
			t.Fatalf("not told that %s", what)
		}
	}
	ch := changed()
	select {
	case <-ch:
		t.Fatal("told of a change where nothing happened")
	default:
	}
	e := s.startExecution("a", shell("exit 0"))
	told(ch, "an execution began")
	s.ended(e.ID)

	e = s.startExecution("a", shell("exec sleep 600"))
	ch = changed()
	if _, err := s.Executions().Cancel(t.Context(), s.caller, e.ID, true); err != nil {
		t.Fatal(err)
	}
	told(ch, "an execution is to end")
	s.ended(e.ID)

	ch = changed()
	if _, err := s.Destroy(t.Context(), s.caller, "a", sandbox.CauseDestroyed); err != nil {
		t.Fatal(err)
	}
	told(ch, "the sandbox ended")
	if ch, err := s.Changed(t.Context(), s.caller, string(sb.ID)); ch != nil || err != nil {
		t.Errorf("Changed of an ended sandbox = %v, %v, want nil", ch, err)
	}
	if _, err := s.Changed(t.Context(), s.caller, "none"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Changed of no sandbox = %v, want %s", err, sandbox.NotFound)
	}
}
