package drivertest

import (
	"fmt"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func testDiskLimit(t *testing.T, h *host) {
	if !h.Driver.Capabilities().Disk {
		t.Skip("disk is not limited here")
	}
	b := h.start(t)
	limit := b.spec.Resources.DiskBytes
	out, _, err := output(b.run(t, "fill", fmt.Sprint(2*limit)))
	if err != nil {
		t.Fatalf("filling the disk: %v", err)
	}
	var written int64
	var full bool
	if _, err := fmt.Sscan(out, &written, &full); err != nil {
		t.Fatalf("guest printed %q: %v", out, err)
	}
	if !full || written > limit {
		t.Errorf("with a disk of %d bytes %d were written, no space left: %v", limit, written, full)
	}
	if _, err := b.client.Health(within(t)); err != nil {
		t.Errorf("a full disk harms the agent: %v", err)
	}
	if err := b.client.Remove(within(t), guestDir+"/filled", false); err != nil {
		t.Errorf("nothing can be removed from a full disk: %v", err)
	}
}

func testProcessLimit(t *testing.T, h *host) {
	if !h.Driver.Capabilities().Processes {
		t.Skip("processes are not limited here")
	}
	b := h.start(t)
	limit := b.spec.MaxProcesses
	if limit == 0 || limit > 512 {
		t.Fatalf("the spec allows %d processes, want at most 512 for this test", limit)
	}
	out, _, err := output(b.run(t, "fork", fmt.Sprint(limit)))
	if err != nil {
		t.Fatalf("starting processes: %v", err)
	}
	var started int64
	if _, err := fmt.Sscan(out, &started); err != nil {
		t.Fatalf("guest printed %q: %v", out, err)
	}
	if started >= limit {
		t.Errorf("with a limit of %d, %d processes were started", limit, started)
	}
	if out, _, err := output(b.run(t, "eat", "1000")); err != nil || out != "eaten 1000\n" {
		t.Errorf("afterwards the guest printed %q, %v", out, err)
	}
}

func testMemoryLimit(t *testing.T, h *host) {
	if !h.Driver.Capabilities().Memory {
		t.Skip("memory is not limited here")
	}
	b := h.start(t)
	neighbour := h.start(t)
	out, exit, err := output(b.run(t, "eat", fmt.Sprint(2*b.spec.Resources.MemoryBytes)))
	switch {
	case err != nil: // the whole box ended: it must give the cause
		end, err := h.Driver.Wait(within(t), b.id)
		if err != nil || end.Cause != sandbox.CauseOOM {
			t.Errorf("Wait() = %+v, %v, want cause %q", end, err, sandbox.CauseOOM)
		}
	case exit == nil || exit.Code == 0:
		t.Errorf("twice the memory limit was used: %q", out)
	}
	if _, err := neighbour.client.Health(within(t)); err != nil {
		t.Errorf("the neighbour does not answer: %v", err)
	}
}
