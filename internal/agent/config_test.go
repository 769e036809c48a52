package agent_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
)

func TestMainProcess(t *testing.T) {
	e := start(t)
	cfg := agentapi.Config{Main: []string{"sh", "-c", "echo main $X; sleep 1000"}, Env: map[string]string{"X": "1"}}
	for range 2 { // the second changes nothing
		if err := e.Configure(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	h, err := e.Health(t.Context())
	if err != nil || !h.Configured || h.Main == nil || h.Main.Exit != nil || h.Main.PID == 0 || h.Version != "test" {
		t.Fatalf("Health() = %+v, %v", h, err)
	}
	s, err := e.Attach(t.Context(), agentapi.MainID, -1)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Next(); err != nil || string(f.Data) != "main 1\n" {
		t.Errorf("Next() = %q, %v", f.Data, err)
	}
	if err := s.Signal(9); err != nil {
		t.Fatal(err)
	}
	collect(t, s)
	h, err = e.Health(t.Context())
	if err != nil || h.Main.Exit == nil || h.Main.Exit.Signal != 9 {
		t.Errorf("Health() after the end = %+v, %v", h, err)
	}
}

func TestMainProcessThatCannotStart(t *testing.T) {
	e := start(t)
	if err := e.Configure(t.Context(), agentapi.Config{Main: []string{"no-such-program"}}); err != nil {
		t.Fatal(err)
	}
	h, err := e.Health(t.Context())
	if err != nil || h.Main == nil || h.Main.PID != 0 || h.Main.Exit == nil || h.Main.Exit.Code != 127 {
		t.Fatalf("Health() = %+v, %v", h.Main, err)
	}
	s, err := e.Attach(t.Context(), agentapi.MainID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); !strings.Contains(got.stderr, "no-such-program") {
		t.Errorf("its output = %+v", got)
	}
}
