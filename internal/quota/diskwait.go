package quota

import (
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// diskMaxWait bounds the time for which a request waits while sandboxes are ended that
	// fill the disk, and diskGrace the time until it is known whether there are any.
	diskMaxWait = 20 * time.Second
	diskGrace   = time.Second
	// diskPoll is the interval at which the disk is looked at while requests wait.
	diskPoll = 100 * time.Millisecond
)

// diskWait holds the requests that wait for the disk of the server. One of them polls the disk
// for all. Safe for concurrent use.
type diskWait struct {
	changed broadcast.Broadcast
	poller  chan struct{} // holds an element while a request polls

	mu      sync.Mutex
	waiting map[sandbox.WorkspaceID]int // guarded by mu
}

func newDiskWait() *diskWait {
	return &diskWait{poller: make(chan struct{}, 1), waiting: map[sandbox.WorkspaceID]int{}}
}

// wait returns when settled reports that the disk is free, with over true when waiting is useless:
// settled reports so, the request has waited since begin for too long, or too many requests of the
// workspace wait. Errors: the context's; Unavailable when stop is closed.
func (d *diskWait) wait(ctx context.Context, ws sandbox.WorkspaceID, begin time.Time, settled func(waited time.Duration) (free, hopeless bool), stop <-chan struct{}) (over bool, err error) {
	if !d.join(ws) {
		return true, nil
	}
	defer d.leave(ws)
	for {
		changed := d.changed.Wait()
		waited := time.Since(begin)
		free, hopeless := settled(waited)
		if hopeless || waited >= diskMaxWait {
			return true, nil
		}
		if free {
			return false, nil
		}
		select {
		case <-changed:
		case d.poller <- struct{}{}:
			err = d.poll(ctx, begin, settled, stop)
			<-d.poller
			d.changed.Send() // another request polls from now on
		case <-ctx.Done():
			err = ctx.Err()
		case <-stop:
			err = errStopping()
		}
		if err != nil {
			return false, err
		}
	}
}

// poll returns when the disk is settled, or the request has waited for too long.
func (d *diskWait) poll(ctx context.Context, begin time.Time, settled func(time.Duration) (bool, bool), stop <-chan struct{}) error {
	ticker := time.NewTicker(diskPoll)
	defer ticker.Stop()
	for {
		waited := time.Since(begin)
		if free, hopeless := settled(waited); free || hopeless || waited >= diskMaxWait {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-stop:
			return errStopping()
		}
	}
}

// join counts a request that waits, and reports false when too many of its workspace do.
func (d *diskWait) join(ws sandbox.WorkspaceID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[ws] >= waitersMax {
		return false
	}
	d.waiting[ws]++
	return true
}

func (d *diskWait) leave(ws sandbox.WorkspaceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[ws]--; d.waiting[ws] == 0 {
		delete(d.waiting, ws)
	}
}
