package agent

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper waits for children. A child's pid is not reused before its entry is marked as ended:
// signals are sent under mu, so they never hit another process.
//
// As init there is a single wait for all children, because orphans become our children at any time.
// Otherwise each child has its own wait, which leaves other children of the process alone.
type reaper struct {
	init bool

	mu       sync.Mutex
	children map[int]*child // guarded by mu
	started  chan struct{}  // wakes waitAll: there is a child again
}

// child is a started process that has not been reaped.
type child struct {
	reaper *reaper
	pid    int
	// last is called under reaper.mu while the child is a zombie, so that its pid and its family
	// can still be found.
	last func()
	// ended is called once after the child was reaped.
	ended  func(unix.WaitStatus)
	gone   bool          // guarded by reaper.mu
	reaped chan struct{} // closed when the child has been reaped
}

func newReaper(init bool) *reaper {
	r := &reaper{init: init, children: make(map[int]*child), started: make(chan struct{}, 1)}
	if init {
		go r.waitAll()
	}
	return r
}

// start calls spawn, which starts a process and returns its pid, and watches that process.
func (r *reaper) start(c *child, spawn func() (int, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := spawn()
	if err != nil {
		return err
	}
	c.reaper, c.pid, c.reaped = r, pid, make(chan struct{})
	r.children[pid] = c
	if !r.init {
		go r.waitOne(pid)
		return nil
	}
	select {
	case r.started <- struct{}{}:
	default:
	}
	return nil
}

// alive calls f with the child's pid unless the child has ended, and reports whether it did.
func (c *child) alive(f func(pid int)) bool {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	if c.gone {
		return false
	}
	f(c.pid)
	return true
}

// waitAll reaps every child of this process for ever.
func (r *reaper) waitAll() {
	for {
		var info siginfo
		err := waitid(unix.P_ALL, 0, &info)
		switch {
		case err == nil:
			r.reap(info.pid())
		case errors.Is(err, unix.ECHILD):
			<-r.started
		}
	}
}

// waitOne reaps one child.
func (r *reaper) waitOne(pid int) {
	var info siginfo
	for waitid(unix.P_PID, pid, &info) == unix.EINTR {
	}
	r.reap(pid)
}

// reap reaps a zombie and notifies its owner.
func (r *reaper) reap(pid int) {
	r.mu.Lock()
	c := r.children[pid]
	if c != nil && c.last != nil {
		c.last()
	}
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err != unix.EINTR {
			break
		}
	}
	if c != nil {
		c.gone = true
		close(c.reaped)
		delete(r.children, pid)
	}
	r.mu.Unlock()
	if c != nil {
		c.ended(status)
	}
}
