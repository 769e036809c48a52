package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// startedFrom makes a new box of the spec and gives it the layer of a checkpoint.
func (h *host) startedFrom(t *testing.T, spec driver.Spec, dir string) *box {
	t.Helper()
	layer, err := h.checkpointer(t).OpenLayer(dir)
	if err != nil {
		t.Fatalf("OpenLayer() = %v", err)
	}
	defer layer.Close()
	b := h.createOf(t, spec)
	b.start(t)
	if err := b.client.RestoreLayer(within(t), layer); err != nil {
		t.Fatalf("RestoreLayer() = %v", err)
	}
	if err := b.client.Configure(within(t), agentapi.Config{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func testCheckpointFilesOnly(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	parent := t.TempDir()
	for _, stop := range []bool{false, true} {
		dir := filepath.Join(parent, map[bool]string{false: "goes-on", true: "stops"}[stop])
		if err := c.Checkpoint(within(t), b.id, dir, driver.CheckpointOptions{FilesOnly: true, Stop: stop}); err != nil {
			t.Fatalf("Checkpoint() = %v", err)
		}
		wantInLayer(t, c, dir)
		if err := c.CanRestore(dir); !errors.Is(err, driver.ErrNoMemory) {
			t.Errorf("CanRestore() = %v, want ErrNoMemory", err)
		}
		spec := h.Spec()
		if _, err := c.Restore(within(t), spec, dir); !errors.Is(err, driver.ErrNoMemory) {
			t.Errorf("Restore() = %v, want ErrNoMemory", err)
		}
		if slices.Contains(h.list(within(t), t), spec.ID) {
			t.Error("a Restore() that was refused left something")
		}
		if memory, files := c.Verify(within(t), dir); !errors.Is(memory, driver.ErrNoMemory) || files != nil {
			t.Errorf("Verify() = %v, %v, want ErrNoMemory and nil", memory, files)
		}
		if stop {
			break
		}
		b.connect(t)
		before = b.wantOn(t, port, before)
		if err := b.client.Remove(within(t), guestDir+"/kept", false); err != nil {
			t.Fatal(err)
		}
		h.startedFrom(t, h.Spec(), dir).wantKept(t)
		if _, err := b.client.WriteFile(within(t), guestDir+"/kept", stringReader("kept"), agentapi.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(parent, "stops")
	if _, err := h.Driver.Wait(within(t), b.id); err != nil {
		t.Errorf("Wait() of a stopped box = %v", err)
	}
	_, err := h.Driver.Dial(within(t), b.id, driver.AgentPort)
	wantCode(t, "Dial() of a stopped box", err, sandbox.Unavailable)
	if err := h.Driver.Destroy(within(t), b.id); err != nil {
		t.Fatalf("Destroy() = %v", err)
	}
	h.restart(t)
	again := h.startedFrom(t, b.spec, dir)
	again.wantKept(t)
	layer, err := h.checkpointer(t).OpenLayer(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer layer.Close()
	var refused *agentapi.Error
	if err := again.client.RestoreLayer(within(t), layer); !errors.As(err, &refused) || refused.Code != agentapi.CodeInvalid {
		t.Errorf("RestoreLayer() of a configured box = %v, want code invalid", err)
	}
	port, _ = again.serve(t, "state")
	if now := again.remember(t, port); now.name == before.name && now.random == before.random {
		t.Errorf("the memory is there: %+v", now)
	}
}

func testCheckpointFilesOnlyRefused(t *testing.T, h *host) {
	c := h.checkpointer(t)
	b, port, before := h.withState(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	opts := driver.CheckpointOptions{FilesOnly: true, Stop: true}
	wantCode(t, "Checkpoint() of an unknown box", c.Checkpoint(within(t), sandbox.NewID(), dir, opts), sandbox.NotFound)
	wantCode(t, "Checkpoint() of a box that is not started", c.Checkpoint(within(t), h.create(t).id, dir, opts), sandbox.Conflict)
	if err := c.Checkpoint(within(t), b.id, filepath.Join(parent, "no", "such"), opts); err == nil {
		t.Error("Checkpoint() into a directory that does not exist succeeded")
	}
	b.connect(t)
	before = b.wantOn(t, port, before)
	wantAlone(t, dir)
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.Int64N(int64(20*time.Millisecond))))
		err := c.Checkpoint(ctx, b.id, dir, opts)
		cancel()
		if err == nil {
			break // it finished before the deadline, and has stopped
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Checkpoint() = %v, want the context's error", err)
		}
		wantAlone(t, dir)
		b.connect(t)
		before = b.wantOn(t, port, before)
	}
	b = h.start(t)
	dir = filepath.Join(parent, "other")
	if err := c.Checkpoint(within(t), b.id, dir, opts); err != nil {
		t.Fatal(err)
	}
	layers, err := filepath.Glob(filepath.Join(dir, "layer*"))
	if err != nil || len(layers) != 1 {
		t.Fatalf("the checkpoint has the layers %q, %v", layers, err)
	}
	if err := os.Remove(layers[0]); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "CanRestore() without the layer", c.CanRestore(dir), sandbox.NotFound)
}
