// Package box is the server's view of a sandbox that has not ended: its recorded state, the
// connection to its agent, its activity, and the operation that has it exclusively.
//
// Package lifecycle changes the state of boxes. Packages guest and execution call into them.
package box

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Box is a sandbox that has not ended. Its lock orders the changes of the sandbox's state;
// it is held while a change is recorded. While it is held, only locks that protect a look-up
// may be taken.
type Box struct {
	// ID is the sandbox's id.
	ID sandbox.ID
	// Agent dials the sandbox's agent when it is first used.
	Agent *agentapi.Client
	// Activity is the use of the sandbox by others.
	Activity Activity
	// Changes wakes the waiters for changes of the sandbox and of its executions.
	Changes broadcast.Broadcast
	// Transfers are the files on their way into the sandbox or out of it; the next save
	// waits for them.
	Transfers Transfers
	// Link is the server's end of the sandbox's network interface.
	Link Link
	// Meter adds up what the sandbox uses.
	Meter Meter
	// Work counts the goroutines that must end before the driver may destroy the box. They
	// obey Context.
	Work sync.WaitGroup

	ctx    context.Context
	cancel context.CancelFunc
	group  *background.Group

	mu        sync.Mutex
	view      atomic.Pointer[View]      // replaced only with mu held
	operation atomic.Pointer[Operation] // nil for none; replaced only with mu held
	// saves is odd while the box, or its files, are being saved. Each save may break the
	// connections into the box.
	saves atomic.Int64
	queue *semaphore.Weighted // 1; of ExclusivelyInTurn
}

// View is a sandbox as recorded at some time.
type View struct {
	Sandbox sandbox.Sandbox
	// Changed is closed when this view is no longer current.
	Changed <-chan struct{}

	changed chan struct{}
}

// New returns a box without a view. Its work runs in group.
func New(group *background.Group, id sandbox.ID, agent *agentapi.Client) *Box {
	b := &Box{ID: id, Agent: agent, group: group, queue: semaphore.NewWeighted(1)}
	b.ctx, b.cancel = context.WithCancel(group.Context())
	return b
}

// Context returns a context that ends when the end of the sandbox is recorded, or with the service.
func (b *Box) Context() context.Context { return b.ctx }

// Cancel ends the box's context.
func (b *Box) Cancel() { b.cancel() }

// Lock takes the lock that orders changes of the sandbox's state.
func (b *Box) Lock() { b.mu.Lock() }

// TryLock takes the lock if it is free, and reports whether it did.
func (b *Box) TryLock() bool { return b.mu.TryLock() }

// Unlock releases the lock.
func (b *Box) Unlock() { b.mu.Unlock() }

// Settle waits while a change is being recorded: the view has every change that the store had before.
//
// Preconditions: the caller does not hold the lock.
func (b *Box) Settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
}

// View returns the current view; nil before the sandbox is recorded.
func (b *Box) View() *View { return b.view.Load() }

// Sandbox returns the sandbox as last recorded, with its last activity as of now.
func (b *Box) Sandbox() sandbox.Sandbox { return b.WithActivity(b.View().Sandbox) }

// WithActivity returns sb, a record of this sandbox, with its last activity as of now.
func (b *Box) WithActivity(sb sandbox.Sandbox) sandbox.Sandbox {
	if at := b.Activity.Last(); at.After(sb.LastActivityAt) {
		sb.LastActivityAt = at
	}
	return sb
}

// Set makes sb the current view and wakes the waiters for a change.
//
// Preconditions: the lock is held.
func (b *Box) Set(sb sandbox.Sandbox) {
	if b.View() == nil {
		b.Agent.SetOwner(string(sb.Workspace)) // which never changes
	}
	changed := make(chan struct{})
	if old := b.view.Swap(&View{Sandbox: sb, Changed: changed, changed: changed}); old != nil {
		close(old.changed)
	}
	b.Changes.Send()
}

// Runs reports whether the sandbox still runs in the box with that handle.
func (b *Box) Runs(handle driver.Handle) bool {
	sb := b.View().Sandbox
	return sb.State == sandbox.Running && bytes.Equal(sb.Handle, handle)
}

// Saves returns a number that [Box.SavedSince] compares with.
func (b *Box) Saves() int64 { return b.saves.Load() }

// SavedSince reports whether the box is being saved, or was since [Box.Saves] returned saves.
func (b *Box) SavedSince(saves int64) bool { return saves%2 == 1 || b.saves.Load() != saves }

// BeginSave notes that saving the box, or its files, begins. The caller calls end when it is over.
func (b *Box) BeginSave() (end func()) {
	b.saves.Add(1)
	return func() { b.saves.Add(1) }
}
