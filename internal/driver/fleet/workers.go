package fleet

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

const (
	// clearTimeout bounds the end of the boxes of a worker that is removed.
	clearTimeout = time.Minute
	// clearAtOnce bounds the boxes that are destroyed at the same time then.
	clearAtOnce = 8
)

// Worker is a worker with its use now.
type Worker struct {
	worker.Record
	Connected   bool
	ConnectedAt time.Time // when the connection began; zero while there is none
	// Boxes is the number of its boxes, including boxes of builds and of the pool, and PromisedBytes the memory that they may use together,
	// at most PromisedMaxBytes unless that is 0.
	Boxes                           int
	PromisedBytes, PromisedMaxBytes int64
}

// shown returns a worker with its use.
//
// Preconditions: b.mu is held.
func (b *board) shown(m *member) Worker {
	w := Worker{Record: m.record, Connected: m.connected, Boxes: m.placed, PromisedBytes: m.promised, PromisedMaxBytes: b.limit(m)}
	if m.connected {
		w.ConnectedAt, w.SeenAt = w.SeenAt, time.Now().UTC()
	}
	return w
}

// Use sets whether new boxes are placed on a worker, which ref names by its name or id: [worker.Ready] or
// [worker.Draining]. Errors: NotFound.
func (d *Driver) Use(ctx context.Context, ref string, s worker.Status) (Worker, error) {
	m, err := d.retire(ref, func(*member) error { return nil })
	if err != nil {
		return Worker{}, err
	}
	return d.change(ctx, m, s)
}

// Remove removes a worker for good. Without force it must have no boxes. With force its boxes are lost: they are destroyed if the worker
// is connected; if it is away, they go on there, and nothing ends them any more. Errors: NotFound; Conflict if it has boxes.
func (d *Driver) Remove(ctx context.Context, ref string, force bool) (Worker, error) {
	m, err := d.retire(ref, func(m *member) error {
		if m.placed > 0 && !force {
			return sandbox.Errorf(sandbox.Conflict, "the worker %s has %d sandboxes or boxes of builds and of the pool; drain it first, or remove it with force, which ends them", m.record.Name, m.placed)
		}
		return nil
	})
	if err != nil {
		return Worker{}, err
	}
	w, err := d.change(ctx, m, worker.Gone)
	if err != nil {
		return Worker{}, err
	}
	if w.Connected {
		d.clear(m)
	}
	return w, m.boxes.Close() // its calls end, and Wait returns
}

// change records the status of a worker. Nothing acts on it before it is recorded.
func (d *Driver) change(ctx context.Context, m *member, s worker.Status) (Worker, error) {
	m.saving.Lock()
	defer m.saving.Unlock()
	d.mu.Lock()
	r := m.record
	d.mu.Unlock()
	r.Status = s
	if s == worker.Gone {
		r = r.Removed()
	}
	err := d.cfg.Rows.Save(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	m.retiring = false
	if err != nil {
		return Worker{}, err
	}
	m.record.Status, m.record.Name = r.Status, r.Name
	return d.shown(m), nil
}

// clear destroys all boxes of a connected worker that was removed: nothing could end them later.
func (d *Driver) clear(m *member) {
	ctx, cancel := context.WithTimeout(d.life, clearTimeout)
	defer cancel()
	ids, err := m.boxes.List(ctx)
	if err != nil {
		d.log.Error("boxes of a worker that was removed may go on", "worker", m.record.ID, "error", err)
		return
	}
	var all errgroup.Group
	all.SetLimit(clearAtOnce)
	for _, id := range ids {
		all.Go(func() error {
			if err := m.boxes.Destroy(ctx, id); err != nil {
				d.log.Error("a box of a worker that was removed may go on", "worker", m.record.ID, "box", id, "error", err)
			}
			return nil
		})
	}
	_ = all.Wait() // the errors are logged
}
