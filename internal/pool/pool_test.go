package pool_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

var (
	small = pool.Kind{Digest: "a", Resources: sandbox.Resources{MemoryBytes: 1 << 20}}
	large = pool.Kind{Digest: "a", Resources: sandbox.Resources{MemoryBytes: 1 << 30}}
)

// filled returns a pool with boxes 0 to n-1 of kind small, the oldest first, as planned.
func filled(t *testing.T, n int) (*pool.Pool[int], []*pool.Box[int]) {
	t.Helper()
	p := pool.New[int](n, false)
	p.Plan(time.Now(), small)
	boxes := make([]*pool.Box[int], n)
	for i := range n {
		boxes[i] = &pool.Box[int]{Kind: small, Started: time.Unix(int64(i), 0), Value: i}
		if !p.Add(boxes[i]) {
			t.Fatal("Add reports a closed pool")
		}
	}
	return p, boxes
}

// mustReserve reserves a box of kind small, which must be number want.
func mustReserve(t *testing.T, p *pool.Pool[int], want int) *pool.Reservation[int] {
	t.Helper()
	r := p.Reserve(t.Context(), "w", small)
	if r == nil {
		t.Fatalf("no box reserved, want %d", want)
	}
	if got := r.Box().Value; got != want {
		t.Fatalf("reserved box %d, want %d", got, want)
	}
	return r
}

func TestCancelPutsTheBoxBackInItsPlace(t *testing.T) {
	p, _ := filled(t, 3)
	first, second := mustReserve(t, p, 0), mustReserve(t, p, 1)
	if k, missing := p.Missing(); missing {
		t.Errorf("%v is missing while its boxes are only reserved", k)
	}
	for _, r := range []*pool.Reservation[int]{second, first} {
		if !r.Cancel() {
			t.Error("Cancel = false, want the box back in the pool")
		}
	}
	mustReserve(t, p, 0).Commit()
	mustReserve(t, p, 1).Commit()
	if n, _ := p.Len(); n != 1 {
		t.Errorf("%d boxes are ready, want 1", n)
	}
	if k, missing := p.Missing(); !missing || k != small {
		t.Errorf("Missing = %v, %v, want kind small", k, missing)
	}
}

// TestRefusedCreatesCostNoBox: a create that finds the only box reserved gets the box when
// the reservation is cancelled, and none when it is committed.
func TestRefusedCreatesCostNoBox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := filled(t, 1)
		reserve := func() <-chan *pool.Reservation[int] {
			got := make(chan *pool.Reservation[int], 1)
			go func() { got <- p.Reserve(t.Context(), "w", small) }()
			synctest.Wait()
			return got
		}
		refused := mustReserve(t, p, 0)
		second := reserve()
		select {
		case r := <-second:
			t.Fatalf("Reserve = %v before the outcome of the first is known", r)
		default:
		}
		refused.Cancel()
		r := <-second
		if r == nil {
			t.Fatal("no box although the first create was refused")
		}
		third := reserve()
		r.Commit()
		if r := <-third; r != nil {
			t.Errorf("box %d reserved twice", r.Box().Value)
		}
		if r := p.Reserve(t.Context(), "w", large); r != nil {
			t.Errorf("reserved a box of kind %v, want none", r.Box().Kind)
		}
	})
}

