package lifecycle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
)

// Transitions records changes of the states of sandboxes, each as a whole or not at all.
type Transitions interface {
	// SandboxByID returns a sandbox in any state. Errors: NotFound.
	SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error)
	// SetBox records what a provisioning sandbox is made of. Errors: NotFound,
	// Conflict when it is not provisioning any more.
	SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sandbox.Sandbox, error)
	// Transition moves a sandbox from one state to the other, with the changes of c, and appends ev, unless it has no type.
	// Errors: NotFound, Conflict when it is not in state from.
	Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error)
	// ResumeSandbox moves a paused sandbox to resuming as Transition does, if the quota fits it.
	// Errors: as Transition; QuotaExceeded.
	ResumeSandbox(ctx context.Context, id sandbox.ID, c sandbox.Change, ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error)
}

// states records changes of the states of sandboxes, sets the timers of the boxes and counts the changes.
// It does no other work of a change.
type states struct {
	store   Transitions
	quotas  *quota.Controller
	timers  *timers
	metrics *telemetry.Metrics
	ctx     context.Context // of the service
}

// transition records a transition of sb, the service's latest view of the sandbox. A write may have
// succeeded although the store reported an error: if the row has a different state, transition
// starts from that state, and a transition that was made already counts as success.
func (s *states) transition(sb sandbox.Sandbox, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error) {
	next, err := s.step(&sb, to, c, ev)
	if sandbox.CodeOf(err) != sandbox.Conflict {
		return next, err
	}
	row, readErr := s.store.SandboxByID(s.ctx, sb.ID)
	switch {
	case readErr != nil:
		return sandbox.Sandbox{}, readErr
	case row.State == to:
		return row, nil
	case row.State == sb.State:
		return sandbox.Sandbox{}, err
	}
	return s.step(&row, to, c, ev)
}

// step records a transition and notifies requests that wait for capacity.
func (s *states) step(sb *sandbox.Sandbox, to sandbox.State, c sandbox.Change, ev sandbox.Event) (sandbox.Sandbox, error) {
	if sb.State == sandbox.Paused && to == sandbox.Resuming {
		var next sandbox.Sandbox
		err := s.quotas.Record(s.ctx, s.quotas.ResumeAdmission(sb.Workspace), sb.Workspace, func(a quota.Admission) (err error) {
			next, err = s.store.ResumeSandbox(s.ctx, sb.ID, c, ev, a)
			return err
		})
		return next, err
	}
	next, err := s.store.Transition(s.ctx, sb.ID, sb.State, to, c, ev)
	if err == nil && (to == sandbox.Paused || to == sandbox.Destroying) {
		s.quotas.Released()
	}
	return next, err
}

// move records a change of the sandbox's state, unless the end of the sandbox is recorded. The
// caller has exclusive use of the box.
func (s *states) move(b *entry, to sandbox.State, c sandbox.Change, ev sandbox.Event) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Over(); err != nil {
		return err
	}
	sb, err := s.transition(b.Sandbox(), to, c, ev)
	if err != nil {
		return err
	}
	b.Set(sb)
	s.timers.arm(b)
	return nil
}

// recordBox records the handle with which a restarted server finds the box.
func (s *states) recordBox(b *entry, digest string, handle driver.Handle) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Context().Err(); err != nil {
		return err
	}
	sb, err := s.store.SetBox(s.ctx, b.ID, digest, handle)
	if err != nil {
		return fmt.Errorf("record box: %w", err)
	}
	b.Set(sb)
	return nil
}

// recordRunning ends provisioning of a sandbox, whose image has that digest, unless the end of the
// sandbox was decided before.
func (s *states) recordRunning(b *entry, digest string) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Context().Err(); err != nil {
		return err
	}
	now := time.Now().UTC()
	took := now.Sub(b.Sandbox().CreatedAt)
	data := map[string]string{"after_ms": strconv.FormatInt(took.Milliseconds(), 10), "image_digest": digest}
	if b.warm != nil {
		data[b.warm.Origin()] = "true"
	}
	sb, err := s.transition(b.Sandbox(), sandbox.Running, sandbox.Change{StartedAt: &now, LastActivityAt: &now},
		sandbox.Event{Time: now, Type: sandbox.EventRunning, Message: "the sandbox is ready", Data: data})
	if err != nil {
		return fmt.Errorf("record running: %w", err)
	}
	b.Set(sb)
	b.Activity.At(now)
	s.timers.arm(b)
	s.metrics.Created(took)
	return nil
}
