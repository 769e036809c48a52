package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

var (
	errClosed = sandbox.Errorf(sandbox.Unavailable, "the server is shutting down")
	// errLost is the error of calls for a box whose worker was removed.
	errLost = sandbox.Errorf(sandbox.Unavailable, "the worker of the sandbox was removed")
	// errOOM is errLost for a box whose worker has ended for lack of memory.
	errOOM = fmt.Errorf("for lack of memory: %w", errLost)
)

// board has the workers and the places of boxes on them. It makes no calls.
type board struct {
	patience time.Duration
	most     func(memoryBytes int64) int64 // see [Config].Limit
	division

	mu     sync.Mutex
	closed bool                  // guarded by mu
	caps   *driver.Capabilities  // guarded by mu; nil before the first connection
	failed time.Time             // guarded by mu; when it was logged last that a worker fails
	late   bool                  // guarded by mu; any known worker may be the first: [Driver.Ready] waited long enough for the others
	roster                       // guarded by mu
	places map[sandbox.ID]*place // guarded by mu; boxes, and boxes that are going to be made

	expected map[string]*expectation // guarded by mu; supplied workers that are going to connect, by their ids
	settled  bool                    // guarded by mu; all boxes were recovered, so a supplied worker without a box is of no use
	vacant   []*member               // guarded by mu; supplied workers that are to be removed
	emptied  broadcast.Broadcast     // vacant has another worker
}

// member is a worker. Its fields but boxes are guarded by the mu of the board.
type member struct {
	boxes     *remote.Driver
	record    worker.Record
	saving    sync.Mutex // held while its record is changed in the database; before mu
	retiring  bool       // its removal or drain is being recorded: it gets no box
	leaves    int        // calls of Leave in progress
	left      int        // the number of the connection with which it has left; 0 for none
	cleared   bool       // it was removed, and has no boxes any more
	awaited   bool       // it was recorded and has never connected, so it has no boxes
	expelled  time.Time  // when it connected last after it was removed
	slow      bool       // a box was not recovered in time over this connection
	link      int        // number of its last connection
	connected bool       // its last connection is in use
	since     time.Time  // when the last connection ended; zero before there was one
	lost      Loss       // how it ended by itself; zero: it did not
	forgotten bool       // its record was removed; guarded by saving
	class     class      // of its boxes, if it is supplied for several
	boxesMax  int        // how many boxes a supplied worker may have; 0 is not known: it gets no other
	placed    int        // boxes on it, or going to be made
	promised  int64      // memory of these boxes
}

// gone reports whether a worker was removed or lost: it has no boxes any more, whatever runs on it.
//
// Preconditions: the mu of the board is held.
func (m *member) gone() bool { return m.record.Status == worker.Gone || m.record.Status == worker.Lost }

// place is where a box is, or is going to be made. Its fields are guarded by the mu of the board.
type place struct {
	member *member
	memory int64
	holds  int  // stages, and calls that make the box
	box    bool // the box may exist
	made   int  // how often the box was made or recovered
}

// away returns an error if a worker has been away for longer than calls wait for it.
//
// Preconditions: b.mu is held.
func (b *board) away(m *member) error {
	switch {
	case m.record.Status == worker.Lost:
		return sandbox.Wrap(sandbox.Unavailable, errLost, "%s", whyLost(m))
	case m.gone() && m.lost.OOM:
		return sandbox.Wrap(sandbox.Unavailable, errOOM, "%s", m.lost.Reason)
	case m.gone() && m.lost.Reason != "":
		return sandbox.Wrap(sandbox.Unavailable, errLost, "%s", m.lost.Reason)
	case m.gone():
		return errLost
	case m.connected || time.Since(m.since) < b.patience:
		return nil
	}
	return sandbox.Wrap(sandbox.Unavailable, driver.ErrAway, "the worker %s is away; its sandboxes are available when it is back", m.record.Name)
}

// hold returns the place of a box until release is called. A box without a place gets one on the worker that is best for it, except some;
// then the place is fresh. Errors: Unavailable.
func (b *board) hold(spec driver.Spec, except map[*member]bool) (p *place, release func(), fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, false, errClosed
	}
	p = b.places[spec.ID]
	if p != nil && p.member.gone() { // the box is lost
		p.box = false
		b.removePlace(spec.ID, p)
		p = nil
	}
	if fresh = p == nil; fresh {
		m, err := b.best(spec, except)
		if err != nil {
			return nil, nil, false, err
		}
		p = b.add(spec.ID, m, spec.Resources.MemoryBytes)
	}
	return p, b.holdPlace(spec.ID, p), fresh, nil
}

// holdPlace keeps a place until release is called.
//
// Preconditions: b.mu is held.
func (b *board) holdPlace(id sandbox.ID, p *place) (release func()) {
	p.holds++
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.holds--
		b.dropUnused(id, p)
	})
}

// add gives a box a place.
//
// Preconditions: b.mu is held, and the box has none.
func (b *board) add(id sandbox.ID, m *member, memory int64) *place {
	p := &place{member: m, memory: memory}
	b.places[id] = p
	m.placed++
	m.promised += memory
	return p
}

