package fake

import (
	"context"
	"errors"
	"net"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Plug records the interface, see [Host.NIC]. The box still uses this machine's network.
func (d *Driver) Plug(ctx context.Context, id sandbox.ID, nic driver.NIC) error {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Plug })
	if err == nil {
		defer end()
		var b *box
		if b, err = d.box(id); err == nil {
			if err = b.mustRun(); err == nil {
				err = b.replaceNIC(&nic)
			}
		}
	}
	if err != nil {
		nic.File.Close()
	}
	return err
}

// Unplug removes the recorded interface.
func (d *Driver) Unplug(ctx context.Context, id sandbox.ID) error {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Unplug })
	if err != nil {
		return err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return err
	}
	return b.replaceNIC(nil)
}

// replaceNIC closes the interface of the box and sets another, or none.
func (b *box) replaceNIC(nic *driver.NIC) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended && nic != nil {
		return sandbox.Errorf(sandbox.Unavailable, "box %s has ended", b.spec.ID)
	}
	if b.nic != nil {
		b.nic.File.Close()
	}
	b.nic = nic
	return nil
}

// DialNIC returns a connection of its own to the box's end of the current interface. The caller closes it.
func (h *Host) DialNIC(id sandbox.ID) (net.Conn, error) {
	b := h.find(id)
	if b == nil {
		return nil, errors.New("there is no such box")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nic == nil {
		return nil, errors.New("the box has no interface")
	}
	return net.FileConn(b.nic.File)
}

// NIC returns the current interface of a box, if it has one. The box still owns its file.
func (h *Host) NIC(id sandbox.ID) (driver.NIC, bool) {
	b := h.find(id)
	if b == nil {
		return driver.NIC{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nic == nil {
		return driver.NIC{}, false
	}
	return *b.nic, true
}
