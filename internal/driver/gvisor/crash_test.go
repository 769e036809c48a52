package gvisor_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/sandbox"
)

// crashChild is set for a process that makes boxes until it is killed; its value is the directory
// of its installation.
const crashChild = "MODBOX_GVISOR_CRASH"

// When a server is killed in the middle of many creates, starts and destroys, its successor finds
// and removes everything that it left.
func TestServerKilledAnywhere(t *testing.T) {
	gvisortest.Need(t)
	if dir := os.Getenv(crashChild); dir != "" {
		storm(t, dir)
		return
	}
	for _, boxes := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprintf("after=%d", boxes), func(t *testing.T) {
			r := newRig(t)
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			killStormAfter(t, r.cfg, boxes)
			r.open(t) // at the end the rig destroys and checks what remains
			ids, err := r.List(t.Context())
			if err != nil {
				t.Fatalf("List: %v", err)
			}
			for _, id := range ids {
				if err := r.Destroy(t.Context(), id); err != nil {
					t.Errorf("Destroy(%s): %v", id, err)
				}
			}
			for _, left := range leftovers(t, r.cfg) {
				t.Errorf("left on the host: %s", left)
			}
		})
	}
}

// killStormAfter runs storm in another process and kills that, at an arbitrary point, when it has
// made the number of boxes.
func killStormAfter(t *testing.T, cfg gvisor.Config, boxes int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestServerKilledAnywhere$")
	cmd.Env = append(os.Environ(), crashChild+"="+cfg.RunDir+":"+cfg.StateDir,
		rootlessChild+"="+strings.Join([]string{built.sandbox, built.agent, built.rootfs}, ":"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for made := 0; made < boxes && lines.Scan(); {
		if lines.Text() == "made" {
			made++
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Errorf("the storm ended by itself: %v", err)
	}
	_ = cmd.Wait() // it was killed
}

func storm(t *testing.T, dirs string) {
	runDir, stateDir, _ := strings.Cut(dirs, ":")
	d, err := gvisor.New(gvisor.Config{
		RunDir: runDir, StateDir: stateDir, SandboxBinary: built.sandbox, AgentBinary: built.agent,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	for i := range 3 {
		go func() {
			for {
				spec := newSpec([]sandbox.Resources{inMemory, onDisk, onDisk}[i])
				if _, err := d.Create(ctx, spec); err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				fmt.Println("made")
				if err := d.Start(ctx, spec.ID); err != nil {
					t.Errorf("Start: %v", err)
				}
				if i == 2 {
					if err := d.Destroy(ctx, spec.ID); err != nil {
						t.Errorf("Destroy: %v", err)
					}
				}
			}
		}()
	}
	select {} // until killed
}
