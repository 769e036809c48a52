package fleet

import (
	"cmp"
	"context"
	"slices"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// option is a worker that has space for a box when other boxes are destroyed.
type option struct {
	member *member
	boxes  []sandbox.ID
	memory int64 // of these
}

// MakeSpace implements [driver.Placer].
func (d *Driver) MakeSpace(ctx context.Context, spec driver.Spec, checkpoint string, candidates []sandbox.ID) (boxes []sandbox.ID, ok bool) {
	options := d.options(spec, candidates)
	if len(options) == 0 {
		return nil, false
	}
	if checkpoint == "" || d.isOnly(options[0].member) {
		return options[0].boxes, true
	}
	list := make([]*member, len(options))
	for i, o := range options {
		list[i] = o.member
	}
	asked := newPoll(list, 0, func(m *member) error { return m.canRestore(ctx, checkpoint) })
	for asked.goesOn() {
		asked.round()
		if i := slices.IndexFunc(options, func(o option) bool { return asked.agreed[o.member] }); i >= 0 {
			return options[i].boxes, true
		}
	}
	return nil, false
}

// options returns the workers that have space for the box of spec, or get it when some of candidates are destroyed, the worker that loses the least memory in
// boxes first; none if the box has a place.
func (b *board) options(spec driver.Spec, candidates []sandbox.ID) (list []option) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.places[spec.ID] != nil {
		return nil
	}
	for _, m := range b.members {
		switch {
		case !b.takes(m):
		case b.fits(m, spec):
			list = append(list, option{member: m})
		default:
			if o := b.option(m, m.promised+spec.Resources.MemoryBytes-b.limit(m), candidates); o.member != nil {
				list = append(list, o)
			}
		}
	}
	slices.SortStableFunc(list, func(x, y option) int { return cmp.Or(cmp.Compare(x.memory, y.memory), order(x.member, y.member)) })
	return list
}

// option chooses boxes of a worker out of candidates that have the memory needed together, and no box that is not necessary for that. Without enough, it is zero.
//
// Preconditions: b.mu is held.
func (b *board) option(m *member, needed int64, candidates []sandbox.ID) option {
	o := option{member: m}
	for _, id := range candidates {
		if p := b.places[id]; p != nil && p.member == m && p.box && p.holds == 0 && o.memory < needed {
			o.boxes = append(o.boxes, id)
			o.memory += p.memory
		}
	}
	if o.memory < needed {
		return option{}
	}
	o.boxes = slices.DeleteFunc(o.boxes, func(id sandbox.ID) bool {
		unnecessary := o.memory-b.places[id].memory >= needed
		if unnecessary {
			o.memory -= b.places[id].memory
		}
		return unnecessary
	})
	return o
}
