package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/worker"
)

// absenceLooks is the number of looks in a row, after the first look, in which a worker must be away before it is lost. A server that stood still for
// that time has looked only once, and so takes no worker for lost.
const absenceLooks = 20

// absence is the time since a connection of a worker ended; link is the number of that connection, 0 for none.
type absence struct {
	member *member
	link   int
}

// back reports whether the absence is over.
//
// Preconditions: the mu of the board is held.
func (a absence) back() bool { return a.member.connected || a.member.link != a.link || a.member.gone() }

// absences has how often in a row each worker was away.
type absences map[absence]int

// look counts the workers that are away, and returns the lost workers. While more workers are away than connected, none is lost, and all have their
// whole time afterwards: it is perhaps the server that nobody reaches.
func (a absences) look(away []absence, connected int) (lost []absence) {
	for old := range a {
		if connected < len(away) || !slices.Contains(away, old) {
			delete(a, old)
		}
	}
	if connected < len(away) {
		return nil
	}
	for _, m := range away {
		if a[m]++; a[m] > absenceLooks {
			lost = append(lost, m)
		}
	}
	return lost
}

// absent is a driver that takes workers for lost.
type absent struct{ *Driver }

// watch takes workers for lost that are away for too long, until the driver is closed.
func (d absent) watch() {
	seen := absences{}
	tick := time.NewTicker(max(d.cfg.LostAfter/absenceLooks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.life.Done():
			return
		}
		for _, a := range seen.look(d.list()) {
			if err := d.lost(a); err != nil && d.life.Err() == nil {
				d.log.Error("a lost worker keeps its sandboxes; trying again", "worker", a.member.record.ID, "error", err) // the id does not change
			}
		}
	}
}

// list returns the workers that are away, and how many are connected.
func (d absent) list() (away []absence, connected int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.members {
		switch {
		case m.connected:
			connected++
		case !m.gone():
			away = append(away, absence{m, m.link})
		}
	}
	return away, connected
}

// errBack is the error for a worker that has come back.
var errBack = errors.New("the worker is back")

// lost takes a worker for lost, unless it is back: its boxes are lost.
func (d absent) lost(a absence) error {
	id := a.member.record.ID // does not change
	if worker.Supplied(id) {
		d.mu.Lock()
		back, why := a.back(), whyLost(a.member)
		if !back {
			supplied(d).markLost(a.member, Loss{Reason: why})
		}
		d.mu.Unlock()
		if !back {
			supplied(d).closeLost(a.member, why)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(d.life, saveTimeout)
	defer cancel()
	m, w, err := d.change(ctx, id, worker.Lost, func(*member) error {
		if a.back() {
			return errBack
		}
		return nil
	})
	if errors.Is(err, errBack) {
		return nil
	}
	if err != nil {
		return err
	}
	d.log.Warn("a worker was away for too long and is taken for lost: its sandboxes end, or go back to their last checkpoint", "worker", w.Name, "lost_after", d.cfg.LostAfter.String(), "boxes", w.Boxes)
	return d.giveUp(m, w.Connected)
}

// whyLost says why the boxes of a worker are lost that was away for too long.
//
// Preconditions: the mu of the board is held.
func whyLost(m *member) string {
	return fmt.Sprintf("the worker %s of the sandbox is lost: the server had no connection to it for longer than worker.lost_after", m.record.Name)
}

// readmit forgets a worker that was lost and has no boxes any more: it joins as a new one. It reports whether that succeeded; it does with workers
// that were removed, which stay away.
func (d absent) readmit(m *member) bool {
	m.saving.Lock()
	defer m.saving.Unlock()
	d.mu.Lock()
	lost := m.record.Status == worker.Lost
	d.mu.Unlock()
	if !lost {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	forget := func() error { return d.cfg.Rows.Delete(ctx, m.record.ID) } // the id does not change
	again := homes(d).returning(m)
	if again != nil {
		forget = func() error { return d.cfg.Rows.Save(ctx, again.record) }
	}
	if err := forget(); err != nil {
		d.log.Error("a lost worker that is back does not join yet", "worker", m.record.ID, "error", err)
		return false
	}
	m.forgotten = true
	d.mu.Lock()
	defer d.mu.Unlock()
	d.strike(m)
	if again != nil {
		d.enlist(again)
	}
	d.log.Info("a lost worker is back; its sandboxes were ended there", "worker", m.record.Name)
	return true
}
