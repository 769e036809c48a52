package agentapi_test

import (
	"fmt"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
)

// hold reserves megabytes for a client until it is refused, and returns how many it got.
func reserveAll(c *agentapi.Client, yield bool) (n int) {
	for c.Reserve(1<<20, yield) == nil {
		n++
	}
	return n
}

// TestWorkspacesShareMemory checks that the next workspace gets memory beyond the guaranteed part
// of a client, however many clients of other workspaces reserve as much as they can, with and
// without yield.
func TestWorkspacesShareMemory(t *testing.T) {
	const own = 4 // MiB
	for _, yield := range []bool{false, true} {
		m := agentapi.NewMemory(256 << 20)
		client := func(owner string) *agentapi.Client {
			c := m.NewClient(nil)
			c.SetOwner(owner)
			return c
		}
		hostile := []*agentapi.Client{client("a"), client("a"), client("a")}
		all := 0
		for _, c := range hostile {
			all += reserveAll(c, yield) - own
		}
		if want := map[bool]int{false: 170, true: 128}[yield]; all != want {
			t.Errorf("yield %t: a workspace alone gets %d MiB, want %d", yield, all, want)
		}
		reserveAll(client("b"), yield)
		reserveAll(client("c"), yield)
		for _, kind := range []bool{true, false} {
			if got := reserveAll(client(fmt.Sprint("next", kind)), kind) - own; got < 2 {
				t.Errorf("yield %t: the next one gets %d MiB, want more", yield, got)
			}
		}
		for _, c := range hostile {
			c.Release(int64(all/len(hostile)) << 20)
		}
		if got := reserveAll(client("later"), yield) - own; got < 20 {
			t.Errorf("yield %t: after the first gave back another gets %d MiB, want more", yield, got)
		}
	}
}

// TestMemoryFollowsItsOwner checks that a client's memory counts for the owner.
func TestMemoryFollowsItsOwner(t *testing.T) {
	m := agentapi.NewMemory(90 << 20)
	c := m.NewClient(nil)
	if err := c.Reserve(34<<20, false); err != nil { // 30 MiB beyond its guaranteed part
		t.Fatal(err)
	}
	c.SetOwner("a")
	again := m.NewClient(nil)
	again.SetOwner("a")
	if got := reserveAll(again, false); got != 4+30 {
		t.Errorf("another client of the owner gets %d MiB, want %d", got, 4+30)
	}
}
