package fleet

import (
	"slices"
	"testing"
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
	want("another as well", look(1, 1, first, second), first)
	want("both", look(absenceLooks, 1, first, second), first, second)
	want("the server is cut off", look(absenceLooks*2, 0, first, second))
	want("the time begins anew", look(absenceLooks, 1, first, second))
	first.link++
	want("a worker was back meanwhile", look(absenceLooks, 1, first, second), second)
	look(1, 2)
	want("both were back", look(absenceLooks, 1, first, second))
}
