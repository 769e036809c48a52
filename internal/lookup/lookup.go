// Package lookup finds sandboxes by id, name and label: live sandboxes in memory, and ended
// sandboxes in the store. It lists them, and waits for their states.
package lookup

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store reads the rows of sandboxes. It is safe for concurrent use.
type Store interface {
	// SandboxByID returns a sandbox in any state. Errors: NotFound.
	SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error)
	// SandboxByName returns the live sandbox of a name, else the newest. Errors: NotFound.
	SandboxByName(ctx context.Context, ws sandbox.WorkspaceID, name string) (sandbox.Sandbox, error)
	// SandboxByLabel returns the sandbox of a host label, in any state. Errors: NotFound.
	SandboxByLabel(ctx context.Context, label string) (sandbox.Sandbox, error)
	// ListSandboxes returns a page of a workspace's sandboxes, newest first. Errors: Invalid.
	ListSandboxes(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.Filter) (page.Page[sandbox.Sandbox], error)
	// Events returns a sandbox's events after, or when descending before, a Seq. Errors: Invalid.
	Events(ctx context.Context, id sandbox.ID, f sandbox.EventFilter) (page.Page[sandbox.Event], error)
	// Owns reports whether this server works on a sandbox, if it is live.
	Owns(id sandbox.ID) bool
	// Alone reports whether this server works on all sandboxes.
	Alone() bool
}

// Adopter makes boxes for rows that have none.
type Adopter[E box.Entry] interface {
	// AdoptLost returns an entry of the index for a live row that no goroutine works on. The sweep
	// ends its sandbox unless the caller does. It returns the zero entry if the id belongs to a
	// sandbox that was not recorded.
	AdoptLost(row sandbox.Sandbox) E
}

// Finder finds the sandboxes of an index and a store. It is safe for concurrent use.
type Finder[E box.Entry] struct {
	index   *box.Index[E]
	store   Store
	adopter Adopter[E]
	ctx     context.Context // of the service
}

// New returns a finder, whose calls to Wait end with ctx.
func New[E box.Entry](ctx context.Context, index *box.Index[E], store Store, adopter Adopter[E]) *Finder[E] {
	return &Finder[E]{index: index, store: store, adopter: adopter, ctx: ctx}
}

// Get returns the sandbox with an id or a name: the live sandbox of the name, or else the newest.
// Errors: NotFound.
func (f *Finder[E]) Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	b, sb, err := f.Find(ctx, c, ref)
	if b != nil && !f.store.Alone() { // the caller may have the event of a change from another server, which knows the store alone
		b.Settle()
		sb = b.Sandbox()
	}
	return c.Shown(sb), err
}

// List returns a page of the workspace's sandboxes, newest first. Errors: Invalid, naming limit,
// cursor or state.
func (f *Finder[E]) List(ctx context.Context, c sandbox.Caller, filter sandbox.Filter) (page.Page[sandbox.Sandbox], error) {
	var none E
	p, err := f.store.ListSandboxes(ctx, c.Workspace, filter)
	for i, sb := range p.Items {
		if e := f.index.ByID(sb.ID); e != none {
			p.Items[i] = e.Base().WithActivity(sb)
		}
		p.Items[i] = c.Shown(p.Items[i])
	}
	return p, err
}

// ByLabel returns the live sandbox with that host label, or false. Every request to a sandbox's URL
// calls it, so it reads only memory.
func (f *Finder[E]) ByLabel(label string) (sandbox.Sandbox, bool) {
	var none E
	if e := f.index.ByLabel(label); e != none {
		return e.Base().Sandbox(), true
	}
	return sandbox.Sandbox{}, false
}

// EndedByLabel returns the ended sandbox with that host label. Errors: NotFound; Unavailable for a live sandbox that another server works on.
func (f *Finder[E]) EndedByLabel(ctx context.Context, label string) (sandbox.Sandbox, error) {
	sb, err := f.store.SandboxByLabel(ctx, label)
	if err == nil && !sb.State.Ended() && !f.store.Owns(sb.ID) {
		return sandbox.Sandbox{}, sandbox.NewElsewhere(sb.ID)
	}
	return sb, err
}

// Events returns a page of a sandbox's events. Errors: NotFound; Invalid, naming limit or cursor.
func (f *Finder[E]) Events(ctx context.Context, c sandbox.Caller, ref string, filter sandbox.EventFilter) (page.Page[sandbox.Event], error) {
	_, sb, err := f.Entry(ctx, c, ref)
	if err != nil {
		return page.Page[sandbox.Event]{}, err
	}
	p, err := f.store.Events(ctx, sb.ID, filter)
	f.Settle(sb.ID) // the caller sees their changes also in the sandbox
	return p, err
}

