package box

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// Entry is a box in an [Index], with the state that the user of the index adds by embedding a *Box.
type Entry interface {
	comparable
	// Base returns the box.
	Base() *Box
}

// Base returns b; it makes types that embed a *Box entries of an [Index].
func (b *Box) Base() *Box { return b }

// nameKey is a sandbox's name in its workspace.
type nameKey struct {
	workspace sandbox.WorkspaceID
	name      string
}

// Index finds boxes by the id, name and host label of their sandboxes. A box is in it before the
// row of its sandbox is written and until the row says that the sandbox ended: a live row without a
// box in the index is lost, and a box of the driver that is not in the index is an orphan. It is
// safe for concurrent use.
type Index[E Entry] struct {
	mu     sync.RWMutex
	ids    map[sandbox.ID]E // guarded by mu
	names  map[nameKey]E    // guarded by mu
	labels map[string]E     // guarded by mu
}

// NewIndex returns an empty index.
func NewIndex[E Entry]() *Index[E] {
	return &Index[E]{ids: map[sandbox.ID]E{}, names: map[nameKey]E{}, labels: map[string]E{}}
}

// recorded returns e once it is known that its sandbox was recorded, and the zero entry if it was
// not.
func recorded[E Entry](e E) E {
	var none E
	if e == none || e.Base().View() != nil {
		return e
	}
	e.Base().Lock()
	defer e.Base().Unlock()
	if e.Base().View() == nil {
		return none
	}
	return e
}

// Reserve adds e by its id, or returns the entry that has that id already.
func (x *Index[E]) Reserve(e E) E {
	x.mu.Lock()
	defer x.mu.Unlock()
	id := e.Base().ID
	if old, ok := x.ids[id]; ok {
		return old
	}
	x.ids[id] = e
	return e
}

// Adopt adds e by its id and reports true. If another entry has that id, Adopt returns the other
// entry once it is recorded, or the zero entry if it will not be.
//
// Preconditions: the lock of e is held.
func (x *Index[E]) Adopt(e E) (E, bool) {
	old := x.Reserve(e)
	if old == e {
		return e, true
	}
	return recorded(old), false
}

// Claim reserves the id of e. While the id belongs to a box whose record is not decided yet, Claim
// waits for the decision. If a sandbox has the id, e stays without it: the store refuses e.
func (x *Index[E]) Claim(e E) {
	var none E
	for {
		old := x.Reserve(e)
		if old == e || recorded(old) != none {
			return
		}
	}
}

// Register makes a reserved box findable by name and label. A sandbox that is being destroyed
// leaves its name to another.
func (x *Index[E]) Register(e E) {
	sb := e.Base().Sandbox()
	x.mu.Lock()
	defer x.mu.Unlock()
	key := nameKey{sb.Workspace, sb.Name}
	if _, used := x.names[key]; sb.State != sandbox.Destroying || !used {
		x.names[key] = e
	}
	x.labels[sb.HostLabel] = e
}

// Remove removes a box. Its name may belong to a newer box by now.
func (x *Index[E]) Remove(b *Box) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.ids[b.ID]; ok && old.Base() == b {
		delete(x.ids, b.ID)
	}
	v := b.View()
	if v == nil {
		return
	}
	delete(x.labels, v.Sandbox.HostLabel)
	key := nameKey{v.Sandbox.Workspace, v.Sandbox.Name}
	if named, ok := x.names[key]; ok && named.Base() == b {
		delete(x.names, key)
	}
}

// ByID returns the entry of an id once it is recorded; the zero entry for none.
func (x *Index[E]) ByID(id sandbox.ID) E { return recorded(x.Reserved(id)) }

// Reserved returns the entry of an id, recorded or not; the zero entry for none.
func (x *Index[E]) Reserved(id sandbox.ID) E {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ids[id]
}

// Has reports whether a box of that id is in the index, recorded or not.
func (x *Index[E]) Has(id sandbox.ID) bool {
	var none E
	return x.Reserved(id) != none
}

// ByName returns the entry of a sandbox by name; the zero entry for none.
func (x *Index[E]) ByName(ws sandbox.WorkspaceID, name string) E {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.names[nameKey{ws, name}]
}

// ByLabel returns the entry of a sandbox by host label; the zero entry for none.
func (x *Index[E]) ByLabel(label string) E {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.labels[label]
}

// All returns the entries that are recorded, in no order.
func (x *Index[E]) All() []E {
	x.mu.RLock()
	defer x.mu.RUnlock()
	list := make([]E, 0, len(x.ids))
	for _, e := range x.ids {
		if e.Base().View() != nil {
			list = append(list, e)
		}
	}
	return list
}

// Boxes returns the boxes that are recorded, in no order.
func (x *Index[E]) Boxes() []*Box {
	entries := x.All()
	list := make([]*Box, len(entries))
	for i, e := range entries {
		list[i] = e.Base()
	}
	return list
}

// Count returns the number of recorded boxes in each state.
func (x *Index[E]) Count() map[sandbox.State]int {
	counts := map[sandbox.State]int{}
	for _, b := range x.Boxes() {
		counts[b.View().Sandbox.State]++
	}
	return counts
}
