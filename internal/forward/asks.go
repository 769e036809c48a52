package forward

import (
	"sync"
	"time"
)

const (
	// maxVain bounds how often a client has the other servers asked in vain, in each askTime.
	maxVain = 60
	askTime = time.Minute
	// maxAskers bounds the clients that are counted in an askTime; further clients count together.
	maxAskers = 4096
)

// asks counts how often clients have had all servers asked for what none has. Its zero value counts nothing yet. Safe for concurrent use.
type asks struct {
	mu    sync.Mutex
	begun time.Time      // guarded by mu; of the present askTime
	vain  map[string]int // guarded by mu; by caller
}

// key returns the key of a caller in the present askTime.
//
// Preconditions: a.mu is held.
func (a *asks) key(caller string, now time.Time) string {
	if now.Sub(a.begun) >= askTime {
		a.begun, a.vain = now, map[string]int{}
	}
	if _, known := a.vain[caller]; !known && len(a.vain) >= maxAskers {
		return ""
	}
	return caller
}

// permit reports whether a caller may have the other servers asked.
func (a *asks) permit(caller string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.vain[a.key(caller, time.Now())] < maxVain
}

// inVain counts that no server has what a caller wants.
func (a *asks) inVain(caller string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.vain[a.key(caller, time.Now())]++
}