// Changed returns a channel that is closed at the next change of the sandbox or of its executions.
// A caller that must not miss a change calls Changed before it reads the state. The channel is nil
// for a sandbox that has ended, which does not change any more. Errors: NotFound.
func (f *Finder[E]) Changed(ctx context.Context, c sandbox.Caller, ref string) (<-chan struct{}, error) {
	b, _, err := f.Find(ctx, c, ref)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Changes.Wait(), nil
}

// Wait returns the sandbox when it has reached the state want ("" is running), has passed that
// state, or has ended. After timeout it returns the present sandbox without an error; a timeout of
// 0 does not wait.
//
// Errors: NotFound; Invalid, naming state; Unavailable if the server closes; the context's error.
func (f *Finder[E]) Wait(ctx context.Context, c sandbox.Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error) {
	sb, err := f.wait(ctx, c, ref, want, timeout)
	return c.Shown(sb), err
}

func (f *Finder[E]) wait(ctx context.Context, c sandbox.Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error) {
	if want == "" {
		want = sandbox.Running
	}
	if !want.Valid() {
		return sandbox.Sandbox{}, sandbox.InvalidField("state", "%q is not a state; the states are %v", string(want), sandbox.States)
	}
	b, sb, err := f.Find(ctx, c, ref)
	if err != nil || b == nil {
		return sb, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		v := b.View()
		if Reached(v.Sandbox.State, want) {
			return v.Sandbox, nil
		}
		select {
		case <-v.Changed:
		case <-timer.C:
			return b.Sandbox(), nil
		case <-ctx.Done():
			return v.Sandbox, ctx.Err()
		case <-f.ctx.Done():
			return v.Sandbox, box.ErrClosed
		}
	}
}