func TestReserveEndsWithItsContext(t *testing.T) {
	p, _ := filled(t, 1)
	mustReserve(t, p, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := p.Reserve(ctx, "w", small); r != nil {
		t.Errorf("reserved box %d, want none", r.Box().Value)
	}
}

// TestNoDeadBoxComesBack: a reserved box that ends, or whose pool is closed, is its holder's
// to destroy.
func TestNoDeadBoxComesBack(t *testing.T) {
	p, boxes := filled(t, 3)
	dead := mustReserve(t, p, 0)
	if p.Remove(boxes[0]) {
		t.Error("Remove of a reserved box = true, want the reservation to decide")
	}
	if dead.Cancel() {
		t.Error("Cancel puts a dead box back")
	}
	if !p.Remove(boxes[1]) || p.Remove(boxes[1]) {
		t.Error("Remove of a ready box must be true once")
	}
	late := mustReserve(t, p, 2)
	if left := p.Close(); len(left) != 0 {
		t.Errorf("Close returns %d boxes, want none", len(left))
	}
	if late.Cancel() {
		t.Error("Cancel puts a box into a closed pool")
	}
	if p.Add(&pool.Box[int]{Kind: small}) {
		t.Error("Add puts a box into a closed pool")
	}
}

// TestCandidates: a kind with many boxes gives up its oldest box first, and the last box of a kind is given up last.
func TestCandidates(t *testing.T) {
	p := pool.New[int](9, false)
	begin := time.Now()
	add := func(n int, k pool.Kind) *pool.Box[int] {
		b := &pool.Box[int]{Kind: k, Value: n, Started: begin.Add(time.Duration(n) * time.Second)}
		p.Add(b)
		return b
	}
	add(1, large)
	for n := 2; n < 5; n++ {
		add(n, small)
	}
	var got []int
	candidates := p.Candidates()
	for _, b := range candidates {
		got = append(got, b.Value)
	}
	if want := []int{2, 3, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("Candidates() = %v, want %v", got, want)
	}
	p.Created("w", small)
	r := p.Reserve(t.Context(), "w", small)
	if r == nil || r.Box().Value != 2 {
		t.Fatalf("Reserve() = %+v", r)
	}
	if p.Take(candidates[:2]) {
		t.Error("Take() of a reserved box succeeds")
	}
	if n, _ := p.Len(); n != 3 {
		t.Errorf("%d boxes are ready after that, want all but the reserved", n)
	}
	if !p.Take(candidates[1:3]) || p.Take(candidates[1:2]) {
		t.Error("Take() of ready boxes must succeed once")
	}
	if n, _ := p.Len(); n != 1 {
		t.Errorf("%d boxes are ready, want 1", n)
	}
	r.Commit()
}

func TestPlanFollowsDemand(t *testing.T) {
	p := pool.New[int](4, false)
	now := time.Now()
	p.Plan(now, small)
	if d := cmp.Diff([]pool.Kind{small}, p.Planned()); d != "" {
		t.Errorf("without creates, planned (-want +got):\n%s", d)
	}
	for range 6 {
		p.Created("w", large)
	}
	select {
	case <-p.Wake():
	default:
		t.Error("creates do not wake")
	}
	p.Plan(now)
	if d := cmp.Diff([]pool.Kind{large}, p.Planned()); d != "" {
		t.Errorf("after creates, planned (-want +got):\n%s", d)
	}
	p.Drop(large)
	if k, missing := p.Missing(); missing {
		t.Errorf("%v is missing after it was dropped", k)
	}
	old := &pool.Box[int]{Kind: small, Started: now.Add(-2 * time.Hour)}
	p.Plan(now, small)
	p.Add(old)
	if got := p.Surplus(now); len(got) != 1 || got[0] != old {
		t.Errorf("Surplus = %v, want the old box", got)
	}
}

// TestPlanWithBlankBoxes: images get a box for each create, and blank boxes are the rest.
func TestPlanWithBlankBoxes(t *testing.T) {
	other := pool.Kind{Digest: "b", Resources: small.Resources}
	standing := []pool.Kind{small, small.Blank()}
	for _, test := range []struct {
		name     string
		size     int
		standing []pool.Kind
		creates  map[pool.Kind]int
		want     map[pool.Kind]int
	}{
		{"Nothing", 4, nil, nil, map[pool.Kind]int{}},
		{"Standing", 4, standing, nil, map[pool.Kind]int{small: 1, small.Blank(): 3}},
		{"One", 1, standing, nil, map[pool.Kind]int{small: 1}},
		{"OneWithoutStanding", 1, nil, map[pool.Kind]int{large: 2}, map[pool.Kind]int{large: 1}},
		{"Demand", 6, standing, map[pool.Kind]int{other: 3}, map[pool.Kind]int{small: 1, other: 3, small.Blank(): 2}},
		{"TooMuchDemand", 4, standing, map[pool.Kind]int{other: 30}, map[pool.Kind]int{other: 3, small.Blank(): 1}},
		{"RareImages", 3, nil, map[pool.Kind]int{small: 1, other: 1}, map[pool.Kind]int{small.Blank(): 3}},
		{"Resources", 7, standing, map[pool.Kind]int{large: 2}, map[pool.Kind]int{small: 1, large: 2, large.Blank(): 3, small.Blank(): 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pool.New[int](test.size, true)
			for k, n := range test.creates {
				for range n {
					p.Created("w", k)
				}
			}
			p.Plan(time.Now(), test.standing...)
			got := map[pool.Kind]int{}
			for k, ok := p.Missing(); ok; k, ok = p.Missing() {
				got[k]++
				p.Add(&pool.Box[int]{Kind: k})
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("boxes (-want +got):\n%s", d)
			}
		})
	}
}

// TestReserveTakesBlankBoxes: a create takes a box of its image first, then a blank one, and waits for
// either.
func TestReserveTakesBlankBoxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pool.New[int](2, true)
		p.Add(&pool.Box[int]{Kind: small.Blank(), Value: 1})
		p.Add(&pool.Box[int]{Kind: small, Value: 2})
		if all, blank := p.Len(); all != 2 || blank != 1 {
			t.Errorf("Len() = %d, %d, want 2, 1", all, blank)
		}
		if r := p.Reserve(t.Context(), "w", small.Blank()); r != nil {
			t.Errorf("box %d reserved for an image that is still to be made", r.Box().Value)
		}
		if r := p.Reserve(t.Context(), "w", large); r != nil {
			t.Errorf("box %d reserved for other resources", r.Box().Value)
		}
		own, blank := mustReserve(t, p, 2), mustReserve(t, p, 1)
		got := make(chan *pool.Reservation[int], 1)
		go func() { got <- p.Reserve(t.Context(), "w", pool.Kind{Digest: "b", Resources: small.Resources}) }()
		synctest.Wait()
		own.Commit()
		blank.Cancel()
		if r := <-got; r == nil || r.Box().Value != 1 {
			t.Errorf("reserved %v, want the blank box that came back", r)
		}
	})
}

