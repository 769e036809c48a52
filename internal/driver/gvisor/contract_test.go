package gvisor_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestContract runs the contract of drivers on real boxes.
func TestContract(t *testing.T) { contract(t, false) }

// TestContractBlank runs the contract on boxes that begin blank.
func TestContractBlank(t *testing.T) { contract(t, true) }

func contract(t *testing.T, blank bool) {
	gvisortest.Need(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		dir := t.TempDir()
		cfg := gvisor.Config{
			RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
			SandboxBinary: built.sandbox, AgentBinary: built.agent, Platform: testPlatform(),
			Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
		}
		open := func(t *testing.T) driver.Driver {
			d, err := gvisor.New(cfg)
			if err != nil {
				t.Fatalf("New: %v", err)
			}
			return d
		}
		current := open(t)
		t.Cleanup(func() { // runs after the suite's cleanup, which needs the driver
			if err := current.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			for _, left := range append(leftovers(t, cfg), ownGroups(cfg)...) {
				t.Errorf("left on the host: %s", left)
			}
		})
		return drivertest.Env{
			Driver: current, Blank: blank,
			Spec: func() driver.Spec {
				return driver.Spec{
					ID: sandbox.NewID(), Hostname: "box", RootFS: built.rootfs, MaxProcesses: 256,
					Resources: sandbox.Resources{MemoryBytes: 256 * mib, CPUMilli: 2000, DiskBytes: 96 * mib},
				}
			},
			Reopen: func(t *testing.T, old driver.Driver) driver.Driver {
				if err := old.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				current = open(t)
				return current
			},
			Leftovers: func(t *testing.T) []string { return leftovers(t, cfg) },
		}
	})
}