// dropUnused removes a place that has no box and is not held.
//
// Preconditions: b.mu is held.
func (b *board) dropUnused(id sandbox.ID, p *place) {
	if p.box || p.holds > 0 || b.places[id] != p {
		return
	}
	b.removePlace(id, p)
}

// removePlace removes the place of a box.
//
// Preconditions: b.mu is held.
func (b *board) removePlace(id sandbox.ID, p *place) {
	delete(b.places, id)
	p.member.placed--
	p.member.promised -= p.memory
	b.vacateUnused(p.member)
}

// best returns the worker for a new box: the worker with the most memory that is promised to no box, among the workers for new boxes on
// which the box fits. Connected workers come before workers whose connection broke a moment ago. Errors: Unavailable.
//
// Preconditions: b.mu is held.
func (b *board) best(spec driver.Spec, except map[*member]bool) (*member, error) {
	var best *member
	full, draining := false, false
	for _, m := range b.members {
		draining = draining || m.record.Status == worker.Draining && m.connected
		switch {
		case except[m] || !b.takes(m) || b.apart(m.record.Home, spec.ID):
		case !b.fits(m, spec):
			full = true
		case best == nil || better(m, best):
			best = m
		}
	}
	switch {
	case best != nil:
		return best, nil
	case full:
		return nil, sandbox.Wrap(sandbox.Unavailable, driver.ErrFull, "no worker has %s of memory to promise; try again when sandboxes have ended, or add a worker", sandbox.ShowBytes(spec.Resources.MemoryBytes))
	case draining:
		return nil, sandbox.Wrap(sandbox.Unavailable, driver.ErrAway, "all workers that are connected are being drained; end that for a worker, or add a worker")
	}
	return nil, sandbox.Wrap(sandbox.Unavailable, driver.ErrAway, "no worker for new sandboxes is connected")
}

// takes reports whether a worker gets new boxes. A supplied worker has the box for which it was made, and gets no other.
//
// Preconditions: b.mu is held.
func (b *board) takes(m *member) bool { return b.inUse(m) && !worker.Supplied(m.record.ID) }

// inUse reports whether new sandboxes may run on a worker.
//
// Preconditions: b.mu is held.
func (b *board) inUse(m *member) bool {
	return m.record.Status == worker.Ready && !m.retiring && !m.leaving() && b.away(m) == nil
}

// fits reports whether a worker has the memory for a new box.
//
// Preconditions: b.mu is held.
func (b *board) fits(m *member, spec driver.Spec) bool {
	most := b.limit(m)
	return most == 0 || m.promised+spec.Resources.MemoryBytes <= most
}

// candidates returns the workers on which best may place a box now, the best first.
func (b *board) candidates(spec driver.Spec, except map[*member]bool) (list []*member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if !except[m] && b.takes(m) && b.fits(m, spec) && !b.apart(m.record.Home, spec.ID) {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, order)
	return list
}

// limit returns how much memory the boxes of a worker may have together; 0 is any number.
func (b *board) limit(m *member) int64 {
	if b.most == nil || m.record.MemoryBytes == 0 {
		return 0
	}
	return b.most(m.record.MemoryBytes)
}

// better reports whether a new box is better placed on a worker than on another.
func better(m, than *member) bool {
	free, other := m.record.MemoryBytes-m.promised, than.record.MemoryBytes-than.promised
	switch {
	case m.connected != than.connected:
		return m.connected
	case free != other:
		return free > other
	}
	return m.placed < than.placed
}

// order compares workers: the better for a new box is first.
func order(a, b *member) int {
	switch {
	case better(a, b):
		return -1
	case better(b, a):
		return 1
	}
	return 0
}

// isOnly reports whether there is no other worker.
func (b *board) isOnly(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.hasOthers(m)
}

// refused returns the error for a checkpoint of the box of spec that no asked worker can restore.
func (b *board) refused(refusal error, spec driver.Spec, asked map[*member]bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sandbox.CodeOf(refusal) == sandbox.NotFound {
		return refusal
	}
	name, causes := "", []error{driver.ErrAway, refusal}
	for _, m := range b.members {
		if m.record.Status == worker.Gone || asked[m] || worker.Supplied(m.record.ID) {
			continue
		}
		name = cmp.Or(name, m.record.Name)
		if b.takes(m) && !b.fits(m, spec) {
			causes = append(causes, driver.ErrFull)
		}
	}
	if name == "" {
		return refusal
	}
	return sandbox.Wrap(sandbox.Unavailable, errors.Join(causes...), "no connected worker with space for the sandbox can restore its memory; the worker %s was not asked: it is away, full or being drained", name)
}

// reachable returns the workers that are not away.
func (b *board) reachable() (list []*member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		if b.away(m) == nil {
			list = append(list, m)
		}
	}
	return list
}

// count returns how many workers are connected, and the names of the workers that are away.
func (b *board) count() (connected int, away []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.members {
		switch {
		case m.connected:
			connected++
		case !m.gone() && !m.awaited:
			away = append(away, m.record.Name)
		}
	}
	return connected, away
}

