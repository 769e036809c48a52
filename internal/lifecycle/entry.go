package lifecycle

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// entry is a box in the index, with the state that only this package uses.
type entry struct {
	*box.Box

	// warm says that the box comes from the pool: it was made and started before the row was
	// written. Set before that; used afterwards for provisioning alone.
	warm    bool
	evicted atomic.Pointer[sandbox.Cause] // why it is being destroyed to free the disk; nil unless it is

	// The box's lock guards these fields.
	timer        *time.Timer    // see armTimer
	unwatch      func()         // ends the watcher and waits for its end; nil for none
	wanted       *sandbox.Cause // an end that could not be recorded yet
	provisioning bool           // a goroutine provisions it
	destroying   bool           // a goroutine destroys it
}

// newBox returns an entry without a view.
func (s *Service) newBox(id sandbox.ID) *entry {
	agent := s.calls.NewClient(func(ctx context.Context) (net.Conn, error) {
		return s.driver.Dial(ctx, id, driver.AgentPort)
	})
	return &entry{Box: box.New(s.work, id, agent)}
}

// recorded returns b once it is known that it was recorded, and nil if it was not.
func (b *entry) recorded() *entry {
	if b == nil || b.View() != nil {
		return b
	}
	b.Lock()
	defer b.Unlock()
	if b.View() == nil {
		return nil
	}
	return b
}

// nameKey is a sandbox's name in its workspace.
type nameKey struct {
	workspace sandbox.WorkspaceID
	name      string
}

// boxes is the index of all boxes. A box is in it before its row is written and
// until the row says that it ended: a live row without a box here is lost, and a
// box of the driver's that is not here is an orphan.
type boxes struct {
	mu     sync.RWMutex
	ids    map[sandbox.ID]*entry // guarded by mu
	names  map[nameKey]*entry    // guarded by mu
	labels map[string]*entry     // guarded by mu
}

func newBoxes() *boxes {
	return &boxes{ids: map[sandbox.ID]*entry{}, names: map[nameKey]*entry{}, labels: map[string]*entry{}}
}

// reserve adds b by its id, or returns the box that has that id already.
func (x *boxes) reserve(b *entry) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.ids[b.ID]; old != nil {
		return old
	}
	x.ids[b.ID] = b
	return b
}

// claim reserves the id of b. While the id belongs to a box whose record is not decided yet,
// it waits for that. Where a sandbox has the id, b stays without it: the store refuses b.
func (x *boxes) claim(b *entry) {
	for {
		old := x.reserve(b)
		if old == b || old.recorded() != nil {
			return
		}
	}
}

// index makes a reserved box findable by name and label. One that is being destroyed
// leaves the name to another.
func (x *boxes) index(b *entry) {
	sb := b.Sandbox()
	x.mu.Lock()
	defer x.mu.Unlock()
	if key := (nameKey{sb.Workspace, sb.Name}); sb.State != sandbox.Destroying || x.names[key] == nil {
		x.names[key] = b
	}
	x.labels[sb.HostLabel] = b
}

// remove removes the entry of b's box. The name may belong to a newer box by now.
func (x *boxes) remove(b *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.ids[b.ID]; old != nil && old.Box == b.Box {
		delete(x.ids, b.ID)
	}
	v := b.View()
	if v == nil {
		return
	}
	delete(x.labels, v.Sandbox.HostLabel)
	if key := (nameKey{v.Sandbox.Workspace, v.Sandbox.Name}); x.names[key] == b {
		delete(x.names, key)
	}
}

// byID returns the box of that id; nil for none.
func (x *boxes) byID(id sandbox.ID) *entry {
	x.mu.RLock()
	b := x.ids[id]
	x.mu.RUnlock()
	return b.recorded()
}

// has reports whether a box of that id is there, recorded or not.
func (x *boxes) has(id sandbox.ID) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.ids[id] != nil
}

func (x *boxes) byName(ws sandbox.WorkspaceID, name string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.names[nameKey{ws, name}]
}

func (x *boxes) byLabel(label string) *entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.labels[label]
}

// all returns the boxes that are recorded.
func (x *boxes) all() []*entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	list := make([]*entry, 0, len(x.ids))
	for _, b := range x.ids {
		if b.View() != nil {
			list = append(list, b)
		}
	}
	return list
}

// allBoxes is all, without the state that only this package uses.
func (x *boxes) allBoxes() []*box.Box {
	list := x.all()
	out := make([]*box.Box, len(list))
	for i, b := range list {
		out[i] = b.Box
	}
	return out
}
