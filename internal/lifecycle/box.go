package lifecycle

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// box is the service's side of a sandbox that has not ended.
type box struct {
	id    sandbox.ID
	agent *agentapi.Client // dials when first used

	// ctx ends, with end's cause, when the sandbox's end is recorded, or with the service.
	ctx    context.Context
	cancel context.CancelFunc
	// warm says that the box comes from the pool, made and started before the row was
	// written. Set before that; afterwards for provisioning alone.
	warm bool
	// work counts what must have stopped before the driver may destroy the box:
	// provisioning and the watcher, which both obey ctx.
	work sync.WaitGroup

	// current is what the store last said; replaced only with mu held.
	current atomic.Pointer[view]
	// flight is the operation that has the box for itself; nil for none. Replaced only with mu held.
	flight   atomic.Pointer[flight]
	activity activity
	changes  broadcast.Broadcast // of the sandbox and its executions
	line     line
	// published are the labels of its ports in the index; guarded by the index's mu.
	published []*portURL
	meter     meter
	// saves is odd while the box is being saved, or its files are; each time breaks the
	// connections into it, or may.
	saves     atomic.Int64
	evicted   atomic.Pointer[sandbox.Cause] // why it is being destroyed to free the disk, nil unless it is
	transfers transfers                     // which the next save waits for

	// envMu orders changes of the environment, with what the agent is told; taken before mu.
	envMu sync.Mutex

	// mu orders the changes of the sandbox's state; it is held while they are
	// recorded. No other lock is taken for long while it is held.
	mu           sync.Mutex
	timer        *time.Timer    // see armTimer; guarded by mu
	unwatch      func()         // ends the watcher and waits for that; nil for none; guarded by mu
	wanted       *sandbox.Cause // an end that could not be recorded yet; guarded by mu
	provisioning bool           // somebody is provisioning it; guarded by mu
	destroying   bool           // somebody is destroying it; guarded by mu
}

// view is a sandbox as recorded at some time.
type view struct {
	sb sandbox.Sandbox
	// changed is closed when this view is not current any more.
	changed chan struct{}
}

// newBox returns a box without a view.
func (s *Service) newBox(id sandbox.ID) *box {
	b := &box{id: id}
	b.ctx, b.cancel = context.WithCancel(s.ctx)
	b.agent = s.calls.NewClient(func(ctx context.Context) (net.Conn, error) {
		return s.driver.Dial(ctx, id, driver.AgentPort)
	})
	return b
}

// view returns the current view; nil before the sandbox is recorded.
func (b *box) view() *view { return b.current.Load() }

// sandbox returns the sandbox as last recorded, with its last activity as of now.
func (b *box) sandbox() sandbox.Sandbox { return b.noted(b.view().sb) }

// noted returns sb, which is a view of b, with its last activity as of now.
func (b *box) noted(sb sandbox.Sandbox) sandbox.Sandbox {
	if at := b.activity.time(); at.After(sb.LastActivityAt) {
		sb.LastActivityAt = at
	}
	return sb
}

// set makes sb current and wakes who waits for a change.
//
// Preconditions: b.mu is held.
func (b *box) set(sb sandbox.Sandbox) {
	if b.view() == nil {
		b.agent.BelongTo(string(sb.Workspace)) // which never changes
	}
	if old := b.current.Swap(&view{sb: sb, changed: make(chan struct{})}); old != nil {
		close(old.changed)
	}
	b.changes.Send()
}

// recorded returns b once it is known whether it was recorded, and nil when it was not.
func (b *box) recorded() *box {
	if b == nil || b.view() != nil {
		return b
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view() == nil {
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
	ids    map[sandbox.ID]*box // guarded by mu
	names  map[nameKey]*box    // guarded by mu
	labels map[string]*box     // guarded by mu
	ports  map[string]*portURL // by label; guarded by mu
}

func newBoxes() *boxes {
	return &boxes{ids: map[sandbox.ID]*box{}, names: map[nameKey]*box{}, labels: map[string]*box{}, ports: map[string]*portURL{}}
}

// reserve adds b by its id, or returns the box that has that id already.
func (x *boxes) reserve(b *box) *box {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.ids[b.id]; old != nil {
		return old
	}
	x.ids[b.id] = b
	return b
}

// claim reserves the id of b. While the id belongs to a box whose record is not decided yet,
// it waits for that. Where a sandbox has the id, b stays without it: the store refuses b.
func (x *boxes) claim(b *box) {
	for {
		old := x.reserve(b)
		if old == b || old.recorded() != nil {
			return
		}
	}
}

// index makes a reserved box findable by name and label. One that is being destroyed
// leaves the name to another.
func (x *boxes) index(b *box) {
	sb := b.sandbox()
	x.mu.Lock()
	defer x.mu.Unlock()
	if key := (nameKey{sb.Workspace, sb.Name}); sb.State != sandbox.Destroying || x.names[key] == nil {
		x.names[key] = b
	}
	x.labels[sb.HostLabel] = b
	x.publishLocked(b, sb.Published)
}

// remove forgets b. The name may belong to a newer box by now.
func (x *boxes) remove(b *box) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ids[b.id] == b {
		delete(x.ids, b.id)
	}
	v := b.view()
	if v == nil {
		return
	}
	delete(x.labels, v.sb.HostLabel)
	x.publishLocked(b, nil)
	if key := (nameKey{v.sb.Workspace, v.sb.Name}); x.names[key] == b {
		delete(x.names, key)
	}
}

// byID returns the box of that id; nil for none.
func (x *boxes) byID(id sandbox.ID) *box {
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

func (x *boxes) byName(ws sandbox.WorkspaceID, name string) *box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.names[nameKey{ws, name}]
}

func (x *boxes) byLabel(label string) *box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.labels[label]
}

// all returns the boxes that are recorded.
func (x *boxes) all() []*box {
	x.mu.RLock()
	defer x.mu.RUnlock()
	list := make([]*box, 0, len(x.ids))
	for _, b := range x.ids {
		if b.view() != nil {
			list = append(list, b)
		}
	}
	return list
}
