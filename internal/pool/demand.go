package pool

import (
	"math"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// demandHalfLife is the time after which a create counts half as much.
	demandHalfLife = 10 * time.Minute
	// demandMin is the demand from which on a kind gets boxes: the only create of its kind
	// must not cost another kind its box.
	demandMin = 1.5
	// demandKinds bounds the number of kinds whose demand is remembered, counted for each workspace.
	demandKinds = 256
	// activeMin is the number of recent creates from which on a workspace has a share in the pool.
	activeMin = 0.5
	// takenHalfLife is the time after which a box that a workspace took counts half as much. The pool makes many
	// boxes in that time.
	takenHalfLife = 10 * time.Second
)

// popularity is a number of creates, each counting less the longer ago it was.
type popularity struct {
	weight float64
	at     time.Time // the time at which the number was weight
}

func (p popularity) now(now time.Time, halfLife time.Duration) float64 {
	return p.weight * math.Exp2(-float64(now.Sub(p.at))/float64(halfLife))
}

// demand remembers the recent creates of each workspace, by kind, and the boxes that each took. It is not safe for
// concurrent use.
type demand struct {
	of    map[sandbox.WorkspaceID]map[Kind]popularity // no empty maps
	kinds int                                         // entries of all workspaces
	taken map[sandbox.WorkspaceID]popularity
}

func newDemand() demand {
	return demand{of: map[sandbox.WorkspaceID]map[Kind]popularity{}, taken: map[sandbox.WorkspaceID]popularity{}}
}

// add counts a create.
func (d *demand) add(w sandbox.WorkspaceID, k Kind, now time.Time) {
	if _, known := d.of[w][k]; !known {
		if d.kinds >= demandKinds {
			d.forgetLeast(now)
		}
		if d.of[w] == nil {
			d.of[w] = map[Kind]popularity{}
		}
		d.kinds++
	}
	d.of[w][k] = popularity{weight: d.of[w][k].now(now, demandHalfLife) + 1, at: now}
}

// forgetLeast forgets the kind with the least demand of the workspace with the most kinds.
func (d *demand) forgetLeast(now time.Time) {
	var most sandbox.WorkspaceID
	for w, kinds := range d.of {
		if n := len(d.of[most]); len(kinds) > n || len(kinds) == n && w < most {
			most = w
		}
	}
	var least Kind
	weight := math.Inf(1)
	for k, p := range d.of[most] {
		if p := p.now(now, demandHalfLife); p < weight {
			least, weight = k, p
		}
	}
	d.forget(most, least)
}

// forget forgets the creates of a kind in a workspace.
func (d *demand) forget(w sandbox.WorkspaceID, k Kind) {
	if _, known := d.of[w][k]; known {
		d.kinds--
		delete(d.of[w], k)
	}
	if len(d.of[w]) == 0 {
		delete(d.of, w)
	}
}

// drop forgets all creates of a kind.
func (d *demand) drop(k Kind) {
	for w := range d.of {
		d.forget(w, k)
	}
}

// has reports whether there was a recent create of a kind.
func (d *demand) has(k Kind) bool {
	for _, kinds := range d.of {
		if _, ok := kinds[k]; ok {
			return true
		}
	}
	return false
}

// creates returns the number of recent creates of a workspace.
func (d *demand) creates(w sandbox.WorkspaceID, now time.Time) (n float64) {
	for _, p := range d.of[w] {
		n += p.now(now, demandHalfLife)
	}
	return n
}

// active returns the number of workspaces with recent creates, without the workspace given.
func (d *demand) active(without sandbox.WorkspaceID, now time.Time) (n int) {
	for w := range d.of {
		if w != without && d.creates(w, now) >= activeMin {
			n++
		}
	}
	return n
}

// shares returns the demand for each kind that has enough of it, and the demand for blank boxes. Where several
// workspaces share size boxes, each counts for at most its part of them, however many creates it makes. It
// forgets the kinds with next to no demand.
func (d *demand) shares(size int, now time.Time) (images, blanks weights) {
	images, blanks = weights{}, weights{}
	all, allBlanks := weights{}, weights{}
	active := d.active("", now)
	for w, kinds := range d.of {
		scale := 1.0
		if active > 1 {
			scale = min(1, max(demandMin, float64(size)/float64(active))/d.creates(w, now))
		}
		for k, p := range kinds {
			n := p.now(now, demandHalfLife)
			all[k] += n
			images[k] += n * scale
			allBlanks[k.Blank()] += n // of all images, however rare each is
			blanks[k.Blank()] += n * scale
			if n < demandMin/8 {
				d.forget(w, k)
			}
		}
	}
	images.keep(all)
	blanks.keep(allBlanks)
	return images, blanks
}

// took counts boxes that a workspace takes from the pool; a negative number puts boxes back.
func (d *demand) took(w sandbox.WorkspaceID, n int, now time.Time) {
	weight := max(0, d.taken[w].now(now, takenHalfLife)+float64(n))
	for w, p := range d.taken {
		if p.now(now, takenHalfLife) < 1.0/8 {
			delete(d.taken, w)
		}
	}
	if weight > 0 {
		d.taken[w] = popularity{weight: weight, at: now}
	}
}

// leaves reports whether a workspace leaves the last boxes, left in number, of a pool of the given size to others: it has taken its
// part of the pool, and for each of the other workspaces with recent creates, up to half of the pool, a box remains.
func (d *demand) leaves(w sandbox.WorkspaceID, left, size int, now time.Time) bool {
	others := d.active(w, now)
	return left <= min(others, size/2) && d.taken[w].now(now, takenHalfLife) >= float64(size)/float64(others+1)
}

// weights are numbers of recent creates.
type weights map[Kind]float64

// keep deletes the kinds that have too few creates in all.
func (w weights) keep(all weights) {
	for k := range w {
		if all[k] < demandMin {
			delete(w, k)
		}
	}
}

// share adds up to n boxes to wanted, one at a time to the kind with the most creates per box, and returns how many it
// added. If more is set, a kind gets another box only while more returns true.
func (w weights) share(n int, wanted map[Kind]int, more func(k Kind, boxes int, creates float64) bool) int {
	for i := range n {
		var best Kind
		most := 0.0
		for k, creates := range w {
			if more != nil && !more(k, wanted[k], creates) {
				continue
			}
			each := creates / float64(wanted[k]+1)
			if each > most || each == most && k.before(best) {
				best, most = k, each
			}
		}
		if most == 0 {
			return i
		}
		wanted[best]++
	}
	return n
}

// Demand remembers recent creates for others than the pool. It is not safe for concurrent use.
type Demand struct{ demand demand }

// NewDemand returns a demand without creates.
func NewDemand() *Demand { return &Demand{newDemand()} }

// Add counts a create of a workspace.
func (d *Demand) Add(w sandbox.WorkspaceID, k Kind, now time.Time) { d.demand.add(w, k, now) }

// Images returns the number of recent creates of each kind that has enough of them. Where several workspaces share that many
// places, each counts for at most its part of them.
func (d *Demand) Images(places int, now time.Time) map[Kind]float64 {
	images, _ := d.demand.shares(places, now)
	return images
}
