package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// defaultPatience limits the time for which calls wait for a worker whose connection broke.
const defaultPatience = 30 * time.Second

// Rows keeps the records of workers. Its methods are safe for concurrent use; package store/workerrows implements it.
type Rows interface {
	// List returns all records, the first that joined first.
	List(ctx context.Context) ([]worker.Record, error)
	// Save records a worker, in place of its record before.
	Save(ctx context.Context, w worker.Record) error
	// Add records a worker that has no record, while there are so many records of workers that were not supplied, and reports whether it did.
	Add(ctx context.Context, w worker.Record, records int) (added bool, err error)
	// Delete removes the record of a worker, if there is one.
	Delete(ctx context.Context, id string) error
}

// Config configures a [Driver].
type Config struct {
	Rows Rows
	// Own are the ranges of shards of this server, which has the workers of these ranges alone, and Parts the ranges of all servers that are active at the
	// same time; zero: there is a single one. A server that owns all ranges although there are parts places boxes so that the parts can have servers.
	Own   sandbox.Ranges
	Parts []sandbox.Ranges
	// Remote configures the driver of each worker. Its Saved reads checkpoints on this host, its Patience is how long calls wait
	// for a worker whose connection broke; 0 means 30 seconds.
	Remote remote.Config
	// Limit returns how much memory the boxes of a worker with so much memory may have together; 0 is any number.
	// nil permits any number.
	Limit func(memoryBytes int64) int64
	// LostAfter is the time after which a worker that is away is lost, with its boxes; 0: never.
	LostAfter time.Duration
	// Supplier makes a worker for each box; nil: boxes are placed on the workers that join.
	Supplier Supplier
	// PerWorker is the number of boxes of a workspace that share a supplied worker, if they have the same limits and root filesystem; 0 is 1.
	PerWorker int
	// BringMax is the size of the largest root filesystem that is brought to the supplied worker of a blank box. The worker has as much space for that
	// beside the space for the root filesystem that the box gets, which is FurnishMax at most.
	BringMax, FurnishMax int64
}

