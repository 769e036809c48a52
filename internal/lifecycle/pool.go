package lifecycle

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// poolInterval is how often it is decided anew what the pool holds.
	poolInterval = 5 * time.Second
	// poolPause is how long after a create nothing is made for the pool, so that the
	// new sandbox's first commands have the host for themselves; poolPatience is for
	// how long creates may put that off.
	poolPause    = 100 * time.Millisecond
	poolPatience = time.Second
	// demandHalfLife is after how long a create counts half as much.
	demandHalfLife = 10 * time.Minute
	// demandMin is what must have been asked for before boxes are kept for it: one
	// create that stays the only one of its kind must not cost another kind its box.
	demandMin = 1.5
	// demandKinds bounds how many kinds are remembered.
	demandKinds = 256
	// spareMaxAge is after how long a box that nobody took is replaced.
	spareMaxAge = time.Hour
)

// template is what tells the boxes of the pool apart: a sandbox can have a box
// when both are of the same template.
type template struct {
	digest    string // of the root filesystem
	resources sandbox.Resources
}

// before is an order without a meaning.
func (t template) before(o template) bool {
	return cmp.Or(cmp.Compare(t.digest, o.digest), cmp.Compare(t.resources.MemoryBytes, o.resources.MemoryBytes),
		cmp.Compare(t.resources.CPUMilli, o.resources.CPUMilli), cmp.Compare(t.resources.DiskBytes, o.resources.DiskBytes)) < 0
}

// spare is a started box whose agent answers and which belongs to no sandbox.
// Nothing was ever run in it but its image's "true". It is in the index of boxes without a view, so
// that nobody can find it and the sweep leaves it alone; it has no row, so that
// the next server's sweep destroys it.
type spare struct {
	box    *box
	kind   template
	handle driver.Handle
	born   time.Time
	stop   func() // ends its watcher
}

// pool holds the boxes that are ready before anybody asks for them. They are
// shared out among the templates in proportion to recent creates; without any,
// all are of the default image with the default resources.
type pool struct {
	size int           // how many boxes there shall be; 0 for no pool
	wake chan struct{} // tells the loop that a box was taken

	mu      sync.Mutex
	closed  bool                    // guarded by mu
	ready   map[template][]*spare   // guarded by mu; the oldest first
	wanted  map[template]int        // guarded by mu; how many there shall be of each
	demand  map[template]popularity // guarded by mu
	created time.Time               // guarded by mu; when a sandbox was last asked for
}

// popularity is a number of creates, each counting less the longer ago it was.
type popularity struct {
	weight float64
	at     time.Time // when it was that
}

func (d popularity) now(now time.Time) float64 {
	return d.weight * math.Exp2(-float64(now.Sub(d.at))/float64(demandHalfLife))
}

func newPool(size int) *pool {
	return &pool{
		size: size, wake: make(chan struct{}, 1),
		ready: map[template][]*spare{}, wanted: map[template]int{}, demand: map[template]popularity{},
	}
}

// take takes a box of the pool, if there is one of that template.
func (p *pool) take(t template) *spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.ready[t] // none for an image that is still to be made
	if len(list) == 0 {
		return nil
	}
	p.ready[t] = list[1:]
	return list[0]
}

// add puts a box into the pool, and reports false when the pool is closed.
func (p *pool) add(sp *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ready[sp.kind] = append(p.ready[sp.kind], sp)
	}
	return !p.closed
}

// remove takes a certain box out of the pool, and reports whether it was there.
func (p *pool) remove(sp *spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready[sp.kind], sp)
	if i >= 0 {
		p.ready[sp.kind] = slices.Delete(p.ready[sp.kind], i, i+1)
	}
	return i >= 0
}

// asked notes that a sandbox of a template was made.
func (p *pool) asked(t template) {
	if p.size == 0 || t.digest == "" { // an image that is still to be made
		return
	}
	now := time.Now()
	p.mu.Lock()
	if _, known := p.demand[t]; !known && len(p.demand) >= demandKinds {
		p.forgetLeast(now)
	}
	p.demand[t] = popularity{weight: p.demand[t].now(now) + 1, at: now}
	p.created = now
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// forgetLeast makes room for another template. p.mu is held.
func (p *pool) forgetLeast(now time.Time) {
	var least template
	weight := math.Inf(1)
	for t, d := range p.demand {
		if w := d.now(now); w < weight {
			least, weight = t, w
		}
	}
	delete(p.demand, least)
}

// share decides how many boxes of each template there shall be: one after the
// other goes to the template with the most creates for each of its boxes. The
// standing one, unless nil, counts as one create that is always recent.
func (p *pool) share(now time.Time, standing *template) {
	p.mu.Lock()
	defer p.mu.Unlock()
	weights := map[template]float64{}
	for t, d := range p.demand {
		if w := d.now(now); w >= demandMin {
			weights[t] = w
		} else if w < demandMin/8 {
			delete(p.demand, t)
		}
	}
	if standing != nil {
		weights[*standing]++
	}
	p.wanted = map[template]int{}
	for range p.size {
		var best template
		most := 0.0
		for t, w := range weights {
			w /= float64(p.wanted[t] + 1)
			if w > most || w == most && t.before(best) {
				best, most = t, w
			}
		}
		if most == 0 {
			return
		}
		p.wanted[best]++
	}
}

// forget stops keeping boxes of a template until it is asked for again.
func (p *pool) forget(t template) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.demand, t)
	delete(p.wanted, t)
}

// kinds returns the templates of which there shall be boxes.
func (p *pool) kinds() []template {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]template, 0, len(p.wanted))
	for t := range p.wanted {
		list = append(list, t)
	}
	return list
}

// surplus takes out what there is too much of, and what is too old.
func (p *pool) surplus(now time.Time) []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*spare
	for t, list := range p.ready {
		n := max(0, len(list)-p.wanted[t])
		for n < len(list) && now.Sub(list[n].born) > spareMaxAge {
			n++
		}
		out = append(out, list[:n]...)
		if p.ready[t] = list[n:]; n == len(list) {
			delete(p.ready, t)
		}
	}
	return out
}

// missing returns a template of which there are not enough boxes.
func (p *pool) missing() (template, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for t, n := range p.wanted {
		if len(p.ready[t]) < n && !p.closed {
			return t, true
		}
	}
	return template{}, false
}

// quiet reports how long ago a sandbox was last asked for.
func (p *pool) quiet() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.created)
}

// close takes everything out; nothing comes in any more.
func (p *pool) close() []*spare {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var all []*spare
	for _, list := range p.ready {
		all = append(all, list...)
	}
	clear(p.ready)
	return all
}

// have returns how many boxes are ready of each template.
func (p *pool) have() map[template]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[template]int, len(p.ready))
	for t, list := range p.ready {
		counts[t] = len(list)
	}
	return counts
}

// count returns how many boxes are ready.
func (p *pool) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, list := range p.ready {
		n += len(list)
	}
	return n
}
