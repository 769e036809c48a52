// Package pool keeps warm boxes, which are started before anybody asks for them, and decides
// how many of which kind there shall be. It neither makes nor destroys a box: its user does.
//
// A create takes a box in two phases: [Pool.Reserve] before it is recorded, then
// [Reservation.Commit] when it was, or [Reservation.Cancel].
package pool

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxAge is the age at which an unused box is replaced.
const maxAge = time.Hour

// Kind tells warm boxes apart: a sandbox can use a box of its own kind, or a blank box with its
// resources.
type Kind struct {
	Digest    string // of the root filesystem; "" for a create whose image is still to be made, and for blank boxes
	Resources sandbox.Resources
}

// Blank returns the kind of the blank boxes that a sandbox of kind k can use: they get their root
// filesystem when they are taken.
func (k Kind) Blank() Kind { return Kind{Resources: k.Resources} }

// IsBlank reports whether k is the kind of blank boxes.
func (k Kind) IsBlank() bool { return k.Digest == "" }

// before is an arbitrary order, which makes plans reproducible.
func (k Kind) before(o Kind) bool {
	return cmp.Or(cmp.Compare(k.Digest, o.Digest), cmp.Compare(k.Resources.MemoryBytes, o.Resources.MemoryBytes),
		cmp.Compare(k.Resources.CPUMilli, o.Resources.CPUMilli), cmp.Compare(k.Resources.DiskBytes, o.Resources.DiskBytes)) < 0
}

// Box is a started box that belongs to no sandbox yet.
type Box[T any] struct {
	Kind Kind
	// Started is the time at which the box became ready.
	Started time.Time
	// Value is whatever the user of the pool needs for the box.
	Value T

	reserved bool // guarded by Pool.mu
	ended    bool // the box ended while it was reserved; guarded by Pool.mu
}

// Pool holds warm boxes. Each image has about as many as there were recent creates of it, the images in
// demand sharing what there is in proportion.
// The other boxes, at least one of several, are blank and shared out in the same way among resources. A
// pool without blank boxes shares all boxes out among the images. Workspaces with recent creates have equal parts in the plan, and a
// workspace that has taken its part leaves the last boxes to the others. Safe for concurrent use.
type Pool[T any] struct {
	size    int
	blank   bool // whether there are blank boxes
	wake    chan struct{}
	decided broadcast.Broadcast // a reservation was committed or cancelled

	mu       sync.Mutex
	closed   bool               // guarded by mu
	ready    map[Kind][]*Box[T] // guarded by mu; the oldest first
	reserved map[Kind]int       // guarded by mu; reservations neither committed nor cancelled
	wanted   map[Kind]int       // guarded by mu; boxes that there shall be of each kind
	images   weights            // guarded by mu; the demand for images at the last Plan
	demand   demand             // guarded by mu
	created  time.Time          // guarded by mu; time of the last Created
}

// New returns a pool that shall hold size boxes; with 0 it stays empty. With blank, some may be blank.
func New[T any](size int, blank bool) *Pool[T] {
	return &Pool[T]{
		size: size, blank: blank, wake: make(chan struct{}, 1),
		ready: map[Kind][]*Box[T]{}, reserved: map[Kind]int{}, wanted: map[Kind]int{}, demand: newDemand(),
	}
}

// Size returns the number of boxes that the pool shall hold.
func (p *Pool[T]) Size() int { return p.size }

// Wake returns a channel that receives after creates, when boxes may be missing.
func (p *Pool[T]) Wake() <-chan struct{} { return p.wake }

// Add puts a box into the pool. It reports false when the pool is closed: then the caller
// destroys the box.
func (p *Pool[T]) Add(b *Box[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ready[b.Kind] = append(p.ready[b.Kind], b)
	}
	return !p.closed
}

