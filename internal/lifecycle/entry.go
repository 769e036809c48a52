package lifecycle

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/pool"
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

// spec describes the box of a sandbox to the driver.
func (s *Service) spec(sb *sandbox.Sandbox, rootfs string) driver.Spec {
	return driver.Spec{
		ID: sb.ID, Hostname: environment.Hostname(sb), RootFS: rootfs, Resources: sb.Resources,
		MaxProcesses: int64(s.cfg.MaxProcesses),
	}
}

// unlisted makes boxes that no caller can find, for packages workbox and warmbox.
type unlisted struct{ service *Service }

// NewBox implements [workbox.Host] and [warmbox.Host].
func (u unlisted) NewBox(id sandbox.ID) *box.Box {
	b := u.service.newBox(id)
	u.service.boxes.Reserve(b) // before the driver makes the box, so that the sweep does not take it for an orphan
	return b.Box
}

// Forget implements [workbox.Host] and [warmbox.Host].
func (u unlisted) Forget(b *box.Box) { u.service.boxes.Remove(b) }

// Spec implements [workbox.Host] and [warmbox.Host].
func (u unlisted) Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec {
	return u.service.spec(sb, rootfs)
}

// Starting implements [warmbox.Host].
func (u unlisted) Starting() int { return len(u.service.slots) }

// DefaultKind implements [warmbox.Host].
func (u unlisted) DefaultKind(ctx context.Context) (pool.Kind, bool) {
	img, err := u.service.catalogue.DefaultImage(ctx)
	if err != nil || img.Digest == "" {
		return pool.Kind{}, false
	}
	return pool.Kind{Digest: img.Digest, Resources: u.service.resources(sandbox.Resources{}, &img)}, true
}

// CheckFree implements [warmbox.Host].
func (u unlisted) CheckFree(least int64) error { return u.service.saved.CheckFree(least) }

// adopt makes an entry for a live row that has none. It returns nil if the id belonged to a sandbox
// that was then not recorded.
func (s *Service) adopt(sb sandbox.Sandbox) *entry {
	b := s.newBox(sb.ID)
	b.Lock()
	defer b.Unlock()
	if old, ok := s.boxes.Adopt(b); !ok {
		b.Cancel()
		return old
	}
	b.Set(sb)
	s.index(b)
	return b
}

// adopter makes entries for package lookup.
type adopter struct{ service *Service }

// AdoptLost implements [lookup.Adopter].
func (a adopter) AdoptLost(row sandbox.Sandbox) *entry {
	b := a.service.adopt(row)
	if b != nil {
		b.Lock()
		b.wanted = lostCause() // for the sweep, should the caller not end it
		b.Unlock()
	}
	return b
}
