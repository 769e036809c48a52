package fleet

import (
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/worker"
)

// TestAbsences checks that only a worker is lost that is away at all looks, over no other connection meanwhile and while another worker is connected.
func TestAbsences(t *testing.T) {
	seen := absences{}
	first, second := absence{member: &member{}}, absence{member: &member{}}
	look := func(times, connected int, away ...absence) (lost []absence) {
		for range times {
			lost = seen.look(away, connected)
		}
		return lost
	}
	want := func(what string, got []absence, want ...absence) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d workers are lost, want %d", what, len(got), len(want))
		}
	}
	want("not long enough", look(absenceLooks, 1, first))
	want("another as well", look(1, 2, first, second), first)
	want("both", look(absenceLooks, 2, first, second), first, second)
	want("the server is cut off", look(absenceLooks*2, 0, first, second))
	want("the server is cut off from most", look(absenceLooks*2, 1, first, second))
	want("the time begins anew", look(absenceLooks, 2, first, second))
	first.link++
	want("a worker was back meanwhile", look(absenceLooks, 2, first, second), second)
	look(1, 4)
	want("both were back", look(absenceLooks, 2, first, second))
}

// TestSuppliedWorkerIsBack checks that a supplied worker is not lost which has connected again since the look.
func TestSuppliedWorkerIsBack(t *testing.T) {
	d := &Driver{board: board{roster: roster{ids: map[string]*member{}}}}
	m := &member{record: worker.Record{Identity: worker.Identity{ID: worker.NewSuppliedID()}, Status: worker.Ready}, link: 2, connected: true}
	d.enlist(m)
	if err := (absent{d}).lost(absence{m, 1}); err != nil || m.gone() {
		t.Errorf("lost() = %v, the worker is lost: %v", err, m.gone())
	}
}
