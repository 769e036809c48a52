package fleet

import (
	"context"
	"errors"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Supplier makes a worker for each box, and removes it with the box. Its methods are safe for concurrent use.
type Supplier interface {
	// Start begins the removal of supplied workers except the workers in keep, and calls lost, from then on, for each supplied worker that has ended
	// by itself.
	Start(ctx context.Context, keep []string, lost func(id string, how Loss)) error
	// Supply makes a worker, and returns when connected is closed. After an error the caller calls Release. Errors: QuotaExceeded; Unavailable,
	// with the reason why the worker does not connect; the context's.
	Supply(ctx context.Context, w Wanted, connected <-chan struct{}) error
	// Claim says that the box of a worker belongs to a workspace now: a box of the pool had none when its worker was made.
	Claim(id string, w sandbox.WorkspaceID)
	// Crowded returns a channel that receives when Supply waits for the end of other workers.
	Crowded() <-chan struct{}
	// GiveWay returns which of the workers in ids, with boxes of the pool, the first rather than the last, is to end so that Supply need not wait; "" for
	// none. The caller has its box destroyed.
	GiveWay(ids []string) string
	// Release removes a worker in the background, until that succeeds. It does not wait.
	Release(id string)
	// Close ends the background work.
	Close()
}

// Loss is how a supplied worker has ended by itself.
type Loss struct {
	Reason string // a sentence
	OOM    bool   // for lack of memory
}

// supplied is a driver as the keeper of the workers that its supplier makes.
type supplied struct{ *Driver }

// Wanted is a worker for a box.
type Wanted struct {
	ID        string // of the worker; see [worker.NewSuppliedID]
	Workspace sandbox.WorkspaceID
	Box       driver.Spec
}

// expectation is a supplied worker that is going to connect.
type expectation struct {
	connected chan struct{}
	met       bool // connected is closed
}

// start starts the supplier, if there is one, for the workers of the records. Without a supplier there can be workers of a server that had one.
func (d supplied) start(ctx context.Context) error {
	var keep []string
	for _, m := range d.members {
		if worker.Supplied(m.record.ID) {
			keep = append(keep, m.record.ID)
		}
	}
	if d.cfg.Supplier != nil {
		if err := d.cfg.Supplier.Start(ctx, keep, d.lose); err != nil {
			return err
		}
	} else if len(keep) == 0 {
		return nil
	}
	d.work.Go(d.removeVacant)
	return nil
}

// give gives a box a worker of its own, which can restore its checkpoint, if there is one, and returns its place until release is called.
func (d supplied) give(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (p *place, release func(), err error) {
	p, release, err = d.giveAny(ctx, w, spec)
	if err != nil || checkpoint == "" {
		return p, release, err
	}
	err = p.member.canRestore(ctx, checkpoint)
	if err == nil || errors.Is(err, driver.ErrNoMemory) {
		return p, release, nil
	}
	release()
	if sandbox.CodeOf(err) != sandbox.NotFound { // else it is damaged
		err = sandbox.Wrap(sandbox.Unavailable, errors.Join(driver.ErrAway, err), "the node that has space for sandbox %s cannot restore its memory; try again: another node may", spec.ID)
	}
	return nil, nil, err
}

// giveAny gives a box a worker of its own, and returns its place until release is called.
func (d supplied) giveAny(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec) (p *place, release func(), err error) {
	id := worker.NewSuppliedID()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	d.mu.Lock()
	closed := d.closed
	e := &expectation{connected: make(chan struct{})}
	d.expected[id] = e
	d.mu.Unlock()
	if closed {
		err = errClosed
	} else {
		err = d.cfg.Supplier.Supply(ctx, Wanted{ID: id, Workspace: w, Box: spec}, e.connected)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.expected, id)
	m := d.byID(id)
	if err == nil && (m == nil || m.record.Status == worker.Gone) {
		err = sandbox.Errorf(sandbox.Unavailable, "the worker of sandbox %s was lost before the sandbox was there; try again", spec.ID)
	}
	if err == nil && d.places[spec.ID] != nil {
		err = sandbox.Errorf(sandbox.Conflict, "sandbox %s is being started already", spec.ID)
	}
	if err != nil {
		if m == nil {
			m = &member{record: worker.Record{Identity: worker.Identity{ID: id}}}
		}
		d.vacate(m)
		return nil, nil, err
	}
	p = d.add(spec.ID, m, spec.Resources.MemoryBytes)
	return p, d.holdPlace(spec.ID, p), nil
}

// held returns the place of a box until release is called; nil if it has none. A place on a worker that was lost is removed, unless a caller holds
// it: the box is not made on another worker then. Errors: the reason why the worker was lost.
func (d supplied) held(id sandbox.ID) (p *place, release func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = d.places[id]
	if p == nil {
		return nil, nil, nil
	}
	if p.member.record.Status != worker.Gone {
		return p, d.holdPlace(id, p), nil
	}
	if p.holds > 0 {
		return nil, nil, d.away(p.member)
	}
	p.box = false
	d.removePlace(id, p)
	return nil, nil, nil
}

// meet notes that a supplied worker has connected.
//
// Preconditions: b.mu is held.
func (b *board) meet(id string) {
	if e := b.expected[id]; e != nil && !e.met {
		e.met = true
		close(e.connected)
	}
}

// vacate forgets a supplied worker, which is removed in the background.
//
// Preconditions: b.mu is held.
func (b *board) vacate(m *member) {
	m.record.Status = worker.Gone
	b.strike(m)
	b.vacant = append(b.vacant, m)
	b.emptied.Send()
}

// vacated reports whether a supplied worker was forgotten, with its boxes.
func (d supplied) vacated(m *member) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return worker.Supplied(m.record.ID) && d.byID(m.record.ID) != m
}

// vacateUnused is vacate for a worker that may have no box any more.
//
// Preconditions: b.mu is held.
func (b *board) vacateUnused(m *member) {
	if b.settled && worker.Supplied(m.record.ID) && m.placed == 0 && b.expected[m.record.ID] == nil {
		b.vacate(m)
	}
}

// lose notes that a supplied worker has ended by itself.
func (d supplied) lose(id string, how Loss) {
	d.mu.Lock()
	m := d.byID(id)
	if m == nil || m.record.Status == worker.Gone {
		d.mu.Unlock()
		return
	}
	d.markLost(m, how)
	d.mu.Unlock()
	d.closeLost(m, how.Reason)
}

// markLost gives up the box of a supplied worker. The caller calls closeLost next.
//
// Preconditions: d.mu is held.
func (d supplied) markLost(m *member, how Loss) {
	if m.placed > 1 { // nobody knows which of its boxes used the memory
		how.OOM = false
	}
	m.record.Status, m.lost = worker.Gone, how
	d.vacateUnused(m)
}

// closeLost ends the calls for the box of a supplied worker that is lost.
func (d supplied) closeLost(m *member, reason string) {
	id := m.record.ID // does not change
	d.log.Warn("the worker of a sandbox is lost", "worker", id, "reason", reason)
	if err := m.boxes.Close(); err != nil {
		d.log.Error("the connection of a lost worker", "worker", id, "error", err)
	}
}

// removeVacant removes the workers that vacate has forgotten, until the driver is closed. A worker that it does not come to is removed by the
// next start, or by [Driver.Settle] then.
func (d supplied) removeVacant() {
	for closed := false; ; {
		next := d.emptied.Wait()
		d.mu.Lock()
		list := d.vacant
		d.vacant = nil
		d.mu.Unlock()
		for _, m := range list {
			d.forget(m)
		}
		if closed {
			return
		}
		select {
		case <-next:
		case <-d.life.Done():
			closed = true
		}
	}
}

// forget removes a supplied worker and its record.
func (d supplied) forget(m *member) {
	id := m.record.ID // does not change
	if d.cfg.Supplier != nil {
		d.cfg.Supplier.Release(id)
	}
	if m.boxes == nil {
		return // it has never connected
	}
	if err := m.boxes.Close(); err != nil {
		d.log.Error("the connection of a removed worker", "worker", id, "error", err)
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	m.forgotten = true
	d.deleteRecord(id)
}

// deleteRecord removes the record of a supplied worker.
func (d supplied) deleteRecord(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if err := d.cfg.Rows.Delete(ctx, id); err != nil {
		d.log.Error("the record of a removed worker stays until the next start", "worker", id, "error", err)
	}
}

// errUnexpected returns an error for a worker that says it was supplied, unless it is expected.
//
// Preconditions: b.mu is held.
func (b *board) errUnexpected(id string) error {
	if !worker.Supplied(id) || b.expected[id] != nil {
		return nil
	}
	return sandbox.Errorf(sandbox.Conflict, "the server expects no worker %s: its sandbox has ended", id)
}

// others returns the workers that are not away and were not supplied for a box.
func (d supplied) others() (list []*member) {
	for _, m := range d.reachable() {
		if !worker.Supplied(m.record.ID) {
			list = append(list, m)
		}
	}
	return list
}

// lossOf returns the reason in the error of a call for a lost box.
func lossOf(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) && e != errLost {
		return e.Message
	}
	return "its worker was removed"
}
