package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGraceBeginsAnew lets the grace period of a process pass at the moment in which a client
// attaches and leaves again: the first timer must not end the second period.
func TestGraceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{grace: time.Minute, out: newOutput(1<<10, false), child: child{reaper: newReaper(false), gone: true}}
		p.mu.Lock()
		p.startDetachTimer()
		time.Sleep(p.grace) // the timer fires now and waits for the lock
		p.stopDetachTimer()
		p.startDetachTimer()
		p.mu.Unlock()
		synctest.Wait()
		if p.killing.Load() {
			t.Error("the process was killed although its grace had begun anew")
		}
		time.Sleep(p.grace)
		synctest.Wait()
		if !p.killing.Load() {
			t.Error("the process lives on after its grace")
		}
	})
}
