package box

import (
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/sandbox"
)

// item is an entry with a field of its own.
type item struct {
	*Box
	name string
}

// record gives an item a view and registers it.
func record(x *Index[*item], e *item, sb sandbox.Sandbox) {
	e.Lock()
	defer e.Unlock()
	sb.ID = e.ID
	e.Set(sb)
	x.Register(e)
}

func TestIndex(t *testing.T) {
	group := background.New()
	newItem := func(id sandbox.ID) *item {
		return &item{New(group, id, agentapi.NewMemory(1<<20).NewClient(nil)), string(id)}
	}
	x := NewIndex[*item]()
	one := newItem("one")
	if x.Reserve(one) != one || x.Reserve(newItem("one")) != one {
		t.Error("Reserve() gave an id away twice")
	}
	if x.ByID("one") != nil || !x.Has("one") || len(x.All()) != 0 {
		t.Error("a box is found before it is recorded")
	}
	record(x, one, sandbox.Sandbox{Workspace: "w", Name: "n", HostLabel: "l", State: sandbox.Running})
	if x.ByID("one") != one || x.ByName("w", "n") != one || x.ByLabel("l") != one || x.ByName("v", "n") != nil {
		t.Error("a recorded box is not found by id, name and label, or in another workspace")
	}

	// A newer sandbox has the name of a sandbox that is being destroyed, and keeps it.
	two := newItem("two")
	x.Reserve(two)
	record(x, two, sandbox.Sandbox{Workspace: "w", Name: "n", HostLabel: "m", State: sandbox.Provisioning})
	record(x, one, sandbox.Sandbox{Workspace: "w", Name: "n", HostLabel: "l", State: sandbox.Destroying})
	if x.ByName("w", "n") != two {
		t.Error("a sandbox that is being destroyed took the name back")
	}
	if got := x.Count(); got[sandbox.Destroying] != 1 || got[sandbox.Provisioning] != 1 {
		t.Errorf("Count() = %v", got)
	}
	x.Remove(one.Box)
	if x.Has("one") || x.ByLabel("l") != nil || x.ByName("w", "n") != two || len(x.Boxes()) != 1 {
		t.Error("Remove() left a trace, or took the name of the newer sandbox")
	}
	x.Remove(newItem("two").Box) // another box of that id
	if x.ByID("two") != two {
		t.Error("Remove() of a box that is not in the index removed another")
	}
}

// Claim waits for the outcome of a box that may still be recorded.
func TestIndexClaim(t *testing.T) {
	group := background.New()
	newItem := func() *item { return &item{New(group, "id", agentapi.NewMemory(1<<20).NewClient(nil)), ""} }
	x := NewIndex[*item]()
	first, second := newItem(), newItem()
	first.Lock()
	x.Reserve(first)
	claimed := claim(x, second)
	x.Remove(first.Box) // it was not recorded
	first.Unlock()
	<-claimed
	if x.Reserved("id") != second {
		t.Error("Claim() returned without the id")
	}
	record(x, second, sandbox.Sandbox{Workspace: "w", Name: "n", State: sandbox.Running})
	<-claim(x, newItem())
	if x.Reserved("id") != second {
		t.Error("Claim() took the id of a sandbox")
	}
}

// claim claims in a goroutine; the channel is closed when Claim returns.
func claim(x *Index[*item], e *item) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.Claim(e)
	}()
	return done
}
