package lookup

import (
	"context"
	"runtime"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestReached(t *testing.T) {
	for _, tc := range []struct {
		state, want sandbox.State
		reached     bool
	}{
		{sandbox.Provisioning, sandbox.Running, false},
		{sandbox.Running, sandbox.Running, true},
		{sandbox.Paused, sandbox.Running, true},
		{sandbox.Resuming, sandbox.Running, false},
		{sandbox.Running, sandbox.Paused, false},
		{sandbox.Paused, sandbox.Pausing, true},
		{sandbox.Running, sandbox.Provisioning, true},
		{sandbox.Destroying, sandbox.Running, true},
		{sandbox.Destroying, sandbox.Destroyed, false},
		{sandbox.Failed, sandbox.Running, true},
		{sandbox.Destroyed, sandbox.Paused, true},
	} {
		if got := Reached(tc.state, tc.want); got != tc.reached {
			t.Errorf("Reached(%s, %s) = %v, want %v", tc.state, tc.want, got, tc.reached)
		}
	}
}

// entry is a box without anything of its own.
type entry struct{ *box.Box }

// rows is a store with a live sandbox for each id. The server owns some of them.
type rows struct {
	Store
	owned sandbox.Ranges
}

func (rows) SandboxByID(_ context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: id, State: sandbox.Running}, nil
}

func (r rows) Owns(id sandbox.ID) bool { return r.owned.Has(id) }

func (r rows) Alone() bool { return r.owned == sandbox.AllRanges }

// adopter makes boxes for rows, and counts them.
type adopter struct {
	group   *background.Group
	index   *box.Index[*entry]
	adopted int
}

func (a *adopter) AdoptLost(row sandbox.Sandbox) *entry {
	a.adopted++
	e := &entry{box.New(a.group, row.ID, agentapi.NewMemory(1<<20).NewClient(nil))}
	a.index.Reserve(e)
	e.Lock()
	defer e.Unlock()
	e.Set(row)
	a.index.Register(e)
	return e
}

// TestSandboxesOfOtherServers looks up live sandboxes that have no box here: it adopts its own alone.
func TestSandboxesOfOtherServers(t *testing.T) {
	a := &adopter{group: background.New(), index: box.NewIndex[*entry]()}
	t.Cleanup(a.group.Cancel)
	f := New[*entry](t.Context(), a.index, rows{owned: sandbox.RangesFrom(0, 7)}, a)
	own, other := sandbox.NewID()[:34]+"7f", sandbox.NewID()[:34]+"80"
	if e, _, err := f.EntryByID(t.Context(), other); e != nil || sandbox.CodeOf(err) != sandbox.Unavailable || a.adopted != 0 || a.index.Has(other) {
		t.Errorf("a sandbox of another server: %v, %v, %d adopted; want code unavailable", e, err, a.adopted)
	}
	if e, sb, err := f.EntryByID(t.Context(), own); e == nil || sb.ID != own || err != nil || a.adopted != 1 {
		t.Errorf("a sandbox of this server: %v, %v, %d adopted; want its box", e, err, a.adopted)
	}
}

// TestLetStart checks that it waits for all sandboxes that are being started, for no others, and no longer than its context permits.
func TestLetStart(t *testing.T) {
	index := box.NewIndex[*entry]()
	group := background.New()
	t.Cleanup(group.Cancel)
	record := func(e *entry, state sandbox.State) *entry {
		e.Lock()
		defer e.Unlock()
		e.Set(sandbox.Sandbox{ID: e.ID, Name: string(e.ID), HostLabel: string(e.ID), State: state})
		index.Register(e)
		return e
	}
	add := func(id sandbox.ID, state sandbox.State) *entry {
		e := &entry{box.New(group, id, agentapi.NewMemory(1<<20).NewClient(nil))}
		index.Reserve(e)
		return record(e, state)
	}
	f := New[*entry](t.Context(), index, nil, nil)
	f.LetStart(t.Context()) // none
	add("sbx_running", sandbox.Running)
	add("sbx_paused", sandbox.Paused)
	f.LetStart(t.Context())
	first, second := add("sbx_1", sandbox.Provisioning), add("sbx_2", sandbox.Provisioning)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.LetStart(t.Context())
	}()
	waits := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.LetStart(ctx)
		select {
		case <-ended:
			t.Error("LetStart() has returned while a sandbox is being started")
		default:
		}
	}
	waits()
	record(first, sandbox.Provisioning) // another change
	record(first, sandbox.Running)
	waits()
	record(second, sandbox.Destroying)
	<-ended
}

// TestGetAfterAnEvent: a caller that has the event of a change from another server sees the change, although it is being recorded.
func TestGetAfterAnEvent(t *testing.T) {
	a := &adopter{group: background.New(), index: box.NewIndex[*entry]()}
	t.Cleanup(a.group.Cancel)
	f := New[*entry](t.Context(), a.index, rows{owned: sandbox.RangesFrom(0, 7)}, a)
	id := sandbox.NewID()[:34] + "7f"
	e := a.AdoptLost(sandbox.Sandbox{ID: id, Workspace: "w", State: sandbox.Running})
	e.Lock()
	got := make(chan sandbox.State)
	go func() {
		sb, _ := f.Get(context.Background(), sandbox.Caller{Workspace: "w"}, string(id))
		got <- sb.State
	}()
	for range 1000 {
		runtime.Gosched()
	}
	select {
	case state := <-got:
		t.Errorf("the look-up does not wait for a change that is being recorded, and says %s", state)
		e.Unlock()
	default:
		e.Set(sandbox.Sandbox{ID: id, Workspace: "w", State: sandbox.Paused})
		e.Unlock()
		if state := <-got; state != sandbox.Paused {
			t.Errorf("the look-up says %s, want paused", state)
		}
	}
}
