package agentapi_test

import (
	"fmt"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
)

// hold has a client hold megabytes until it is refused, and returns how many those are.
func hold(c *agentapi.Client, spare bool) (n int) {
	for c.Hold(1<<20, spare) == nil {
		n++
	}
	return n
}

// TestWorkspacesShareMemory: whoever comes next gets something beyond the own part of a
// client, however many clients of others take all that they can, and of what kind it is.
func TestWorkspacesShareMemory(t *testing.T) {
	const own = 4 // MiB
	for _, spare := range []bool{false, true} {
		m := agentapi.NewMemory(256 << 20)
		client := func(owner string) *agentapi.Client {
			c := m.NewClient(nil)
			c.BelongTo(owner)
			return c
		}
		hostile := []*agentapi.Client{client("a"), client("a"), client("a")}
		all := 0
		for _, c := range hostile {
			all += hold(c, spare) - own
		}
		if want := map[bool]int{false: 170, true: 128}[spare]; all != want {
			t.Errorf("spare %t: a workspace alone gets %d MiB, want %d", spare, all, want)
		}
		hold(client("b"), spare)
		hold(client("c"), spare)
		for _, kind := range []bool{true, false} {
			if got := hold(client(fmt.Sprint("next", kind)), kind) - own; got < 2 {
				t.Errorf("spare %t: the next one gets %d MiB, want more", spare, got)
			}
		}
		for _, c := range hostile {
			c.Free(int64(all/len(hostile)) << 20)
		}
		if got := hold(client("later"), spare) - own; got < 20 {
			t.Errorf("spare %t: after the first gave back another gets %d MiB, want more", spare, got)
		}
	}
}

// TestMemoryFollowsItsOwner: what a client holds counts for whom it belongs to.
func TestMemoryFollowsItsOwner(t *testing.T) {
	m := agentapi.NewMemory(90 << 20)
	c := m.NewClient(nil)
	if err := c.Hold(34<<20, false); err != nil { // 30 MiB beyond its own
		t.Fatal(err)
	}
	c.BelongTo("a")
	again := m.NewClient(nil)
	again.BelongTo("a")
	if got := hold(again, false); got != 4+30 {
		t.Errorf("another client of the owner gets %d MiB, want %d", got, 4+30)
	}
}
