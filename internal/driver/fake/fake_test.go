package fake_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/drivertest"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
)

func spec() driver.Spec {
	return driver.Spec{
		ID: sandbox.NewID(), Hostname: "box", RootFS: "/rootfs.erofs", MaxProcesses: 256,
		Resources: sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1000, DiskBytes: 64 << 20},
	}
}

func newHost(t *testing.T) *fake.Host {
	h := fake.NewHost(t.TempDir())
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return h
}

func TestContract(t *testing.T) { contract(t, false, 0) }

// TestContractBlank runs the contract on boxes that begin blank. Their connections are the same.
func TestContractBlank(t *testing.T) { contract(t, true, 16<<20) }

func contract(t *testing.T, blank bool, bulk int64) {
	drivertest.Run(t, func(t *testing.T) drivertest.Env {
		h := newHost(t)
		return drivertest.Env{
			Driver: fake.New(h),
			Spec:   spec, ForksFilesOnly: true, Blank: blank, Bulk: bulk,
			Reopen: func(t *testing.T, old driver.Driver) driver.Driver {
				if err := old.Close(); err != nil {
					t.Errorf("Close() = %v", err)
				}
				return fake.New(h)
			},
		}
	})
}

// started makes a running box.
func started(t *testing.T, d *fake.Driver) sandbox.ID {
	t.Helper()
	s := spec()
	if _, err := d.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), s.ID); err != nil {
		t.Fatal(err)
	}
	return s.ID
}

func TestFaults(t *testing.T) {
	h := newHost(t)
	d := fake.New(h)
	broken := sandbox.Errorf(sandbox.Unavailable, "out of everything")
	h.SetFaults(fake.Faults{Create: fake.Fail(broken), Start: fake.Hang})
	if _, err := d.Create(t.Context(), spec()); !errors.Is(err, broken) {
		t.Errorf("Create() = %v, want the fault", err)
	}
	h.SetFaults(fake.Faults{Start: fake.Hang})
	s := spec()
	if _, err := d.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Start(ctx, s.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("Start() = %v, want the context's error", err)
	}
	h.SetFaults(fake.Faults{})
	if err := d.Start(t.Context(), s.ID); err != nil {
		t.Errorf("Start() = %v", err)
	}
}

func TestEnd(t *testing.T) {
	h := newHost(t)
	d := fake.New(h)
	id := started(t, d)
	want := driver.Exit{Cause: sandbox.CauseOOM, Detail: "too much"}
	go h.End(id, want)
	if got, err := d.Wait(t.Context(), id); err != nil || got != want {
		t.Errorf("Wait() = %+v, %v, want %+v", got, err, want)
	}
	if _, err := d.Dial(t.Context(), id, driver.AgentPort); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("Dial() = %v", err)
	}
}

func TestListen(t *testing.T) {
	h := newHost(t)
	d := fake.New(h)
	one := started(t, d)
	l, err := h.Listen(one, 8080)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })}
	go server.Serve(l)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.Dial(ctx, one, 8080)
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://box/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
		t.Errorf("GET = %q, %v", body, err)
	}
	if _, err := h.Listen(sandbox.NewID(), 1); err == nil {
		t.Error("Listen() in a box that does not exist succeeded")
	}
}

// TestCloseInTheMiddleOfACheckpoint checks that Close waits for the checkpoint, and that nothing
// remains of either.
func TestCloseInTheMiddleOfACheckpoint(t *testing.T) {
	dir := t.TempDir()
	h := fake.NewHost(dir)
	d := fake.New(h)
	id := started(t, d)
	closed := make(chan error, 1)
	var once sync.Once
	h.SetFaults(fake.Faults{CanRestore: func(context.Context, sandbox.ID) error {
		once.Do(func() { go func() { closed <- h.Close() }() })
		for { // until the end has begun
			other := spec()
			if _, err := d.Create(t.Context(), other); sandbox.CodeOf(err) == sandbox.Unavailable {
				return nil
			} else if err != nil {
				return err
			} else if err := d.Destroy(t.Context(), other.ID); err != nil {
				return err
			}
		}
	}})
	if err := d.Checkpoint(t.Context(), id, filepath.Join(t.TempDir(), "c"), driver.CheckpointOptions{Stop: true}); err != nil {
		t.Errorf("Checkpoint() = %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close() = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
