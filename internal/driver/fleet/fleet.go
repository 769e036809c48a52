package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// defaultPatience is how long calls wait for a worker whose connection broke.
const defaultPatience = 30 * time.Second

// Rows keeps the records of workers. Its methods are safe for concurrent use; package store/workerrows implements it.
type Rows interface {
	// List returns all records, the first that joined first.
	List(ctx context.Context) ([]worker.Record, error)
	// Save records a worker, in place of its record before.
	Save(ctx context.Context, w worker.Record) error
}

// Config configures a [Driver].
type Config struct {
	Rows Rows
	// Remote configures the driver of each worker. Its Saved reads checkpoints on this host, its Patience is how long calls wait
	// for a worker whose connection broke; 0 means 30 seconds.
	Remote remote.Config
	// Limit returns how much memory the boxes of a worker with so much memory may have together; 0 is any number.
	// nil permits any number.
	Limit func(memoryBytes int64) int64
}

// Driver is a driver whose boxes are on workers. It is safe for concurrent use.
type Driver struct {
	cfg  Config
	log  *slog.Logger
	life context.Context // ends with the driver
	end  context.CancelFunc
	work sync.WaitGroup // connections, and removals of obsolete boxes

	changed broadcast.Broadcast // a worker is connected

	recording sync.Mutex // held while a record is changed; before mu

	board
	caps *driver.Capabilities // guarded by mu; nil before the first connection
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Checkpointer = (*Driver)(nil)
	_ driver.Snapshotter  = (*Driver)(nil)
	_ driver.Networker    = (*Driver)(nil)
	_ driver.Furnisher    = (*Driver)(nil)
	_ driver.Meter        = (*Driver)(nil)
	_ driver.DiskMeter    = (*Driver)(nil)
	_ driver.Stager       = (*Driver)(nil)
)

// New returns a driver that knows the workers of the records and no box.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	if cfg.Remote.Patience == 0 {
		cfg.Remote.Patience = defaultPatience
	}
	records, err := cfg.Rows.List(ctx)
	if err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, log: cfg.Remote.Log, board: board{patience: cfg.Remote.Patience, most: cfg.Limit, places: map[sandbox.ID]*place{}}}
	d.life, d.end = context.WithCancel(context.Background())
	for _, r := range records {
		d.members = append(d.members, &member{boxes: remote.New(cfg.Remote), record: r})
	}
	return d, nil
}

// Close implements [driver.Driver]. The workers keep their drivers, until another control plane connects.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	members := slices.Clone(d.members)
	d.mu.Unlock()
	d.end()
	var all sync.WaitGroup
	errs := make([]error, len(members))
	for i, m := range members {
		all.Go(func() { errs[i] = m.boxes.Close() })
	}
	all.Wait()
	d.work.Wait()
	return errors.Join(errs...)
}

// Capabilities implements [driver.Driver]. Before [Driver.Ready] there are none.
func (d *Driver) Capabilities() driver.Capabilities {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caps == nil {
		return driver.Capabilities{Name: "fleet", Missing: []string{"No worker is connected."}}
	}
	caps := *d.caps
	caps.Missing = slices.Clone(caps.Missing)
	return caps
}