// Driver is a driver whose boxes are on workers. It is safe for concurrent use.
type Driver struct {
	cfg  Config
	log  *slog.Logger
	life context.Context // ends with the driver
	end  context.CancelFunc
	work sync.WaitGroup // connections, and removals of obsolete boxes

	changed broadcast.Broadcast // a worker is connected

	joining sync.Mutex // held while a worker is recorded for the first time; before mu

	board
	bringer
	suppliedSpace
	foreign
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
	_ driver.Reacher      = (*Driver)(nil)
	_ driver.SaveReserver = (*Driver)(nil)
	_ driver.Placer       = (*Driver)(nil)
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
	d := &Driver{cfg: cfg, log: cfg.Remote.Log, board: board{
		patience: cfg.Remote.Patience, most: cfg.Limit, roster: roster{ids: map[string]*member{}}, places: map[sandbox.ID]*place{}, expected: map[string]*expectation{},
	}}
	d.life, d.end = context.WithCancel(context.Background())
	d.bringer.to = &d.board
	d.suppliedSpace = suppliedSpace{&d.board, cfg.Supplier}
	d.foreign.begin(&d.board, cfg)
	if !d.several() && len(cfg.Parts) > 1 {
		d.division = division{cfg.Parts, cfg.Supplier != nil, &d.roster}
	}
	if cfg.Supplier != nil {
		d.bringer.supplied, d.bringer.most, d.bringer.furnishMax = true, cfg.BringMax, cfg.FurnishMax
	}
	for _, r := range records {
		if d.own.HasRange(r.Home) {
			d.enlist(&member{boxes: remote.New(cfg.Remote), record: r, awaited: d.several() && r.MemoryBytes == 0})
		}
	}
	d.see(records)
	if err := (supplied{d}).start(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if cfg.LostAfter > 0 {
		d.work.Go(absent{d}.watch)
	}
	if d.several() {
		d.work.Go(homes{d}.watch)
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
	if d.cfg.Supplier != nil {
		d.cfg.Supplier.Close()
	}
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
// one is. After patience, a worker whose features have changed may be the first.
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
			d.mu.Lock()
			d.late = true
			d.mu.Unlock()
		case <-d.life.Done():
			return errClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Attach uses a connection of a worker, until it breaks or the driver is closed, and closes it. A worker that connects for the first
// time is recorded. Errors: of Check; the reason why the worker cannot be used.
func (d *Driver) Attach(ctx context.Context, w worker.Identity, conn net.Conn) (err error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = conn.Close()
		return errClosed
	}
	d.work.Add(1)
	m := d.byID(w.ID)
	fresh := m == nil
	gone := !fresh && m.gone()
	var refused error
	if gone {
		if m.mayClear() {
			m.expelled = time.Now()
		} else {
			refused = errRemoved(m)
		}
	}
	d.mu.Unlock()
	defer d.work.Done()
	if refused != nil {
		_ = conn.Close()
		return refused
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	if gone {
		return expel(ctx, d, m, w, conn)
	}
	if fresh && d.several() {
		if m, err = (homes{d}).admit(ctx, w); err != nil {
			_ = conn.Close()
			return err
		}
		fresh = m == nil
	}
	if fresh {
		m = &member{boxes: remote.New(d.cfg.Remote)}
	}
	var link int
	err = m.boxes.Attach(ctx, conn, func(welcome remote.Welcome) (err error) {
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

// accept takes the connection of a worker whose driver can do what the others can, and returns its number. A worker that connects for the
// first time is recorded before; the record of others follows, so that their boxes do not wait for the database.
func (d *Driver) accept(ctx context.Context, m *member, w worker.Identity, address string, welcome remote.Welcome) (int, error) {
	now := time.Now().UTC()
	describe := func(r *worker.Record) {
		r.Address, r.SeenAt, r.Version = address, now, sandbox.OneLine(welcome.Host.Version)
		r.MemoryBytes, r.Cores = max(welcome.Host.MemoryBytes, 0), max(welcome.Host.Cores, 0)
		r.Features = features(welcome.Capabilities)
	}
	d.mu.Lock()
	known := d.byID(w.ID) == m
	d.mu.Unlock()
	if !known {
		if err := d.join(ctx, m, w, welcome, describe); err != nil {
			return 0, err
		}
	}
	link, err := d.connect(m, w, welcome, describe)
	if err != nil {
		return 0, err
	}
	d.log.Info("a worker is connected", "id", w.ID, "address", address)
	d.changed.Send()
	d.work.Go(func() { // the caller holds work
		d.save(m)
		if ids, err := m.boxes.List(d.life); err == nil { // else the next sweep does it
			d.removeObsolete(d.life, m, ids)
		}
	})
	return link, nil
}

// join records a worker that connects for the first time.
func (d *Driver) join(ctx context.Context, m *member, w worker.Identity, welcome remote.Welcome, describe func(*worker.Record)) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	d.joining.Lock()
	defer d.joining.Unlock()
	r := worker.Record{Identity: w, Status: worker.Ready, JoinedAt: time.Now().UTC()}
	describe(&r)
	d.mu.Lock()
	err := d.mayJoin(w, welcome.Capabilities)
	if err == nil {
		r.Name, r.Home = d.freeName(welcome.Host.Name, w.ID), (homes{d}).homeOf(w.ID)
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if err := d.cfg.Rows.Save(ctx, r); err != nil {
		return err
	}
	d.mu.Lock()
	closed := d.closed
	err = d.errUnexpected(w.ID) // its box may have been given up meanwhile
	if !closed && err == nil {
		m.record = r
		d.enlist(m)
	}
	d.mu.Unlock()
	if closed {
		return errClosed
	}
	if err != nil {
		(supplied{d}).deleteRecord(w.ID)
	}
	return err
}

// connect makes a connection the one in use of a worker that is recorded, and returns its number.
func (d *Driver) connect(m *member, w worker.Identity, welcome remote.Welcome, describe func(*worker.Record)) (int, error) {
	if err := d.Check(w); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.gone() { // since a moment ago
		return 0, errRemoved(m)
	}
	if err := d.suits(welcome.Capabilities); err != nil {
		return 0, err
	}
	if err := d.mayDecide(m, welcome.Capabilities); err != nil {
		return 0, err
	}
	if d.caps == nil {
		caps := welcome.Capabilities
		d.caps = &caps
	}
	describe(&m.record)
	if m.record.Name == m.record.ID { // it was recorded by an earlier version
		m.record.Name = d.freeName(welcome.Host.Name, w.ID)
	}
	m.connected, m.slow, m.awaited = true, false, false
	m.link++
	d.meet(w.ID)
	return m.link, nil
}

// left notes that a connection has ended.
func (d *Driver) left(m *member, link int) {
	d.mu.Lock()
	if m.link != link {
		d.mu.Unlock()
		return
	}
	m.connected, m.since = false, time.Now()
	m.record.SeenAt = m.since.UTC()
	r, closed, gone := m.record, d.closed, m.gone()
	d.mu.Unlock()
	if !closed && !gone {
		d.log.Warn("the connection of a worker has ended; its sandboxes are unavailable until it is back", "worker", r.Name)
	}
	d.save(m)
}

// save records a worker as it is now. Nothing depends on that but lists of workers.
func (d *Driver) save(m *member) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	m.saving.Lock()
	defer m.saving.Unlock()
	if m.forgotten {
		return
	}
	d.mu.Lock()
	if d.several() {
		m.record.Use = m.use()
	}
	r := m.record
	d.mu.Unlock()
	if err := d.cfg.Rows.Save(ctx, r); err != nil {
		d.log.Error("a worker is not recorded as it is now", "worker", r.Name, "error", err)
	}
}

// saveTimeout bounds a change of a record.
const saveTimeout = 10 * time.Second

// features describes what a driver can do. Drivers with equal features may have other platforms.
func features(c driver.Capabilities) string {
	c.Missing, c.Platform = nil, ""
	words := strings.Fields(strings.Trim(fmt.Sprintf("%+v", c), "{}"))
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return strings.HasSuffix(w, ":false") }), " ")
}
