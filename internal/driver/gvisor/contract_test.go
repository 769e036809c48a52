package gvisor_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/driver/remote/remotetest"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestContract runs the contract of drivers on real boxes.
func TestContract(t *testing.T) { contract(t, false, 0) }

// lessBulk is for boxes that have the connections of TestContract.
const lessBulk = 16 << 20

// TestContractBlank runs the contract on boxes that begin blank.
func TestContractBlank(t *testing.T) { contract(t, true, lessBulk) }

// TestContractRemote runs the contract on real boxes of a worker.
func TestContractRemote(t *testing.T) {
	gvisortest.Need(t)
	named := byDigest(t, built.rootfs)
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		cfg := contractConfig(t)
		t.Cleanup(func() { wantNoRemains(t, cfg) }) // runs last
		rig := remotetest.New(t, func() (driver.Driver, error) { return gvisor.New(cfg) }, savedFiles{}, func(address string) string { return address })
		return drivertest.Env{
			Driver: rig.Control(), Spec: func() driver.Spec {
				s := contractSpec()
				s.RootFS = named
				return s
			},
			Bulk:      lessBulk,
			Reopen:    func(t *testing.T, old driver.Driver) driver.Driver { return rig.Restart(t, old) },
			Leftovers: func(t *testing.T) []string { return leftovers(t, cfg) },
		}
	})
}

// savedFiles reads checkpoints.
type savedFiles struct{}

func (savedFiles) OpenLayer(dir string) (io.ReadCloser, error) { return saved.OpenLayer(dir) }

func (savedFiles) Verify(ctx context.Context, dir string) (memory, files error) {
	return saved.Verify(ctx, dir)
}

// byDigest returns a name of a root filesystem that has its digest.
func byDigest(t *testing.T, rootfs string) string {
	t.Helper()
	content, err := os.ReadFile(rootfs)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	named := filepath.Join(t.TempDir(), stack.FileName("sha256:"+hex.EncodeToString(sum[:])))
	if err := os.WriteFile(named, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return named
}

func contractConfig(t *testing.T) gvisor.Config {
	dir := t.TempDir()
	return gvisor.Config{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		SandboxBinary: built.sandbox, AgentBinary: built.agent, Platform: testPlatform(),
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}
}

func contractSpec() driver.Spec {
	return driver.Spec{
		ID: sandbox.NewID(), Hostname: "box", RootFS: built.rootfs, MaxProcesses: 256,
		Resources: sandbox.Resources{MemoryBytes: 256 * mib, CPUMilli: 2000, DiskBytes: 96 * mib},
	}
}

func wantNoRemains(t *testing.T, cfg gvisor.Config) {
	for _, left := range append(leftovers(t, cfg), ownGroups(cfg)...) {
		t.Errorf("left on the host: %s", left)
	}
}

func contract(t *testing.T, blank bool, bulk int64) {
	gvisortest.Need(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		cfg := contractConfig(t)
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
			wantNoRemains(t, cfg)
		})
		return drivertest.Env{
			Driver: current, Blank: blank, Bulk: bulk, Spec: contractSpec,
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