// on returns the driver of the worker of a box. Errors: NotFound; Unavailable if the worker is away or was removed.
func (b *board) on(id sandbox.ID) (*remote.Driver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[id]
	if p == nil || !p.box {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
	}
	return p.member.boxes, b.away(p.member)
}

// Workers returns the workers that were not removed, the first that joined first.
func (b *board) Workers() []Worker {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Worker, 0, len(b.members))
	for _, m := range b.members {
		if m.record.Status != worker.Gone {
			list = append(list, b.shown(m))
		}
	}
	return list
}

// Worker returns a worker that was not removed by its name or id. Errors: NotFound.
func (b *board) Worker(ref string) (Worker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byRef(ref)
	if m == nil {
		return Worker{}, noWorker(ref)
	}
	return b.shown(m), nil
}

// Of returns the name of the worker of a box; "" if the box is not known.
func (b *board) Of(id sandbox.ID) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.places[id]; p != nil {
		return p.member.record.Name
	}
	return ""
}

// Check returns an error for a worker that may not join or connect. A worker that was removed or lost may connect until its boxes are destroyed,
// but not again at once: boxes that cannot be destroyed would keep the server busy.
// Errors: Conflict, with what to do.
func (b *board) Check(w worker.Identity) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.byID(w.ID)
	switch {
	case m == nil || m.record.Key == w.Key && (!m.gone() || m.mayClear()):
		return nil
	case m.gone():
		return errRemoved(m)
	}
	return sandbox.Errorf(sandbox.Conflict, "the worker %s has another key than before; if the first is gone with its sandboxes, remove it first", m.record.Name)
}

// mayClear reports whether the boxes on a worker that was removed or lost are to be destroyed over its next connection.
//
// Preconditions: the mu of the board is held.
func (m *member) mayClear() bool { return !m.cleared && time.Since(m.expelled) >= clearPause }

// errRemoved returns the error for the connection of a worker that was removed or lost.
//
// Preconditions: the mu of the board is held.
func errRemoved(m *member) error {
	if m.record.Status == worker.Lost {
		return sandbox.Errorf(sandbox.Conflict, "the worker %s was away for too long: its sandboxes were given up, and it joins again when they have ended on it", m.record.Name)
	}
	return sandbox.Errorf(sandbox.Conflict, "the worker %s was removed; to use its machine again, give it another state directory", m.record.Name)
}

// mayJoin returns an error unless a worker may be recorded. The known workers decide about the capabilities: they have sandboxes.
//
// Preconditions: b.mu is held.
func (b *board) mayJoin(w worker.Identity, caps driver.Capabilities) error {
	if err := b.mayBegin(w); err != nil {
		return err
	}
	return b.suits(caps)
}

// mayBegin is mayJoin before the capabilities of the worker are known.
//
// Preconditions: b.mu is held.
func (b *board) mayBegin(w worker.Identity) error {
	if err := b.errUnexpected(w.ID); err != nil {
		return err
	}
	if b.byID(w.ID) != nil {
		return sandbox.Errorf(sandbox.Unavailable, "the worker has joined over another connection at this moment; it tries again")
	}
	for _, m := range b.members {
		if b.caps == nil && !m.gone() && !m.awaited {
			return sandbox.Errorf(sandbox.Unavailable, "a new worker may join when one of the workers that the server knows is connected; it tries again")
		}
	}
	return nil
}

// suits returns an error if a worker cannot do what the others can.
//
// Preconditions: b.mu is held.
func (b *board) suits(caps driver.Capabilities) error {
	if b.closed {
		return errClosed
	}
	if b.caps != nil && features(*b.caps) != features(caps) {
		return errors.New("the worker cannot do what the other workers can, or can do more: its machine must have the same features")
	}
	return nil
}

// mayDecide returns an error for a worker that is recorded and would be the first, if its features have changed: it may have lost what the
// boxes of others need.
//
// Preconditions: b.mu is held.
func (b *board) mayDecide(m *member, caps driver.Capabilities) error {
	if b.caps != nil || b.late || m.record.Features == "" || m.record.Features == features(caps) || !b.hasOthers(m) {
		return nil
	}
	return sandbox.Errorf(sandbox.Unavailable, "the worker cannot do what it could before, or can do more, and waits until another worker is connected; it tries again")
}

// retire returns the record of a worker, which gets no new boxes until its change is recorded. Errors: NotFound if it was removed; of check.
func (b *board) retire(m *member, ref string, check func(*member) error) (worker.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.record.Status == worker.Gone {
		return worker.Record{}, noWorker(ref)
	}
	if err := check(m); err != nil {
		return worker.Record{}, err
	}
	m.retiring = true
	return m.record, nil
}

// TakesSandbox implements [driver.Placer].
func (b *board) TakesSandbox(id sandbox.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[id]
	return p != nil && b.inUse(p.member) && !b.apart(p.member.record.Home, id)
}

// Reach implements [driver.Reacher].
func (b *board) Reach(id sandbox.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[id]
	if p == nil || p.member.connected || p.member.gone() {
		return nil
	}
	return driver.ErrAway
}
