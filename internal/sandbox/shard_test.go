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
		n := int(want) / 16
		if want.Range() != n || !sandbox.AllRanges.Has(id) || !sandbox.RangesFrom(n, n).Has(id) || !sandbox.RangesFrom(n, sandbox.RangeCount-1).Has(id) {
			t.Errorf("%q is not in its ranges", id)
		}
		if (sandbox.AllRanges &^ sandbox.RangesFrom(n, n)).Has(id) {
			t.Errorf("%q is in other ranges", id)
		}
	}
	for _, c := range []struct {
		ranges sandbox.Ranges
		first  int
		digits string
	}{
		{sandbox.AllRanges, 0, "0123456789abcdef"}, {sandbox.RangesFrom(0, 7), 0, "01234567"}, {sandbox.RangesFrom(9, 10) | sandbox.RangesFrom(15, 15), 9, "9af"},
	} {
		if c.ranges.First() != c.first || c.ranges.Digits() != c.digits {
			t.Errorf("%b begins with range %d and has %s, want %d and %s", c.ranges, c.ranges.First(), c.ranges.Digits(), c.first, c.digits)
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

// A server makes IDs in its own shards, each in its turn.
func TestNewIDsOfAnOwner(t *testing.T) {
	for _, r := range []sandbox.Ranges{sandbox.AllRanges, sandbox.RangesFrom(0, 7), sandbox.RangesFrom(5, 5), sandbox.RangesFrom(3, 3) | sandbox.RangesFrom(12, 15)} {
		owner, ids, ranges := sandbox.Own(r), map[sandbox.ID]bool{}, sandbox.Ranges(0)
		for range 1000 {
			id := owner.NewID()
			if parsed, ok := sandbox.ParseID(string(id)); !ok || parsed != id || ids[id] || owner.Check(id) != nil {
				t.Fatalf("%q of an owner of %s: it is no ID, not new, or of another", id, r.Digits())
			}
			ids[id] = true
			ranges |= sandbox.RangesFrom(id.Shard().Range(), id.Shard().Range())
		}
		if ranges != r {
			t.Errorf("the IDs of the owner of %s are in %s", r.Digits(), ranges.Digits())
		}
	}
}

func TestParts(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8, 16} {
		all, parts := sandbox.Ranges(0), sandbox.Parts(n)
		for i, p := range parts {
			if all&p != 0 || p == 0 || sandbox.Own(p).Primary() != (i == 0) {
				t.Errorf("part %d of %d is %b", i, n, p)
			}
			all |= p
		}
		if len(parts) != n || all != sandbox.AllRanges {
			t.Errorf("%d parts have the ranges %b", n, all)
		}
	}
}

// TestSweepsOfParts: each entry of a directory with a directory for each part is swept by one server, or belongs to one.
func TestSweepsOfParts(t *testing.T) {
	if all := sandbox.Own(sandbox.AllRanges); all.Part() != "" || !all.Sweeps("0") || !all.Sweeps("x") || (*sandbox.Ownership)(nil).Part() != "" {
		t.Error("the server of all ranges does not sweep everything")
	}
	names := []string{"", "x", "rest", "08"}
	for n := range sandbox.RangeCount {
		names = append(names, sandbox.Own(sandbox.RangesFrom(n, n)).Part())
	}
	for _, count := range []int{2, 4, 8, 16} {
		for _, name := range names {
			sweepers, owners := 0, 0
			for i, part := range sandbox.Parts(count) {
				own := sandbox.Own(part)
				if own.Sweeps(name) {
					sweepers++
					if (len(name) != 1 || name == "x") && i != 0 {
						t.Errorf("part %d of %d sweeps %q", i, count, name)
					}
				}
				if own.Part() == name {
					owners++
				}
			}
			if sweepers+owners != 1 {
				t.Errorf("%q is swept by %d servers of %d and is the part of %d", name, sweepers, count, owners)
			}
		}
	}
}
