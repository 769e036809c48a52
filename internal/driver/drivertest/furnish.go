package drivertest

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// furnisher returns the driver as a Furnisher, or skips the test.
func (h *host) furnisher(t *testing.T) driver.Furnisher {
	t.Helper()
	f, ok := h.Driver.(driver.Furnisher)
	if announced := h.Driver.Capabilities().Furnish; ok != announced && announced {
		t.Fatal("Capabilities() announces Furnish, the driver is no Furnisher")
	} else if !announced {
		t.Skip("blank boxes are not supported here")
	}
	return f
}

// startBlank starts a blank box, and waits for its agent.
func (h *host) startBlank(t *testing.T) *box {
	t.Helper()
	spec := h.Spec()
	spec.RootFS = ""
	b := h.createOf(t, spec)
	b.start(t)
	return b
}

// furnish gives a blank box a root filesystem.
func (b *box) furnish(t *testing.T, rootfs string) {
	t.Helper()
	layers, err := b.h.furnisher(t).Furnish(within(t), b.id, rootfs)
	if err != nil {
		t.Fatalf("Furnish() = %v", err)
	}
	if err := b.client.Configure(within(t), agentapi.Config{Layers: layers}); err != nil {
		t.Fatalf("Configure() of a furnished box = %v", err)
	}
	b.spec.RootFS = rootfs // of a checkpoint's restored box
}

func testFurnish(t *testing.T, h *host) {
	f := h.furnisher(t)
	rootfs := h.Spec().RootFS
	created := h.create(t)
	for what, c := range map[string]struct {
		id     sandbox.ID
		rootfs string
		want   sandbox.Code
	}{
		"an unknown box":               {sandbox.NewID(), rootfs, sandbox.NotFound},
		"a box that was not started":   {created.id, rootfs, sandbox.Conflict},
		"a box with a root filesystem": {h.start(t).id, rootfs, sandbox.Conflict},
		"a relative path":              {created.id, "image", sandbox.Invalid},
	} {
		_, err := f.Furnish(within(t), c.id, c.rootfs)
		wantCode(t, "Furnish() of "+what, err, c.want)
	}

	b := h.startBlank(t)
	if c, ok := h.Driver.(driver.Checkpointer); ok && h.Driver.Capabilities().Checkpoint {
		err := c.Checkpoint(within(t), b.id, filepath.Join(t.TempDir(), "save"), driver.CheckpointOptions{})
		wantCode(t, "Checkpoint() of a blank box", err, sandbox.Conflict)
	}
	if s, ok := h.Driver.(driver.Snapshotter); ok && h.Driver.Capabilities().Snapshot {
		wantCode(t, "WriteLayer() of a blank box", s.WriteLayer(within(t), b.id, io.Discard), sandbox.Conflict)
		wantCode(t, "WriteNames() of a blank box", s.WriteNames(within(t), b.id, io.Discard), sandbox.Conflict)
	}
	b.furnish(t, rootfs)
	port, _ := b.serve(t, "state")
	b.wantOn(t, port, b.remember(t, port))
	if _, err := f.Furnish(within(t), b.id, rootfs); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Furnish() twice = %v, want Conflict", err)
	}
	// The agent gets the same settings again when a connection breaks.
	if err := b.client.Configure(within(t), agentapi.Config{Layers: 1}); err != nil {
		t.Errorf("Configure() again = %v", err)
	}
	b.wantOn(t, port, b.remember(t, port))
}

// testFurnishAfterRestart: blank and furnished boxes survive a driver.
func testFurnishAfterRestart(t *testing.T, h *host) {
	h.furnisher(t)
	rootfs := h.Spec().RootFS
	blank, full := h.startBlank(t), h.startBlank(t)
	full.furnish(t, rootfs)
	port, _ := full.serve(t, "state")
	before := full.remember(t, port)
	h.restart(t)
	for _, b := range []*box{blank, full} {
		if err := h.Driver.Recover(within(t), b.id, b.handle); err != nil {
			t.Fatalf("Recover() = %v", err)
		}
		b.connect(t)
	}
	full.wantOn(t, port, before)
	blank.furnish(t, rootfs)
	if _, err := h.furnisher(t).Furnish(within(t), full.id, rootfs); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Furnish() of a furnished box after a restart = %v, want Conflict", err)
	}
	if !h.Driver.Capabilities().Checkpoint {
		return
	}
	dir := filepath.Join(t.TempDir(), "save")
	if err := h.checkpointer(t).Checkpoint(within(t), full.id, dir, driver.CheckpointOptions{Stop: true}); err != nil {
		t.Fatalf("Checkpoint() = %v", err)
	}
	if err := h.Driver.Destroy(within(t), full.id); err != nil {
		t.Fatal(err)
	}
	h.restart(t)
	h.restored(t, full.spec, dir).wantOn(t, port, before)
}

// testFurnishContextsEnd: a box whose furnishing was cut short can be destroyed.
func testFurnishContextsEnd(t *testing.T, h *host) {
	f := h.furnisher(t)
	for _, after := range []time.Duration{0, 100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond} {
		b := h.startBlank(t)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := f.Furnish(ctx, b.id, h.Spec().RootFS)
		cancel()
		if err != nil && ctx.Err() == nil {
			t.Errorf("Furnish() = %v", err)
		}
		if err := h.Driver.Destroy(within(t), b.id); err != nil {
			t.Errorf("Destroy() = %v", err)
		}
	}
}
