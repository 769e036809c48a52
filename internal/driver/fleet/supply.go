package fleet

import (
	"context"
	"errors"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
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

// Loss says why a supplied worker ended without a request to end it.
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
	Boxes     int   // that many such boxes share it
	Files     int64 // the size of root filesystems that it gets: of the box or, if the box is blank, of what is brought
}

// expectation is a supplied worker that is going to connect. The mu of the board guards its fields.
type expectation struct {
	id        string
	connected chan struct{}
	met       bool // connected is closed
	class     class
	home      int           // the range of the box for which it is made
	boxesMax  int           // boxes that it may have
	others    int           // boxes that wait for it beside the box for which it is made
	over      chan struct{} // closed when it has the box, or there is no such worker
	err       error         // why there is none; nil also if the call that makes it was cancelled; set before over is closed
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

// give gives a box a worker of its own, or a place on a worker of its class, which can restore its checkpoint, if there is one, and returns its place until
// release is called.
func (d supplied) give(ctx context.Context, w sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (p *place, release func(), err error) {
	c := class{w, spec.Resources, spec.RootFS}
	except := map[*member]bool{}
	for {
		p, release, e, fresh := d.share(c, spec, except)
		err = nil
		switch {
		case fresh:
			p, release, err = d.giveOwn(ctx, e, spec)
		case e != nil:
			if err = d.await(ctx, e); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, nil, err
		}
		if checkpoint == "" {
			return p, release, nil
		}
		err = p.member.canRestore(ctx, checkpoint)
		if err == nil || errors.Is(err, driver.ErrNoMemory) {
			return p, release, nil
		}
		except[p.member] = true
		release()
		switch {
		case sandbox.CodeOf(err) == sandbox.NotFound: // it is damaged
			return nil, nil, err
		case fresh:
			return nil, nil, sandbox.Wrap(sandbox.Unavailable, errors.Join(driver.ErrAway, err), "the node that has space for sandbox %s cannot restore its memory; try again: another node may", spec.ID)
		}
	}
}

// giveOwn gives a box the worker of an expectation, which it makes, and returns its place until release is called.
func (d supplied) giveOwn(ctx context.Context, e *expectation, spec driver.Spec) (p *place, release func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	err = d.supply(ctx, e, spec)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.expected, e.id)
	defer close(e.over)
	if ctx.Err() == nil {
		e.err = err
	}
	m := d.byID(e.id)
	if err == nil && (m == nil || m.record.Status == worker.Gone) {
		err = sandbox.Errorf(sandbox.Unavailable, "the worker of sandbox %s was lost before the sandbox was there; try again", spec.ID)
	}
	if err == nil && d.places[spec.ID] != nil {
		err = sandbox.Errorf(sandbox.Conflict, "sandbox %s is being started already", spec.ID)
	}
	if err != nil {
		if m == nil {
			m = &member{record: worker.Record{Identity: worker.Identity{ID: e.id}}}
		}
		d.vacate(m)
		return nil, nil, err
	}
	m.class, m.boxesMax = e.class, e.boxesMax
	p = d.add(spec.ID, m, spec.Resources.MemoryBytes)
	return p, d.holdPlace(spec.ID, p), nil
}

// supply makes the worker of an expectation for a box.
func (d supplied) supply(ctx context.Context, e *expectation, spec driver.Spec) error {
	if d.life.Err() != nil {
		return errClosed
	}
	files, err := remote.SizeOf(spec.RootFS)
	if err != nil {
		return err
	}
	if spec.RootFS == "" {
		files = d.cfg.BringMax
	}
	return d.cfg.Supplier.Supply(ctx, Wanted{ID: e.id, Workspace: e.class.workspace, Box: spec, Boxes: e.boxesMax, Files: files}, e.connected)
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
