package envd

import (
	"strconv"
	"testing"
	"time"

	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem"
)

// TestGiveBack keeps the events of a request whose client leaves, in their order, and the newest of too many.
func TestGiveBack(t *testing.T) {
	w := &watcher{timer: time.AfterFunc(time.Hour, func() {})}
	defer w.timer.Stop()
	hold := func(from, to int) {
		for i := from; i < to; i++ {
			w.buffer(&pb.FilesystemEvent{Name: strconv.Itoa(i)})
		}
	}
	check := func(from, to int) {
		t.Helper()
		events := w.take()
		if len(events) != to-from {
			t.Fatalf("%d events, want %d", len(events), to-from)
		}
		for i, e := range events {
			if e.GetName() != strconv.Itoa(from+i) {
				t.Fatalf("event %d is %s", from+i, e.GetName())
			}
		}
	}
	hold(0, 3)
	taken := w.take()
	hold(3, 5)
	w.giveBack(taken)
	check(0, 5)
	hold(0, bufferedEvents)
	taken = w.take()
	hold(bufferedEvents, bufferedEvents+5)
	w.giveBack(taken)
	check(5, bufferedEvents+5)
	check(0, 0)
}
