package pool_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

// fill makes the boxes that a pool lacks, and returns their numbers.
func fill(p *pool.Pool[int]) map[pool.Kind]int {
	made := map[pool.Kind]int{}
	for k, ok := p.Missing(); ok; k, ok = p.Missing() {
		made[k]++
		p.Add(&pool.Box[int]{Kind: k})
	}
	return made
}

// TestWorkspacesShareThePlan: however many creates a workspace makes, the image of another gets its boxes.
func TestWorkspacesShareThePlan(t *testing.T) {
	other := pool.Kind{Digest: "b", Resources: small.Resources}
	for _, test := range []struct {
		name    string
		creates map[sandbox.WorkspaceID]int // of small in "greedy", of other elsewhere
		want    map[pool.Kind]int
	}{
		{"Alone", map[sandbox.WorkspaceID]int{"greedy": 1000}, map[pool.Kind]int{small: 7, small.Blank(): 1}},
		{"Two", map[sandbox.WorkspaceID]int{"greedy": 1000, "modest": 3}, map[pool.Kind]int{small: 4, other: 3, small.Blank(): 1}},
		{"Three", map[sandbox.WorkspaceID]int{"greedy": 1000, "modest": 1, "third": 1}, map[pool.Kind]int{small: 3, other: 2, small.Blank(): 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pool.New[int](8, true)
			for w, n := range test.creates {
				k := other
				if w == "greedy" {
					k = small
				}
				for range n {
					p.Created(w, k)
				}
			}
			p.Plan(time.Now())
			if d := cmp.Diff(test.want, fill(p)); d != "" {
				t.Errorf("boxes (-want +got):\n%s", d)
			}
		})
	}
}

// TestManyKindsForgetNoOtherWorkspace: a workspace that creates more kinds than are remembered costs another its demand for none.
func TestManyKindsForgetNoOtherWorkspace(t *testing.T) {
	p := pool.New[int](4, true)
	for range 2 {
		p.Created("modest", large)
	}
	for i := range 2000 {
		for range 3 {
			p.Created("greedy", pool.Kind{Digest: fmt.Sprint(i)})
		}
	}
	p.Plan(time.Now())
	if n := fill(p)[large]; n == 0 {
		t.Error("no box of the other workspace's image is planned")
	}
}

// TestLastBoxesAreForOthers: a workspace that has taken its part of the pool leaves boxes to the workspaces that
// created sandboxes a while ago, for as long as it takes boxes at that pace; a create that is refused takes none.
func TestLastBoxesAreForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New[int](4, true)
		p.Created("modest", large)
		p.Created("greedy", small)
		taken := func(w sandbox.WorkspaceID) (n int) {
			p.Plan(time.Now(), small.Blank())
			fill(p)
			for {
				r := p.Reserve(t.Context(), w, small)
				if r == nil {
					return n
				}
				r.Commit()
				n++
			}
		}
		p.Plan(time.Now(), small.Blank())
		fill(p)
		for range 10 {
			if r := p.Reserve(t.Context(), "greedy", small); r == nil || !r.Cancel() {
				t.Fatalf("reserved %v, want a box that can be put back", r)
			}
		}
		if n := taken("greedy"); n != 3 {
			t.Errorf("took %d of 4 boxes, want 3 and the last left", n)
		}
		if n := taken("greedy"); n != 3 {
			t.Errorf("took %d of 4 boxes that were made meanwhile, want 3 and the last left", n)
		}
		r := p.Reserve(t.Context(), "modest", small)
		if r == nil {
			t.Fatal("no box is left for the other workspace")
		}
		r.Commit()
		time.Sleep(2 * time.Hour)
		if n := taken("greedy"); n != 4 {
			t.Errorf("took %d of 4 boxes long after the last create of another workspace, want all", n)
		}
	})
}
