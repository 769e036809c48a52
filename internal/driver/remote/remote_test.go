package remote_test

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/driver/remote/remotetest"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rootfs")
	if err == nil {
		rootfs, err = writeImage(dir, 64<<10)
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// rootfs is the root filesystem of boxes, in a directory of the control plane.
var rootfs string

// writeImage writes a root filesystem of another content than all others, and returns its path.
func writeImage(dir string, size int) (string, error) {
	content := make([]byte, size)
	_, _ = cryptorand.Read(content) // never fails
	sum := sha256.Sum256(content)
	path := filepath.Join(dir, stack.FileName("sha256:"+hex.EncodeToString(sum[:])))
	return path, os.WriteFile(path, content, 0o600)
}

// testTimeout is how long a test waits for an event. Nothing takes so long unless it never happens.
const testTimeout = 2 * time.Minute

// rig is a control plane and a worker with a fake driver, connected through a relay.
type rig struct {
	*remotetest.Rig
	host  *fake.Host
	relay *relay
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOf(t, func(d *fake.Driver) driver.Driver { return d })
}

// newRigOf is newRig with another driver on the worker, of a fake driver.
func newRigOf(t *testing.T, of func(*fake.Driver) driver.Driver) *rig {
	t.Helper()
	r := &rig{host: fake.NewHost(t.TempDir())}
	t.Cleanup(func() {
		if err := r.host.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	r.Rig = remotetest.New(t, func() (driver.Driver, error) { return of(fake.New(r.host)), nil }, fake.New(r.host), func(address string) string {
		r.relay = newRelay(t, address)
		return r.relay.l.Addr().String()
	})
	return r
}

// digestOf returns the digest of a file.
func digestOf(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func spec() driver.Spec {
	return driver.Spec{
		ID: sandbox.NewID(), Hostname: "box", RootFS: rootfs, MaxProcesses: 256,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: 64 << 20},
	}
}

func TestContract(t *testing.T) { contract(t, false, false, 0) }

// TestContractSlow runs the contract on boxes that begin blank, over a network that delivers small pieces late: thousands of them
// for each stream.
func TestContractSlow(t *testing.T) { contract(t, true, true, 16<<20) }

func contract(t *testing.T, blank, slow bool, bulk int64) {
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		r := newRig(t)
		r.relay.slowDown(slow)
		return drivertest.Env{
			Driver: r.Control(),
			Spec:   spec, ForksFilesOnly: true, Blank: blank, Bulk: bulk,
			Reopen: func(t *testing.T, old driver.Driver) driver.Driver { return r.Restart(t, old) },
		}
	})
}

// within returns a context with testTimeout.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", testTimeout, what, err)
		}
	}
}

// started makes a running box.
func (r *rig) started(t *testing.T) sandbox.ID {
	t.Helper()
	s := spec()
	d := r.Control()
	if _, err := d.Create(within(t), s); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if err := d.Start(within(t), s.ID); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	return s.ID
}

// wantCode checks an error's code.
func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Errorf("%s = %v (code %q), want code %q", what, err, got, want)
	}
}

// wantAnswer checks that the agent of a box answers.
func (r *rig) wantAnswer(t *testing.T, id sandbox.ID) {
	t.Helper()
	eventually(t, "the box can be dialed", func() error {
		c, err := r.Control().Dial(within(t), id, driver.AgentPort)
		if err != nil {
			return err
		}
		return c.Close()
	})
}
