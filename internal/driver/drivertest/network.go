package drivertest

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// networker returns the driver as a Networker, or skips the test.
func (h *host) networker(t *testing.T) driver.Networker {
	t.Helper()
	announced := h.Driver.Capabilities().Network
	n, ok := h.Driver.(driver.Networker)
	if announced && !ok {
		t.Fatal("Capabilities() announces Network, the driver is no Networker")
	} else if !announced {
		t.Skip("network interfaces are not supported here")
	}
	return n
}

// plug gives a box an interface whose other end nobody reads.
func (h *host) plug(t *testing.T, id sandbox.ID) error {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]) })
	nic := driver.NIC{
		File: os.NewFile(uintptr(fds[1]), "nic"), MTU: 1500,
		MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, GatewayMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		Address: netip.MustParsePrefix("10.9.0.2/24"), Gateway: netip.MustParseAddr("10.9.0.1"),
	}
	err = h.networker(t).Plug(within(t), id, nic)
	if err != nil {
		if _, serr := nic.File.Stat(); !errors.Is(serr, os.ErrClosed) {
			t.Errorf("Plug() = %v left the file open", err)
		}
	}
	return err
}

func testPlug(t *testing.T, h *host) {
	n := h.networker(t)
	wantCode(t, "Plug() of an unknown box", h.plug(t, sandbox.NewID()), sandbox.NotFound)
	wantCode(t, "Unplug() of an unknown box", n.Unplug(within(t), sandbox.NewID()), sandbox.NotFound)
	wantCode(t, "Plug() of a box that is not started", h.plug(t, h.create(t).id), sandbox.Conflict)
	b, port, before := h.withState(t)
	if err := n.Unplug(within(t), b.id); err != nil {
		t.Errorf("Unplug() without an interface = %v", err)
	}
	for range 3 {
		if err := h.plug(t, b.id); err != nil {
			t.Fatalf("Plug() = %v", err)
		}
		before = b.wantOn(t, port, before)
	}
	if h.Driver.Capabilities().Survives {
		h.restart(t)
		n = h.networker(t)
		if err := h.Driver.Recover(within(t), b.id, b.handle); err != nil {
			t.Fatalf("Recover() = %v", err)
		}
		b.connect(t)
		if err := h.plug(t, b.id); err != nil {
			t.Fatalf("Plug() of a recovered box = %v", err)
		}
	}
	for range 2 {
		if err := n.Unplug(within(t), b.id); err != nil {
			t.Errorf("Unplug() = %v", err)
		}
	}
	if err := h.plug(t, b.id); err != nil {
		t.Errorf("Plug() after Unplug() = %v", err)
	}
	b.wantOn(t, port, before)
}
