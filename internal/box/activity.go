package box

import (
	"sync/atomic"
	"time"
)

// Activity is the use of a sandbox by others: calls into it, open connections to its ports,
// and commands that run. The zero value has none. It is safe for concurrent use.
type Activity struct {
	last     atomic.Int64 // Unix nanoseconds
	ongoing  atomic.Int64 // calls, connections and commands under way
	recorded atomic.Int64 // last, as the store has it
}

// At notes activity at some time. The last activity only moves forward.
func (a *Activity) At(t time.Time) {
	n := t.UnixNano()
	for {
		last := a.last.Load()
		if n <= last || a.last.CompareAndSwap(last, n) {
			return
		}
	}
}

// Last returns the time of the last activity, which is now while something is under way;
// zero for none.
func (a *Activity) Last() time.Time {
	if a.ongoing.Load() > 0 {
		return time.Now().UTC()
	}
	if n := a.last.Load(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// Begin counts an activity as under way until end is called, once.
func (a *Activity) Begin() (end func()) {
	a.ongoing.Add(1)
	return func() {
		a.At(time.Now())
		a.ongoing.Add(-1)
	}
}

// Open counts a connection as under way until closed is called, once. Its last activity is its
// last byte, which its user notes with At: clients close idle connections late.
func (a *Activity) Open() (closed func()) {
	a.ongoing.Add(1)
	return func() { a.ongoing.Add(-1) }
}

// Unrecorded returns the last activity if the recorded activity is behind it by at least lag,
// and zero otherwise.
func (a *Activity) Unrecorded(lag time.Duration) time.Time {
	last := a.Last()
	if last.IsZero() || last.UnixNano() < a.recorded.Load()+int64(lag) {
		return time.Time{}
	}
	return last
}

// Recorded notes that the store has the last activity.
func (a *Activity) Recorded(last time.Time) { a.recorded.Store(last.UnixNano()) }
