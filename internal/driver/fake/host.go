package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Host is the machine that boxes run on. It is safe for concurrent use.
type Host struct {
	dir string

	parking *parking

	mu     sync.Mutex
	boxes  map[sandbox.ID]*box // guarded by mu; all boxes, including remains
	closed bool                // guarded by mu
	faults Faults              // guarded by mu
}

// Faults, when set, are called at the beginning of the driver's methods. An error that they return
// becomes the method's error; they may block until ctx ends. A method goes on when its fault
// returns nil.
type Faults struct {
	Create, Start, Recover, Wait, Destroy, Dial, Stats, List Fault
	Checkpoint, CanRestore, Restore, Verify, WriteLayer      Fault
	Plug, Unplug, Usage, Furnish                             Fault
}

// Fault makes a call fail. For List, CanRestore and Verify the ID is empty. Verify fails for the
// memory.
type Fault func(ctx context.Context, id sandbox.ID) error

// Fail returns a fault that always fails with err.
func Fail(err error) Fault {
	return func(context.Context, sandbox.ID) error { return err }
}

// Hang is a fault that blocks until the context ends.
func Hang(ctx context.Context, _ sandbox.ID) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// NewHost returns a machine without boxes that stores their files below dir, which must exist.
// Close ends it.
func NewHost(dir string) *Host {
	return &Host{dir: dir, boxes: make(map[sandbox.ID]*box), parking: &parking{memory: make(map[string]*parked)}}
}

// Twin returns another machine without boxes. The memory of a box that is saved and stopped on either machine can be restored on both.
func (h *Host) Twin() *Host {
	return &Host{dir: h.dir, boxes: make(map[sandbox.ID]*box), parking: h.parking}
}

// Close ends and removes all boxes, and prevents new boxes. The saved memory of its twins ends too.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	boxes := slices.Collect(maps.Keys(h.boxes))
	h.mu.Unlock()
	var errs []error
	for _, id := range boxes { // without the lock, which a box that is being saved needs to end
		errs = append(errs, h.remove(id))
	}
	return errors.Join(append(errs, h.parking.discard())...)
}

// SetFaults replaces the faults of all drivers over the host.
func (h *Host) SetFaults(f Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = f
}

// fault runs the fault that pick chooses, if it is set.
func (h *Host) fault(ctx context.Context, id sandbox.ID, pick func(*Faults) Fault) error {
	h.mu.Lock()
	f := pick(&h.faults)
	h.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, id)
}

// End ends a box as if it had ended by itself. It does nothing when the box has
// ended or does not exist.
func (h *Host) End(id sandbox.ID, exit driver.Exit) {
	if b := h.find(id); b != nil {
		b.end(exit)
	}
}

// Root returns the directory that is the
// of a box.
func (h *Host) Root(id sandbox.ID) string { return filepath.Join(h.dir, string(id)) }

// Listen starts a server inside a box: Dial to that port of the box reaches the listener, which the
// caller closes. Other boxes are not affected.
func (h *Host) Listen(id sandbox.ID, port uint16) (net.Listener, error) {
	b := h.find(id)
	if b == nil {
		return nil, fmt.Errorf("listen in box %s: no such box", id)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports[port] = l.Addr().String()
	return l, nil
}

// SetUsage sets the usage that the driver reports for a box; it does nothing for a box that does
// not exist.
func (h *Host) SetUsage(id sandbox.ID, u driver.Usage) {
	if b := h.find(id); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.usage = u
	}
}

func (h *Host) find(id sandbox.ID) *box {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boxes[id]
}

// add makes a box, unless it exists.
func (h *Host) add(spec driver.Spec) (*box, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the host is closed")
	}
	if h.boxes[spec.ID] != nil {
		return nil, sandbox.Errorf(sandbox.Exists, "box %s exists", spec.ID)
	}
	b := newBox(spec, h.Root(spec.ID))
	for _, dir := range []string{"tmp", "root", "workspace"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o755); err != nil {
			os.RemoveAll(b.dir)
			return nil, sandbox.Wrap(sandbox.Unavailable, err, "cannot make the directory of box %s", spec.ID)
		}
	}
	h.boxes[spec.ID] = b
	return b, nil
}

// remove destroys a box and forgets it.
func (h *Host) remove(id sandbox.ID) error {
	b := h.find(id)
	if b == nil {
		return nil
	}
	if err := b.destroy(); err != nil {
		return sandbox.Wrap(sandbox.Internal, err, "box %s is not completely removed", id)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boxes[id] == b {
		delete(h.boxes, id)
	}
	return nil
}
