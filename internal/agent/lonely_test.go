package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGraceBeginsAnew has a process's grace pass at the moment in which somebody
// attaches and leaves again: it must not be taken for the end of the second one.
func TestGraceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{grace: time.Minute, out: newOutput(1<<10, false), child: child{reaper: newReaper(false), gone: true}}
		p.mu.Lock()
		p.startLonely()
		time.Sleep(p.grace) // the timer fires now, too, and waits for the lock
		p.stopLonely()
		p.startLonely()
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
