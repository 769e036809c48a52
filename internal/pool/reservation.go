package pool

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Reservation is a warm box that a create will use if it is recorded. Exactly one of Commit
// and Cancel must be called.
type Reservation[T any] struct {
	pool      *Pool[T]
	box       *Box[T]
	workspace sandbox.WorkspaceID
}

// Reserve takes the oldest box of a kind out of the pool for a create in a workspace, or else a blank box. It returns nil if there is
// none, if the image of the kind is still to be made, if the last boxes are for other workspaces, or if ctx ends. If all boxes are reserved, it waits for the outcome,
// because a create that is refused must not cost an accepted create its box. Holders of reservations must therefore not
// wait for anything that waits in Reserve.
func (p *Pool[T]) Reserve(ctx context.Context, w sandbox.WorkspaceID, k Kind) *Reservation[T] {
	return p.reserve(ctx, w, k, true)
}

// ReserveOwn is Reserve without blank boxes.
func (p *Pool[T]) ReserveOwn(ctx context.Context, w sandbox.WorkspaceID, k Kind) *Reservation[T] {
	return p.reserve(ctx, w, k, false)
}

func (p *Pool[T]) reserve(ctx context.Context, w sandbox.WorkspaceID, k Kind, blank bool) *Reservation[T] {
	for {
		decided := p.decided.Wait()
		r, wait := p.tryReserve(w, k, blank)
		if !wait {
			return r
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return nil
		}
	}
}

// tryReserve is Reserve without waiting; wait reports whether a box may come back.
func (p *Pool[T]) tryReserve(w sandbox.WorkspaceID, k Kind, blank bool) (r *Reservation[T], wait bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.Digest == "" {
		return nil, false
	}
	own, now := k, time.Now()
	left := len(p.ready[k]) + len(p.ready[k.Blank()])
	if len(p.ready[k]) == 0 && blank {
		k = k.Blank()
	}
	list := p.ready[k]
	if len(list) == 0 {
		return nil, p.reserved[own]+p.reserved[k] > 0
	}
	if p.demand.leaves(w, left, p.size, now) {
		return nil, false
	}
	p.demand.took(w, 1, now)
	b := list[0]
	p.ready[k] = list[1:]
	p.reserved[k]++
	b.reserved = true
	return &Reservation[T]{pool: p, box: b, workspace: w}, false
}

// Box returns the reserved box.
func (r *Reservation[T]) Box() *Box[T] { return r.box }

// Commit keeps the box out of the pool: a sandbox has it now.
func (r *Reservation[T]) Commit() {
	r.pool.mu.Lock()
	r.decide()
	r.pool.mu.Unlock()
	r.pool.decided.Send()
}

// Cancel puts the box back where it was. It reports false when that cannot be, because the box
// ended meanwhile or the pool is closed: then the caller destroys the box.
func (r *Reservation[T]) Cancel() bool {
	p, b := r.pool, r.box
	p.mu.Lock()
	r.decide()
	p.demand.took(r.workspace, -1, time.Now())
	back := !p.closed && !b.ended
	if back {
		list := p.ready[b.Kind]
		i, _ := slices.BinarySearchFunc(list, b, func(o, b *Box[T]) int { return o.Started.Compare(b.Started) })
		p.ready[b.Kind] = slices.Insert(slices.Clone(list), i, b)
	}
	p.mu.Unlock()
	p.decided.Send()
	return back
}

// decide ends the reservation.
//
// Preconditions: pool.mu is held.
func (r *Reservation[T]) decide() {
	k := r.box.Kind
	r.box.reserved = false
	if r.pool.reserved[k]--; r.pool.reserved[k] == 0 {
		delete(r.pool.reserved, k)
	}
}
