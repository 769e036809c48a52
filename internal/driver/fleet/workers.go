package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

const (
	// clearTimeout bounds the end of the boxes of a worker that is removed.
	clearTimeout = time.Minute
	// clearPause is the least time between two connections of a removed worker, longer than clearTimeout.
	clearPause = 2 * time.Minute
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
// [worker.Draining]. Errors: NotFound; Conflict if it is lost.
func (d *Driver) Use(ctx context.Context, ref string, s worker.Status) (Worker, error) {
	_, w, err := d.change(ctx, ref, s, func(m *member) error {
		if m.record.Status == worker.Lost {
			return sandbox.Errorf(sandbox.Conflict, "the worker %s is lost and has no sandboxes; it can be drained when it is back, or removed", m.record.Name)
		}
		return nil
	})
	return w, err
}

// Remove removes a worker for good. Without force it must have no boxes. With force its boxes are lost: they are destroyed, at the
// latest when the worker connects again. Errors: NotFound; Conflict if it has boxes.
func (d *Driver) Remove(ctx context.Context, ref string, force bool) (Worker, error) {
	m, w, err := d.change(ctx, ref, worker.Gone, func(m *member) error {
		if m.placed > 0 && !force {
			return sandbox.Errorf(sandbox.Conflict, "the worker %s has %d sandboxes or boxes of builds and of the pool; drain it first, or remove it with force, which ends them", m.record.Name, m.placed)
		}
		return nil
	})
	if err != nil {
		return Worker{}, err
	}
	return w, d.giveUp(m, w.Connected)
}

// giveUp gives up the boxes of a worker that is gone.
func (d *Driver) giveUp(m *member, connected bool) error {
	if connected {
		destroyAll(d.life, d.log, m.record.ID, m.boxes) // the id does not change
	}
	return m.boxes.Close() // its calls end, and Wait returns; the next connection destroys boxes that were being made
}

// change records the status of a worker, which ref names by its name or id, unless check returns an error. The worker gets no boxes
// meanwhile. Nothing acts on the status before it is recorded. Errors: NotFound; of check.
func (d *Driver) change(ctx context.Context, ref string, s worker.Status, check func(*member) error) (*member, Worker, error) {
	d.mu.Lock()
	m := d.byRef(ref)
	d.mu.Unlock()
	if m == nil {
		return nil, Worker{}, d.missing(ref)
	}
	m.saving.Lock()
	defer m.saving.Unlock()
	if m.forgotten {
		return nil, Worker{}, noWorker(ref)
	}
	r, err := d.retire(m, ref, check) // after another change has ended
	if err != nil {
		return nil, Worker{}, err
	}
	r.Status = s
	if s == worker.Gone {
		r = r.Removed()
	}
	err = d.cfg.Rows.Save(ctx, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	m.retiring = false
	if err != nil {
		return nil, Worker{}, err
	}
	m.record.Status, m.record.Name = r.Status, r.Name
	return m, d.shown(m), nil
}

// noWorker returns the error for a worker that is not there.
func noWorker(ref string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no worker %q", ref)
}

// expel destroys the boxes on a worker that was removed or lost, over its connection, and ends that. Errors: Conflict.
func expel(ctx context.Context, d *Driver, m *member, w worker.Identity, conn net.Conn) error {
	boxes := remote.New(d.cfg.Remote)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	err := boxes.Attach(ctx, conn, func(remote.Welcome) error {
		work.Go(func() {
			defer cancel()
			if destroyAll(ctx, d.log, w.ID, boxes) && (absent{d}).readmit(m) {
				d.mu.Lock()
				m.cleared = true
				d.mu.Unlock()
			}
		})
		return nil
	})
	cancel()
	work.Wait()
	return errors.Join(err, boxes.Close(), d.Check(w))
}

// destroyAll destroys all boxes on a worker that was removed or lost, and reports whether it succeeded. If not, the next connection of the worker does.
func destroyAll(ctx context.Context, log *slog.Logger, id string, boxes *remote.Driver) bool {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	ids, err := boxes.List(ctx)
	if err != nil {
		log.Error("boxes of a worker that was removed or lost go on until it connects again", "worker", id, "error", err)
		return false
	}
	var all errgroup.Group
	all.SetLimit(clearAtOnce)
	for _, box := range ids {
		all.Go(func() error { return boxes.Destroy(ctx, box) })
	}
	if err := all.Wait(); err != nil {
		log.Error("boxes of a worker that was removed or lost go on until it connects again", "worker", id, "boxes", len(ids), "error", err)
		return false
	}
	return true
}