// TestPlanKeepsBoxesAroundANumber: a demand that varies around a number of creates replaces no boxes.
func TestPlanKeepsBoxesAroundANumber(t *testing.T) {
	p := pool.New[int](6, true)
	for range 6 {
		p.Created("w", small)
	}
	planned := func(after time.Duration) (own int) {
		p.Plan(time.Now().Add(after), small.Blank())
		var made []*pool.Box[int]
		for k, ok := p.Missing(); ok; k, ok = p.Missing() {
			b := &pool.Box[int]{Kind: k}
			p.Add(b)
			if made = append(made, b); k == small {
				own++
			}
		}
		for _, b := range made {
			p.Remove(b)
		}
		return own
	}
	// A create counts half after ten minutes. As many boxes as creates, rounded up, and one more that is there.
	for _, test := range []struct {
		after time.Duration
		want  int
	}{
		{time.Second, 5},      // 6 creates, and a blank box
		{4 * time.Minute, 5},  // 4.5
		{6 * time.Minute, 5},  // 3.96
		{11 * time.Minute, 4}, // 2.80
		{12 * time.Minute, 4}, // 2.61
		{11 * time.Minute, 4},
		{30 * time.Minute, 0}, // 0.75, too few
		{11 * time.Minute, 3},
	} {
		if n := planned(test.after); n != test.want {
			t.Errorf("%d boxes after %s, want %d", n, test.after, test.want)
		}
	}
}

// TestStandingImageReturnsToItsShare: without creates the default image has one box, however many it had.
func TestStandingImageReturnsToItsShare(t *testing.T) {
	p := pool.New[int](4, true)
	for range 3 {
		p.Created("w", small)
	}
	for _, after := range []time.Duration{time.Second, 2 * time.Hour, 2*time.Hour + time.Minute} {
		p.Plan(time.Now().Add(after), small, small.Blank())
	}
	own := 0
	for k, ok := p.Missing(); ok; k, ok = p.Missing() {
		if p.Add(&pool.Box[int]{Kind: k}); k == small {
			own++
		}
	}
	if own != 1 {
		t.Errorf("the default image has %d boxes long after its last create, want 1", own)
	}
}

// TestSkip: of a kind that is skipped no more boxes are made, until the next plan.
func TestSkip(t *testing.T) {
	p := pool.New[int](3, true)
	p.Plan(time.Now(), small.Blank())
	p.Add(&pool.Box[int]{Kind: small.Blank(), Started: time.Now()})
	p.Skip(small.Blank())
	if k, ok := p.Missing(); ok {
		t.Errorf("%v is missing", k)
	}
	if out := p.Surplus(time.Now()); len(out) > 0 {
		t.Errorf("%d boxes are too many, want the ready one to stay", len(out))
	}
	p.Plan(time.Now(), small.Blank())
	if _, ok := p.Missing(); !ok {
		t.Error("nothing is missing after the next plan")
	}
}
