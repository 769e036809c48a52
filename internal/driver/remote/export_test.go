package remote

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// IsUnclear reports whether a box may have been made by a call without answer.
func (d *Driver) IsUnclear(id sandbox.ID) bool { return isUnclear(d, id) }

// SetCancelTimeout sets the timeout of canceled calls until reset is called. No driver may exist.
func SetCancelTimeout(d time.Duration) (reset func()) {
	before := cancelTimeout
	cancelTimeout = d
	return func() { cancelTimeout = before }
}

var (
	NewConn = newConn
	Splice  = splice
)

// TakePlace takes the place of a transfer to the worker.
func (d *Driver) TakePlace(ctx context.Context, w sandbox.WorkspaceID) (release func(), err error) {
	return d.stager.places.Acquire(ctx, w, nil)
}

// Waiting returns the number of transfers that wait for a place.
func (d *Driver) Waiting() int { return d.stager.places.Waiting() }

// TakeKept takes the place of a checkpoint on the worker.
func (d *Driver) TakeKept(ctx context.Context, w sandbox.WorkspaceID) (release func(), err error) {
	return d.stager.kept.Acquire(ctx, w, nil)
}

// WaitingToBeKept returns the number of checkpoints that wait for a place on the worker.
func (d *Driver) WaitingToBeKept() int { return d.stager.kept.Waiting() }

// Kept is the number of checkpoints of workspaces on the worker at a time.
const Kept = maxKept

// Places is the number of transfers at a time.
const Places = maxTransfersAtOnce

// Saves is the number of saves at a time.
const Saves = maxSavesAtOnce

// SavesWaiting returns the number of saves that wait for a place.
func (d *Driver) SavesWaiting() int { return d.places.Waiting() }

// Sending returns the number of images that stages wait for.
func (d *Driver) Sending() int {
	d.stager.mu.Lock()
	defer d.stager.mu.Unlock()
	return len(d.stager.sending)
}
