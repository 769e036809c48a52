package fake

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// handlePrefix begins every handle of this driver.
const handlePrefix = "fake/"

// Driver is a server's view of a [Host].
type Driver struct {
	host   *Host
	closed context.Context
	close  context.CancelFunc

	mu    sync.Mutex
	known map[sandbox.ID]*box // guarded by mu; boxes made or recovered by this driver
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Checkpointer = (*Driver)(nil)
	_ driver.Snapshotter  = (*Driver)(nil)
	_ driver.Networker    = (*Driver)(nil)
	_ driver.Meter        = (*Driver)(nil)
)

// New returns a driver that knows none of the host's boxes.
func New(h *Host) *Driver {
	closed, stop := context.WithCancel(context.Background())
	return &Driver{host: h, closed: closed, close: stop, known: make(map[sandbox.ID]*box)}
}

// Capabilities reports that nothing is isolated or limited.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name: "fake", Survives: true, Checkpoint: true, Snapshot: true, Network: true, Furnish: true,
		Missing: []string{
			"The fake driver isolates and limits nothing: use it for tests only.",
			"Its checkpoints restore memory only once and under the same id; forks have only the files.",
		},
	}
}

// enter begins a method: it runs its fault, and returns a context that also ends with the driver.
func (d *Driver) enter(ctx context.Context, id sandbox.ID, pick func(*Faults) Fault) (context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.closed, func() {
		cancel(sandbox.Errorf(sandbox.Unavailable, "the driver is closed"))
	})
	end := func() {
		stop()
		cancel(nil)
	}
	err := context.Cause(ctx)
	if err == nil {
		err = d.host.fault(ctx, id, pick)
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return ctx, end, nil
}

// box returns a box that this driver knows.
func (d *Driver) box(id sandbox.ID) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.known[id]; b != nil {
		return b, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
}

// Create makes a box.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	ctx, end, err := d.enter(ctx, spec.ID, func(f *Faults) Fault { return f.Create })
	if err != nil {
		return nil, err
	}
	defer end()
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	b, err := d.host.add(spec)
	if err != nil {
		return nil, err
	}
	err = b.fill()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.host.remove(spec.ID))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[spec.ID] = b
	return driver.Handle(b.handle), nil
}

var hostname = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

func checkSpec(s driver.Spec) error {
	if _, ok := sandbox.ParseID(string(s.ID)); !ok {
		return sandbox.InvalidField("id", "%q is not an id", s.ID)
	}
	if !hostname.MatchString(s.Hostname) {
		return sandbox.InvalidField("hostname", "%q is not 1 to 63 characters of a-z 0-9 -", s.Hostname)
	}
	if s.RootFS != "" && !filepath.IsAbs(s.RootFS) {
		return sandbox.InvalidField("rootfs", "%q is not an absolute path", s.RootFS)
	}
	switch r := s.Resources; {
	case r.MemoryBytes <= 0:
		return sandbox.InvalidField("resources.memory", "must be set")
	case r.CPUMilli <= 0:
		return sandbox.InvalidField("resources.cpu", "must be set")
	case r.DiskBytes <= 0:
		return sandbox.InvalidField("resources.disk", "must be set")
	case s.MaxProcesses < 0:
		return sandbox.InvalidField("max_processes", "must not be negative")
	}
	return nil
}

// Furnish fills the root of a blank box.
func (d *Driver) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (int, error) {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Furnish })
	if err != nil {
		return 0, err
	}
	defer end()
	if !filepath.IsAbs(rootfs) {
		return 0, sandbox.InvalidField("rootfs", "%q is not an absolute path", rootfs)
	}
	b, err := d.box(id)
	if err != nil {
		return 0, err
	}
	if err := b.mustRun(); err != nil {
		return 0, err
	}
	return 0, b.furnish(rootfs)
}

