package lifecycle

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
	"github.com/modbox/modbox/internal/warmbox"
)

// entry is a box in the index, with the state that only this package uses.
type entry struct {
	*box.Box

	// warm is the box of the pool that it is, nil if it is none: made and started before the row was
	// written. Set before that; used afterwards for provisioning alone.
	warm *warmbox.Box
	// made is the span of the create, for the spans of its phases. Set with warm.
	made    tracing.Span
	evicted atomic.Pointer[sandbox.Cause] // why it is being destroyed to free the disk; nil unless it is
	// doubtful is set if its files could not be saved at the last attempt without its memory: to the message of its last
	// event pause_failed, "" for none.
	doubtful atomic.Pointer[string]
	idling   atomic.Bool // it is being paused because it is idle, or waits for its turn
	// pauses counts the pauses, including pauses that found it paused.
	pauses atomic.Int64

	// The operation that has the box exclusively guards these fields.
	again   bool   // it is a resume that failed before and is tried again, see [Service.arrive]
	failure string // the message of the last event resume_failed; "" for none

	// The box's lock guards these fields.
	timer        *time.Timer    // see armTimer
	unwatch      func()         // ends the watcher and waits for its end; nil for none
	wanted       *sandbox.Cause // an end that could not be recorded yet
	provisioning bool           // a goroutine provisions it
	destroying   bool           // a goroutine destroys it
}

// making returns the box's context, with the span of its create.
func (e *entry) making() context.Context { return e.made.In(e.Context()) }

// maker makes entries.
type maker struct {
	driver driver.Driver
	calls  *agentapi.Memory // of all boxes' agents
	work   *background.Group
}

// newBox returns an entry without a view.
func (m *maker) newBox(id sandbox.ID) *entry {
	agent := m.calls.NewClient(func(ctx context.Context) (net.Conn, error) {
		return m.driver.Dial(ctx, id, driver.AgentPort)
	})
	return &entry{Box: box.New(m.work, id, agent)}
}

// unlisted makes boxes that no caller can find, for packages workbox and warmbox.
type unlisted struct {
	cfg       *Config
	maker     *maker
	boxes     *box.Index[*entry]
	catalogue Catalogue
	saved     *checkpoint.Store
	slots     *fairsem.Semaphore // of starter
	warm      *warmbox.Keeper    // nil for itself
}

// NewBox implements [workbox.Host] and [warmbox.Host].
func (u unlisted) NewBox(id sandbox.ID) *box.Box {
	b := u.maker.newBox(id)
	u.boxes.Reserve(b) // before the driver makes the box, so that the sweep does not take it for an orphan
	return b.Box
}

// Forget implements [workbox.Host] and [warmbox.Host].
func (u unlisted) Forget(b *box.Box) { u.boxes.Remove(b) }

// Spec implements [workbox.Host] and [warmbox.Host].
func (u unlisted) Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec {
	return u.cfg.spec(sb, rootfs)
}

// Stage implements [workbox.Host].
func (u unlisted) Stage(ctx context.Context, ws sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error) {
	return u.warm.Stage(ctx, ws, spec, checkpoint)
}

// Starting implements [warmbox.Host].
func (u unlisted) Starting() int { return u.slots.Used() }

// StandingKinds implements [warmbox.Host].
func (u unlisted) StandingKinds(ctx context.Context) []pool.Kind {
	return u.cfg.planning().StandingKinds(u.catalogue.DefaultImage(ctx))
}

// CheckFree implements [warmbox.Host].
func (u unlisted) CheckFree(least int64) error { return u.saved.CheckFree(least) }

// adopter makes entries for package lookup.
type adopter struct{ service *Service }

// AdoptLost implements [lookup.Adopter].
func (a adopter) AdoptLost(row sandbox.Sandbox) *entry {
	b := a.service.registrar.adopt(row)
	if b != nil {
		b.Lock()
		b.wanted = lostCause() // for the sweep, should the caller not end it
		b.Unlock()
	}
	return b
}
