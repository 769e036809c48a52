package audit

import "sync"

// signal is a condition that goroutines can wait for. Safe for concurrent use.
type signal struct {
	mu     sync.Mutex
	raised chan struct{} // guarded by mu; closed while the signal is on
	is     bool          // guarded by mu
}

// newSignal returns a signal that is off.
func newSignal() *signal { return &signal{raised: make(chan struct{})} }

// set turns the signal on or off.
func (s *signal) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on == s.is:
		return
	case on:
		close(s.raised)
	default:
		s.raised = make(chan struct{})
	}
	s.is = on
}

// on returns a channel that is closed when the signal is on, or turns on next.
func (s *signal) on() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raised
}

// isOn reports whether the signal is on.
func (s *signal) isOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.is
}
