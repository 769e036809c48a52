package sandbox_test

import (
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

func TestShards(t *testing.T) {
	for id, want := range map[sandbox.ID]sandbox.Shard{
		"01234567-89ab-7def-8123-456789abcd00": 0, "01234567-89ab-7def-8123-456789abcd7f": 0x7f, "01234567-89ab-7def-8123-456789abcdff": 0xff, "": 0, "xyz": 0,
	} {
		if got := id.Shard(); got != want {
			t.Errorf("%q is in shard %d, want %d", id, got, want)
		}
		if !sandbox.AllShards.Has(id) || !(sandbox.Shards{First: want, Last: want}).Has(id) {
			t.Errorf("%q is not in its shards", id)
		}
		if want > 0 && (sandbox.Shards{Last: want - 1}).Has(id) || want < 0xff && (sandbox.Shards{First: want + 1, Last: 0xff}).Has(id) {
			t.Errorf("%q is in other shards", id)
		}
	}
}

// New sandboxes are in all shards alike.
func TestShardsOfNewIDs(t *testing.T) {
	halves := [2]int{}
	for range 1000 {
		halves[sandbox.NewID().Shard()>>7]++
	}
	if halves[0] < 300 || halves[1] < 300 {
		t.Errorf("the halves of the shards have %v of 1000 sandboxes", halves)
	}
}
