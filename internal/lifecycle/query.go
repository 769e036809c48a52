package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Get returns the sandbox with an id or a name: the live sandbox of the name, or else the newest.
// Errors: NotFound.
func (s *Service) Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	_, sb, err := s.find(ctx, c, ref)
	return c.Shown(sb), err
}

// List returns a page of the workspace's sandboxes, newest first. Errors: Invalid, naming limit,
// cursor or state.
func (s *Service) List(ctx context.Context, c sandbox.Caller, f Filter) (page.Page[sandbox.Sandbox], error) {
	p, err := s.store.ListSandboxes(ctx, c.Workspace, f)
	for i, sb := range p.Items {
		if b := s.boxes.ByID(sb.ID); b != nil {
			p.Items[i] = b.WithActivity(sb)
		}
		p.Items[i] = c.Shown(p.Items[i])
	}
	return p, err
}

// Usage returns the total usage of a sandbox up to now, or up to its end. Errors: NotFound.
func (s *Service) Usage(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Usage, error) {
	b, sb, err := s.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Usage{}, err
	}
	return s.usage.Of(ctx, sb.ID, b)
}

// ByLabel returns the live sandbox with that host label, or false. Every request to a sandbox's URL
// calls it, so it reads only memory.
func (s *Service) ByLabel(label string) (sandbox.Sandbox, bool) {
	if b := s.boxes.ByLabel(label); b != nil {
		return b.Sandbox(), true
	}
	return sandbox.Sandbox{}, false
}

// EndedByLabel returns the ended sandbox with that host label. Errors: NotFound.
func (s *Service) EndedByLabel(ctx context.Context, label string) (sandbox.Sandbox, error) {
	return s.store.SandboxByLabel(ctx, label)
}

// Events returns a page of a sandbox's events. Errors: NotFound; Invalid, naming limit or cursor.
func (s *Service) Events(ctx context.Context, c sandbox.Caller, ref string, f sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	_, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return page.Page[sandbox.Event]{}, err
	}
	return s.store.Events(ctx, sb.ID, f)
}

// Wait returns the sandbox when it has reached the state want ("" is running), has passed that
// state, or has ended. After timeout it returns the present sandbox without an error; a timeout of
// 0 does not wait.
//
// Errors: NotFound; Invalid, naming state; Unavailable if the server closes; the context's error.
func (s *Service) Wait(ctx context.Context, c sandbox.Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error) {
	sb, err := s.wait(ctx, c, ref, want, timeout)
	return c.Shown(sb), err
}

func (s *Service) wait(ctx context.Context, c sandbox.Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error) {
	if want == "" {
		want = sandbox.Running
	}
	if !want.Valid() {
		return sandbox.Sandbox{}, sandbox.InvalidField("state", "%q is not a state; the states are %v", string(want), sandbox.States)
	}
	b, sb, err := s.find(ctx, c, ref)
	if err != nil || b == nil {
		return sb, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		v := b.View()
		if reached(v.Sandbox.State, want) {
			return v.Sandbox, nil
		}
		select {
		case <-v.Changed:
		case <-timer.C:
			return b.Sandbox(), nil
		case <-ctx.Done():
			return v.Sandbox, ctx.Err()
		case <-s.ctx.Done():
			return v.Sandbox, box.ErrClosed
		}
	}
}

// reached reports whether a sandbox in the state will not come closer to want by waiting.
func reached(state, want sandbox.State) bool {
	at := func(s sandbox.State) int { return slices.Index(sandbox.States, s) }
	switch {
	case state == want || state.Ended() || at(state) >= at(sandbox.Destroying) && at(state) >= at(want):
		return true
	case want == sandbox.Running:
		return state == sandbox.Paused // nobody brings it back by waiting
	case want == sandbox.Pausing:
		return state == sandbox.Paused
	}
	return want == sandbox.Provisioning
}

// Find returns the sandbox with an id or name in the caller's workspace, and its box unless it has
// ended. Errors: NotFound.
func (s *Service) Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error) {
	b, sb, err := s.find(ctx, c, ref)
	if b == nil {
		return nil, sb, err
	}
	return b.Box, sb, err
}

// FindID is Find by id, in any workspace.
func (s *Service) FindID(ctx context.Context, id sandbox.ID) (*box.Box, sandbox.Sandbox, error) {
	b, sb, err := s.findID(ctx, id)
	if b == nil {
		return nil, sb, err
	}
	return b.Box, sb, err
}

// Wake resumes a paused sandbox, with its memory if possible, and returns when it runs. Concurrent
// callers wait for the same resume. Errors: the errors of [Service.Resume]; Ended.
func (s *Service) Wake(ctx context.Context, b *box.Box) error {
	return b.Exclusively(ctx, box.Resume, func() error {
		e := s.boxes.ByID(b.ID)
		if e == nil {
			return box.ErrClosed // the operation has the box, so that it stays in the index
		}
		return s.resume(e, sandbox.MemoryPrefer)
	})
}

// find is Find for callers in this package.
func (s *Service) find(ctx context.Context, c sandbox.Caller, ref string) (*entry, sandbox.Sandbox, error) {
	b, sb, err := s.findRef(ctx, c, ref)
	if err == nil {
		audit.FromContext(ctx).Object("sandbox", string(sb.ID), sb.Name)
	}
	return b, sb, err
}

func (s *Service) findRef(ctx context.Context, c sandbox.Caller, ref string) (*entry, sandbox.Sandbox, error) {
	if id, ok := sandbox.ParseID(ref); ok {
		b, sb, err := s.findID(ctx, id)
		if err == nil && sb.Workspace == c.Workspace {
			return b, sb, nil
		}
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return nil, sandbox.Sandbox{}, err
		}
		// A name may also look like an id.
	}
	if b := s.boxes.ByName(c.Workspace, ref); b != nil {
		return b.live()
	}
	sb, err := s.store.SandboxByName(ctx, c.Workspace, ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, sandbox.Sandbox{}, notFound(ref)
	}
	if err != nil || sb.State.Ended() {
		return nil, sb, err
	}
	return s.findID(ctx, sb.ID)
}

// findID is find by id, in any workspace.
func (s *Service) findID(ctx context.Context, id sandbox.ID) (*entry, sandbox.Sandbox, error) {
	// A row that lives while its box is not there has ended in between: the box
	// goes only after the row says so. The second look at the row sees that.
	for range 2 {
		if b := s.boxes.ByID(id); b != nil {
			return b.live()
		}
		sb, err := s.store.SandboxByID(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return nil, sandbox.Sandbox{}, notFound(string(id))
		}
		if err != nil || sb.State.Ended() {
			return nil, sb, err
		}
		if !s.boxes.Has(id) {
			sb, err = s.store.SandboxByID(ctx, id)
			if err != nil || sb.State.Ended() {
				return nil, sb, err
			}
			if b := s.adopt(sb); b != nil {
				b.Lock()
				b.wanted = lostCause() // for the sweep, should the caller not end it
				b.Unlock()
				return b.live()
			}
		}
	}
	return nil, sandbox.Sandbox{}, notFound(string(id))
}

// live returns b and its sandbox; the box is nil if the sandbox has ended.
func (b *entry) live() (*entry, sandbox.Sandbox, error) {
	sb := b.Sandbox()
	if sb.State.Ended() {
		return nil, sb, nil
	}
	return b, sb, nil
}

// adopt adds a box to the index for a live row without a box. It returns nil if the row's sandbox
// was being created and was not recorded.
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