// Remove removes a box that has ended from the pool. It reports whether the caller must destroy the
// box: not a reserved box, whose reservation decides that, nor a box that is no longer in the pool.
func (p *Pool[T]) Remove(b *Box[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.reserved {
		b.ended = true
		return false
	}
	i := slices.Index(p.ready[b.Kind], b)
	if i >= 0 {
		p.ready[b.Kind] = slices.Delete(p.ready[b.Kind], i, i+1)
	}
	return i >= 0
}

// Take takes boxes out of the pool: all of them or, if some are reserved or no longer in the pool, none. It reports whether the caller must destroy
// the boxes.
func (p *Pool[T]) Take(boxes []*Box[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range boxes {
		if !slices.Contains(p.ready[b.Kind], b) {
			return false
		}
	}
	for _, b := range boxes {
		p.ready[b.Kind] = slices.DeleteFunc(slices.Clone(p.ready[b.Kind]), func(other *Box[T]) bool { return other == b })
	}
	return true
}

// Candidates returns the ready boxes in the order in which they are given up when the host needs their space: first the oldest box of the kind with the most
// boxes, so that each kind keeps its last box as long as possible.
func (p *Pool[T]) Candidates() []*Box[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := map[*Box[T]]int{} // younger boxes of the kind
	var all []*Box[T]
	for _, list := range p.ready {
		for i, b := range list {
			after[b] = len(list) - i
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b *Box[T]) int { return cmp.Or(cmp.Compare(after[b], after[a]), a.Started.Compare(b.Started)) })
	return all
}

// Created counts a create of a kind in a workspace.
func (p *Pool[T]) Created(w sandbox.WorkspaceID, k Kind) {
	if p.size == 0 || k.Digest == "" {
		return
	}
	now := time.Now()
	p.mu.Lock()
	p.demand.add(w, k, now)
	p.created = now
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Plan decides how many boxes of each kind there shall be. Each standing kind counts as one create that is
// always recent.
func (p *Pool[T]) Plan(now time.Time, standing ...Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	images, blanks := p.demand.shares(p.size, now)
	for _, k := range standing {
		if k.IsBlank() {
			blanks[k]++
		} else {
			images[k]++
		}
	}
	p.images = images
	old := p.wanted
	p.wanted = map[Kind]int{}
	if !p.blank {
		images.share(p.size, p.wanted, nil)
		return
	}
	left := p.size
	if left > 1 {
		left--
	}
	left = p.size - images.share(left, p.wanted, func(k Kind, n int, creates float64) bool {
		// A weight that varies around a number must not replace boxes.
		if n < old[k] && p.demand.has(k) {
			creates++
		}
		return float64(n) < creates
	})
	blanks.share(left, p.wanted, nil)
}

// Skip lowers the plan for a kind to the boxes that it has, until the next Plan.
func (p *Pool[T]) Skip(k Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted[k] = len(p.ready[k]) + p.reserved[k]
}

// Drop stops keeping boxes of a kind until there are creates of it again.
func (p *Pool[T]) Drop(k Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demand.drop(k)
	delete(p.wanted, k)
}

// Planned returns the kinds of which there shall be boxes.
func (p *Pool[T]) Planned() []Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Kind, 0, len(p.wanted))
	for k := range p.wanted {
		list = append(list, k)
	}
	return list
}

// Likely returns the digest of the image that a blank box of a kind will probably get; "" if none is in demand.
func (p *Pool[T]) Likely(blank Kind) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best Kind
	most := 0.0
	for k, n := range p.images {
		if k.Blank() == blank && (n > most || n == most && k.before(best)) {
			best, most = k, n
		}
	}
	return best.Digest
}

// Surplus removes the boxes beyond the plan and the boxes that are too old. The caller destroys
// them.
func (p *Pool[T]) Surplus(now time.Time) []*Box[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*Box[T]
	for k, list := range p.ready {
		n := max(0, len(list)-p.wanted[k])
		for n < len(list) && now.Sub(list[n].Started) > maxAge {
			n++
		}
		out = append(out, list[:n]...)
		if p.ready[k] = list[n:]; n == len(list) {
			delete(p.ready, k)
		}
	}
	return out
}

// Missing returns a kind of which there are fewer boxes than planned. A reserved box counts
// as there: its reservation may be cancelled.
func (p *Pool[T]) Missing() (Kind, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, n := range p.wanted {
		if len(p.ready[k])+p.reserved[k] < n && !p.closed {
			return k, true
		}
	}
	return Kind{}, false
}

// SinceCreate returns the time since the last create.
func (p *Pool[T]) SinceCreate() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.created)
}

// Close takes all boxes out, which the caller destroys; Add and Cancel put none back from
// then on.
func (p *Pool[T]) Close() []*Box[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var all []*Box[T]
	for _, list := range p.ready {
		all = append(all, list...)
	}
	clear(p.ready)
	return all
}

// Boxes returns the ready boxes.
func (p *Pool[T]) Boxes() []*Box[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(p.ready))...)
}

// Ready returns the number of ready boxes of each kind.
func (p *Pool[T]) Ready() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[Kind]int, len(p.ready))
	for k, list := range p.ready {
		counts[k] = len(list)
	}
	return counts
}

// Len returns the number of ready boxes, and how many of them are blank.
func (p *Pool[T]) Len() (all, blank int) {
	for k, n := range p.Ready() {
		all += n
		if k.IsBlank() {
			blank += n
		}
	}
	return all, blank
}