// Ready waits until all workers that are not gone are connected, at most as long as patience, and then until at least
// one is.
func (d *Driver) Ready(ctx context.Context, patience time.Duration) error {
	late := time.After(patience)
	waited := false
	for {
		next := d.changed.Wait()
		connected, away := d.count()
		if connected > 0 && (waited || len(away) == 0) {
			for _, name := range away {
				d.log.Warn("a worker is away; its sandboxes are unavailable until it is back", "worker", name)
			}
			return nil
		}
		select {
		case <-next:
		case <-late:
			waited = true
		case <-d.life.Done():
			return errClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Check returns an error for a worker that may not join or connect. Errors: Conflict, with what to do.
func (d *Driver) Check(w worker.Identity) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.byID(w.ID)
	switch {
	case m == nil || m.record.Status != worker.Gone && m.record.Key == w.Key:
		return nil
	case m.record.Status == worker.Gone:
		return sandbox.Errorf(sandbox.Conflict, "the worker %s was removed; to use its machine again, give it another state directory", m.record.Name)
	}
	return sandbox.Errorf(sandbox.Conflict, "the worker %s has another key than before; if the first is gone with its sandboxes, remove it: modbox workers rm %s --force", m.record.Name, m.record.Name)
}

// Attach uses a connection of a worker, until it breaks or the driver is closed, and closes it. A worker that connects for the first
// time is recorded. Errors: of Check; the reason why the worker cannot be used.
func (d *Driver) Attach(ctx context.Context, w worker.Identity, conn net.Conn) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = conn.Close()
		return errClosed
	}
	d.work.Add(1)
	m := d.byID(w.ID)
	d.mu.Unlock()
	defer d.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	fresh := m == nil
	if fresh {
		m = &member{boxes: remote.New(d.cfg.Remote)}
	}
	var link int
	err := m.boxes.Attach(ctx, conn, func(welcome remote.Welcome) (err error) {
		link, err = d.accept(ctx, m, w, conn.RemoteAddr().String(), welcome)
		return err
	})
	if link > 0 {
		d.left(m, link)
	} else if fresh {
		err = errors.Join(err, m.boxes.Close())
	}
	return err
}

// accept records a worker whose driver can do what the others can, and returns the number of its connection.
func (d *Driver) accept(ctx context.Context, m *member, w worker.Identity, address string, welcome remote.Welcome) (int, error) {
	if err := d.Check(w); err != nil {
		return 0, err
	}
	d.recording.Lock()
	defer d.recording.Unlock()
	d.mu.Lock()
	known, r := d.byID(w.ID), m.record
	if d.closed {
		d.mu.Unlock()
		return 0, errClosed
	}
	if known != nil && known != m {
		d.mu.Unlock()
		return 0, sandbox.Errorf(sandbox.Unavailable, "the worker has joined over another connection at this moment; it tries again")
	}
	if d.caps != nil && !alike(*d.caps, welcome.Capabilities) {
		d.mu.Unlock()
		return 0, errors.New("the worker cannot do what the other workers can, or can do more: its machine must have the same features")
	}
	now := time.Now().UTC()
	if known == nil {
		r = worker.Record{Identity: w, Name: w.ID, Status: worker.Ready, JoinedAt: now}
	}
	if r.Name == r.ID {
		r.Name = d.freeName(welcome.Host.Name, r.ID)
	}
	d.mu.Unlock()
	r.Address, r.SeenAt, r.Version = address, now, sandbox.OneLine(welcome.Host.Version)
	r.MemoryBytes, r.Cores = max(welcome.Host.MemoryBytes, 0), max(welcome.Host.Cores, 0)
	if err := d.cfg.Rows.Save(ctx, r); err != nil {
		return 0, err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return 0, errClosed
	}
	if known == nil {
		d.members = append(d.members, m)
	}
	if d.caps == nil {
		caps := welcome.Capabilities
		d.caps = &caps
	}
	m.record, m.connected = r, true
	m.link++
	link := m.link
	d.mu.Unlock()
	d.log.Info("a worker is connected", "worker", r.Name, "id", r.ID, "address", address)
	d.changed.Send()
	d.work.Go(func() { d.removeObsolete(m) }) // the caller holds work
	return link, nil
}

// left notes that a connection has ended.
func (d *Driver) left(m *member, link int) {
	d.recording.Lock()
	defer d.recording.Unlock()
	d.mu.Lock()
	if m.link != link {
		d.mu.Unlock()
		return
	}
	m.connected, m.since = false, time.Now()
	m.record.SeenAt = m.since.UTC()
	r, closed := m.record, d.closed
	d.mu.Unlock()
	if !closed && r.Status != worker.Gone {
		d.log.Warn("the connection of a worker has ended; its sandboxes are unavailable until it is back", "worker", r.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if err := d.cfg.Rows.Save(ctx, r); err != nil {
		d.log.Error("the end of a worker's connection is not recorded", "worker", r.Name, "error", err)
	}
}

// saveTimeout bounds the record of the end of a connection.
const saveTimeout = 10 * time.Second

// alike reports whether two drivers can do the same. They may have other platforms.
func alike(a, b driver.Capabilities) bool {
	a.Missing, b.Missing = nil, nil
	a.Platform, b.Platform = "", ""
	return fmt.Sprint(a) == fmt.Sprint(b)
}
