package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agent"
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

// TestRestored attaches to a process over a connection that nobody reads afterwards, like a
// connection that was saved while it was closing.
func TestRestored(t *testing.T) {
	e := start(t)
	const lines = 150_000 // more than a connection and the agent buffer
	e.exec(t, agentapi.Command{ID: "held", Argv: []string{"seq", "-f", "%06.0f", "1", fmt.Sprint(lines)}, Detach: true, Backpressure: true})
	host := agentapi.NewClient(e.dial)
	defer host.Close()
	if err := host.Configure(t.Context(), agentapi.Config{Restored: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := host.Attach(ctx, "held", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, s); len(got.stdout) != 7*lines {
		t.Errorf("%d bytes of output, want %d", len(got.stdout), 7*lines)
	}
	if _, err := host.Health(t.Context()); err != nil {
		t.Errorf("the connection that said so: %v", err)
	}
}

// TestBlankAgentNeedsLayers: the first settings of an agent without a root filesystem must come with layers.
func TestBlankAgentNeedsLayers(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.Blank = true })
	err := e.Configure(t.Context(), agentapi.Config{})
	if err == nil || !strings.Contains(err.Error(), "the sandbox has no root filesystem yet") {
		t.Errorf("Configure() = %v, want an error", err)
	}
	if h, err := e.Health(t.Context()); err != nil || h.Configured {
		t.Errorf("Health() = %+v, %v, want it not configured", h, err)
	}
}
