package fleet

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Worker is a worker with its use now.
type Worker struct {
	worker.Record
	Connected bool
	// Boxes is the number of its boxes, including boxes of builds and of the pool, and PromisedBytes the memory that they may use together.
	Boxes         int
	PromisedBytes int64
}

// shown returns a worker with its use.
//
// Preconditions: the mu of the driver is held.
func (m *member) shown() Worker {
	w := Worker{Record: m.record, Connected: m.connected, Boxes: m.placed, PromisedBytes: m.promised}
	if m.connected {
		w.SeenAt = time.Now().UTC()
	}
	return w
}

// Use sets whether new boxes are placed on a worker, which ref names by its name or id: [worker.Ready] or
// [worker.Draining]. Errors: NotFound.
func (d *Driver) Use(ctx context.Context, ref string, s worker.Status) (Worker, error) {
	return d.change(ctx, ref, func(m *member) (worker.Status, error) { return s, nil })
}

// Remove removes a worker for good. Its boxes are lost: without force it must have none. A worker that is
// connected is disconnected. Errors: NotFound; Conflict if it has boxes.
func (d *Driver) Remove(ctx context.Context, ref string, force bool) (Worker, error) {
	w, err := d.change(ctx, ref, func(m *member) (worker.Status, error) {
		if m.placed > 0 && !force {
			return "", sandbox.Errorf(sandbox.Conflict, "the worker %s has %d sandboxes or boxes of builds and of the pool; drain it first, or remove it with force, which ends them", m.record.Name, m.placed)
		}
		return worker.Gone, nil
	})
	if err != nil {
		return Worker{}, err
	}
	d.mu.Lock()
	m := d.byID(w.ID)
	d.mu.Unlock()
	return w, m.boxes.Close() // its calls end, and Wait returns
}

// change records the status of a worker.
func (d *Driver) change(ctx context.Context, ref string, next func(*member) (worker.Status, error)) (Worker, error) {
	d.recording.Lock()
	defer d.recording.Unlock()
	d.mu.Lock()
	m := d.byRef(ref)
	if m == nil {
		d.mu.Unlock()
		return Worker{}, sandbox.Errorf(sandbox.NotFound, "there is no worker %q", ref)
	}
	before := m.record
	status, err := next(m)
	if err == nil {
		m.record.Status = status // before it is recorded, so that it gets no box meanwhile
		if status == worker.Gone {
			m.record.Name = m.record.ID // another may have the name
		}
	}
	r := m.record
	d.mu.Unlock()
	if err != nil {
		return Worker{}, err
	}
	err = d.cfg.Rows.Save(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		m.record = before
		return Worker{}, err
	}
	return m.shown(), nil
}
