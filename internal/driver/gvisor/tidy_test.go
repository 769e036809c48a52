package gvisor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver"
)

// agents returns how many images of agents exist.
func (r *rig) agents(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.cfg.StateDir, "agents"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "frame-") {
			n++
		}
	}
	return n
}

// TestTidyKeepsTheAgentsThatAreNeeded upgrades a server while a box with the old agent runs, then
// is a checkpoint, and then is gone.
func TestTidyKeepsTheAgentsThatAreNeeded(t *testing.T) {
	r := newRig(t)
	spec := newSpec(inMemory)
	g := r.start(t, spec)
	agent, err := os.ReadFile(r.cfg.AgentBinary)
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.AgentBinary = filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(r.cfg.AgentBinary, append(agent, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	r.reopen(t)
	half := filepath.Join(r.cfg.StateDir, "agents", "new-1") // of a server that was killed
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tidy := func(want int, checkpoints ...string) {
		t.Helper()
		if err := r.Tidy(checkpoints); err != nil {
			t.Fatal(err)
		}
		if n := r.agents(t); n != want {
			t.Errorf("%d agents are kept, want %d", n, want)
		}
	}
	if n := r.agents(t); n != 3 {
		t.Fatalf("%d files before, want the old agent, the new one and half a one", n)
	}
	tidy(2)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatal(err)
	}
	dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	tidy(2, dir, filepath.Join(t.TempDir(), "half"))
	g = r.restore(t, spec, dir)
	if out := g.must("echo alive"); out != "alive" {
		t.Errorf("echo: %q", out)
	}
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	tidy(1)
}
