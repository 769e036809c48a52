package remote

import (
	"slices"
	"testing"
)

// TestPushReportsWithoutLock: layers are read on while a report is made; reports come one at a time and in order, and none after the end.
func TestPushReportsWithoutLock(t *testing.T) {
	const size = 3 * sendingStep
	s := &sending{total: size}
	var reports []int64
	s.progress = func(done, total int64) {
		if !s.mu.TryLock() {
			t.Fatal("a report is made under the lock")
		}
		s.mu.Unlock()
		reports = append(reports, done)
		if len(reports) == 1 { // another layer
			s.add(sendingStep)
			s.add(10)
		}
	}
	s.add(sendingStep - 1)
	s.add(1)
	if want := []int64{sendingStep, 2*sendingStep + 10}; !slices.Equal(reports, want) {
		t.Fatalf("reports = %v, want %v", reports, want)
	}
	s.end()
	s.add(sendingStep)
	if len(reports) != 2 {
		t.Errorf("there is a report after the end: %v", reports)
	}
}