// Start runs the agent in a box.
func (d *Driver) Start(ctx context.Context, id sandbox.ID) error {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Start })
	if err != nil {
		return err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return err
	}
	return b.start()
}

// Recover adopts a living box of the host.
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, h driver.Handle) error {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Recover })
	if err != nil {
		return err
	}
	defer end()
	if !strings.HasPrefix(string(h), handlePrefix) {
		return sandbox.Errorf(sandbox.Invalid, "not a handle of the fake driver")
	}
	if _, err := d.box(id); err == nil {
		return nil
	}
	b := d.host.find(id)
	if b == nil || b.handle != string(h) || !b.running() {
		return sandbox.Errorf(sandbox.NotFound, "there is no running box %s", id)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[id] = b
	return nil
}

func (b *box) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.agent != nil && !b.ended
}

// Wait blocks until a box has ended.
func (d *Driver) Wait(ctx context.Context, id sandbox.ID) (driver.Exit, error) {
	ctx, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Wait })
	if err != nil {
		return driver.Exit{}, err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return driver.Exit{}, err
	}
	select {
	case <-b.endedCh:
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exit, nil
}

// Destroy ends and removes a box.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Destroy })
	if err != nil {
		return err
	}
	defer end()
	if err := d.host.remove(id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, id)
	return nil
}

// Dial connects to the agent, to a port of [Host.Listen], or to this machine's loopback.
func (d *Driver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	ctx, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Dial })
	if err != nil {
		return nil, err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	started, ended, mapped := b.agent != nil, b.ended, b.ports[port]
	b.mu.Unlock()
	var conn net.Conn
	switch {
	case ended:
		return nil, sandbox.Errorf(sandbox.Unavailable, "box %s has ended", id)
	case !started:
		return nil, sandbox.Errorf(sandbox.Conflict, "box %s is not started", id)
	case port == driver.AgentPort:
		conn, err = b.dialAgent()
	case mapped != "":
		conn, err = dialFirst(ctx, mapped)
	default:
		n := strconv.Itoa(int(port))
		conn, err = dialFirst(ctx, net.JoinHostPort("127.0.0.1", n), net.JoinHostPort("::1", n))
	}
	if err != nil {
		return nil, err
	}
	return b.keep(conn)
}

// dialFirst connects to the first address that accepts.
func dialFirst(ctx context.Context, addresses ...string) (net.Conn, error) {
	var dialer net.Dialer
	var last error
	for _, address := range addresses {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, sandbox.Wrap(sandbox.PortClosed, last, "nothing listens on that port")
}

// Stats returns the limits only.
func (d *Driver) Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error) {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Stats })
	if err != nil {
		return sandbox.Stats{}, err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	if !b.running() {
		return sandbox.Stats{}, sandbox.Errorf(sandbox.Unavailable, "box %s is not running", id)
	}
	r := b.spec.Resources
	return sandbox.Stats{Time: time.Now(), MemoryLimit: r.MemoryBytes, CPULimitMilli: r.CPUMilli, DiskLimit: r.DiskBytes}, nil
}

// Usage returns the value of [Host.SetUsage].
func (d *Driver) Usage(ctx context.Context, id sandbox.ID) (driver.Usage, error) {
	_, end, err := d.enter(ctx, id, func(f *Faults) Fault { return f.Usage })
	if err != nil {
		return driver.Usage{}, err
	}
	defer end()
	b, err := d.box(id)
	if err != nil {
		return driver.Usage{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usage, nil
}

// List returns everything on the host.
func (d *Driver) List(ctx context.Context) ([]sandbox.ID, error) {
	_, end, err := d.enter(ctx, "", func(f *Faults) Fault { return f.List })
	if err != nil {
		return nil, err
	}
	defer end()
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	ids := make([]sandbox.ID, 0, len(d.host.boxes))
	for id := range d.host.boxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, nil
}

// Close releases the boxes.
func (d *Driver) Close() error {
	d.close()
	return nil
}