// LetStart waits until no sandbox is being started, or until ctx ends: the next server would begin the start again, or end the sandbox.
func (f *Finder[E]) LetStart(ctx context.Context) {
	for _, b := range f.index.Boxes() {
		for v := b.View(); v.Sandbox.State == sandbox.Provisioning; v = b.View() {
			select {
			case <-v.Changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Reached reports whether a sandbox in the state will not come closer to want by waiting.
func Reached(state, want sandbox.State) bool {
	at := func(s sandbox.State) int { return slices.Index(sandbox.States, s) }
	switch {
	case state == want || state.Ended() || at(state) >= at(sandbox.Destroying) && at(state) >= at(want):
		return true
	case want == sandbox.Running:
		return state == sandbox.Paused // waiting does not resume it
	case want == sandbox.Pausing:
		return state == sandbox.Paused
	}
	return want == sandbox.Provisioning
}

// Find returns the sandbox with an id or name in the caller's workspace, and its box unless it has
// ended. Errors: NotFound.
func (f *Finder[E]) Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error) {
	return base(f.Entry(ctx, c, ref))
}

// Live returns the ids of the live sandboxes of all workspaces, in no order, from memory.
func (f *Finder[E]) Live() iter.Seq[sandbox.ID] {
	return func(yield func(sandbox.ID) bool) {
		for _, b := range f.index.Boxes() {
			if !yield(b.ID) {
				return
			}
		}
	}
}

// Used returns what each running sandbox of a workspace had used when it was measured last, in no order.
func (f *Finder[E]) Used(ws sandbox.WorkspaceID) []sandbox.Use {
	var all []sandbox.Use
	for _, b := range f.index.Boxes() {
		if b.View().Sandbox.Workspace != ws {
			continue // before its meter, whose lock costs more: most boxes are of others
		}
		total, running, _ := b.Meter.State()
		if !running || total.At.IsZero() {
			continue
		}
		all = append(all, sandbox.Use{
			Sandbox: b.ID, Time: total.At, CPU: total.CPU, MemoryBytes: b.Meter.Memory(), SentBytes: total.SentBytes, ReceivedBytes: total.ReceivedBytes,
		})
	}
	return all
}

// Settle waits while a change of a sandbox is being recorded: look-ups then see every change that the
// store had before.
func (f *Finder[E]) Settle(id sandbox.ID) {
	var none E
	if e := f.index.Reserved(id); e != none {
		e.Base().Settle()
	}
}

// Lives reports whether a sandbox is live, from memory.
func (f *Finder[E]) Lives(id sandbox.ID) bool { return f.index.Has(id) }

// FindID is Find by id, in any workspace.
func (f *Finder[E]) FindID(ctx context.Context, id sandbox.ID) (*box.Box, sandbox.Sandbox, error) {
	return base(f.EntryByID(ctx, id))
}

// Row returns a sandbox as the store has it, in any state. Errors: NotFound.
func (f *Finder[E]) Row(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return f.store.SandboxByID(ctx, id)
}

// base returns the box of an entry, nil for the zero entry.
func base[E box.Entry](e E, sb sandbox.Sandbox, err error) (*box.Box, sandbox.Sandbox, error) {
	var none E
	if e == none {
		return nil, sb, err
	}
	return e.Base(), sb, err
}

// Entry is Find for the owner of the index. It returns the zero entry for a sandbox that has ended.
func (f *Finder[E]) Entry(ctx context.Context, c sandbox.Caller, ref string) (E, sandbox.Sandbox, error) {
	e, sb, err := f.byRef(ctx, c, ref)
	if err == nil {
		audit.FromContext(ctx).Object("sandbox", string(sb.ID), sb.Name)
	}
	return e, sb, err
}

func (f *Finder[E]) byRef(ctx context.Context, c sandbox.Caller, ref string) (none E, _ sandbox.Sandbox, _ error) {
	if id, ok := sandbox.ParseID(ref); ok {
		e, sb, err := f.EntryByID(ctx, id)
		if err == nil && sb.Workspace == c.Workspace {
			return e, sb, nil
		}
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return none, sandbox.Sandbox{}, err
		}
		// A name may also look like an id.
	}
	if e := f.index.ByName(c.Workspace, ref); e != none {
		return live(e)
	}
	sb, err := f.store.SandboxByName(ctx, c.Workspace, ref)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if sb, err = f.byShortID(ctx, c, ref); err != nil {
			return none, sandbox.Sandbox{}, err
		}
		return f.EntryByID(ctx, sb.ID)
	}
	if err != nil || sb.State.Ended() {
		return none, sb, err
	}
	return f.EntryByID(ctx, sb.ID)
}

// candidates is the most sandboxes that the error for an ambiguous short ID names.
const candidates = 10

// byShortID returns the sandbox of the caller's workspace whose ID begins with ref: the live sandbox if there
// is a single live one. Errors: NotFound; Invalid when there are several.
func (f *Finder[E]) byShortID(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error) {
	if !c.ShortIDs || !sandbox.IsShortID(ref) {
		return sandbox.Sandbox{}, notFound(ref)
	}
	list := func(states []sandbox.State) ([]sandbox.Sandbox, error) {
		p, err := f.store.ListSandboxes(ctx, c.Workspace, sandbox.Filter{IDPrefix: strings.ToLower(ref), States: states, Limit: candidates})
		return p.Items, err
	}
	found, err := list(nil) // the live sandboxes
	if err == nil && len(found) == 0 {
		found, err = list(sandbox.States)
	}
	switch {
	case err != nil:
		return sandbox.Sandbox{}, err
	case len(found) == 0:
		return sandbox.Sandbox{}, notFound(ref)
	case len(found) == 1:
		return found[0], nil
	}
	var names strings.Builder
	for _, sb := range found {
		fmt.Fprintf(&names, "; %s (%s)", sb.ID, sb.Name)
	}
	return sandbox.Sandbox{}, sandbox.Errorf(sandbox.Invalid, "the ids of several sandboxes begin with %q%s; give more of the id", ref, names.String())
}

// EntryByID is Entry by id, in any workspace. Errors: Unavailable for a live sandbox that another server works on.
func (f *Finder[E]) EntryByID(ctx context.Context, id sandbox.ID) (none E, _ sandbox.Sandbox, _ error) {
	// If the row is live and its box is not in the index, the sandbox may have ended in between: the
	// box leaves the index only after its row says so, and the second look at the row sees that.
	for range 2 {
		if e := f.index.ByID(id); e != none {
			return live(e)
		}
		sb, err := f.store.SandboxByID(ctx, id)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return none, sandbox.Sandbox{}, notFound(string(id))
		}
		if err != nil || sb.State.Ended() {
			return none, sb, err
		}
		if !f.index.Has(id) {
			sb, err = f.store.SandboxByID(ctx, id)
			if err != nil || sb.State.Ended() {
				return none, sb, err
			}
			if !f.store.Owns(id) { // the other server has its box and its state
				return none, sandbox.Sandbox{}, sandbox.NewElsewhere(id)
			}
			if e := f.adopter.AdoptLost(sb); e != none {
				return live(e)
			}
		}
	}
	return none, sandbox.Sandbox{}, notFound(string(id))
}

// live returns an entry and its sandbox; the zero entry if the sandbox has ended.
func live[E box.Entry](e E) (E, sandbox.Sandbox, error) {
	sb := e.Base().Sandbox()
	if sb.State.Ended() {
		var none E
		return none, sb, nil
	}
	return e, sb, nil
}

func notFound(ref string) error {
	return sandbox.Errorf(sandbox.NotFound, "there is no sandbox %q", sandbox.Excerpt(ref))
}
