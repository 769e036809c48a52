package quota

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Request asks for admission.
type Request struct {
	Workspace sandbox.WorkspaceID
	// Count is the number of sandboxes: new sandboxes, or a sandbox that is resumed; 0 for a build.
	Count int
	// Resumes is set for a resume: it takes no token, and its record function checks the capacity
	// by itself.
	Resumes bool
	// MaxWait is the time for which the request may wait; 0 is not at all.
	MaxWait time.Duration
}

// Admit calls record when it is the turn of the request and capacity may be free; record decides.
// Record returns the number of new sandboxes; existing sandboxes need no capacity. While capacity
// is missing, Admit waits for r.MaxWait.
//
// Errors: record's; QuotaExceeded and Unavailable, naming the exhausted limit; the context's;
// Unavailable when the server stops.
func (c *Controller) Admit(ctx context.Context, r Request, record func(Admission) (int, error)) error {
	begin := time.Now()
	err := c.admit(ctx, r, record)
	c.waits.WithLabelValues(admission(err)).Observe(time.Since(begin).Seconds())
	return err
}

// admit is [Controller.Admit], not measured.
func (c *Controller) admit(ctx context.Context, r Request, record func(Admission) (int, error)) error {
	err := c.admitWithDisk(ctx, r, record)
	if r.MaxWait <= 0 || !passes(err) {
		return err
	}
	return c.queue.wait(ctx, r, err, func(w *waiter) error {
		_, err := c.try(ctx, r, w, record)
		return err
	})
}

// admitWithDisk is Admit for a request that does not wait in the queue. While sandboxes are being
// ended to free the disk it waits for that, so that a workspace that fills the disk does not keep
// others from creating. It waits in memory: the database sees each request once before and once
// after.
func (c *Controller) admitWithDisk(ctx context.Context, r Request, record func(Admission) (int, error)) error {
	begin := time.Now()
	for {
		diskLow, err := c.try(ctx, r, nil, record)
		if !diskLow {
			return err
		}
		over, waitErr := c.diskWait.wait(ctx, r.Workspace, begin, c.diskSettled, c.queue.stop)
		switch {
		case waitErr != nil:
			return waitErr
		case over:
			return err
		}
	}
}

// diskSettled reports whether the disk has space for a sandbox, or nothing is being done to free
// some.
func (c *Controller) diskSettled(waited time.Duration) (free, hopeless bool) {
	free = c.disk.CheckFree(c.cfg.SandboxFreeDisk) == nil
	return free, !free && waited >= diskGrace && !c.disk.Evicting()
}

// try calls record once, for the waiter w or for a request that does not wait. DiskLow reports
// that the request was refused because the disk of the server is nearly full.
func (c *Controller) try(ctx context.Context, r Request, w *waiter, record func(Admission) (int, error)) (diskLow bool, err error) {
	if r.Resumes {
		_, err := record(Admission{})
		return false, err
	}
	limits, err := c.Limits(ctx, r.Workspace)
	if err != nil {
		return false, err
	}
	a := c.Admission(r.Workspace)
	c.queue.order(&a, r.Workspace, w)
	giveBack := func(int) {}
	if a.SharesRate = c.cfg.Owner.Ranges() != sandbox.AllRanges; !a.SharesRate {
		var back func(int)
		if back, err = c.buckets.take(r.Workspace, r.Count, limits[LimitCreates], time.Now()); err == nil {
			giveBack = back
		}
	}
	low := c.disk.CheckFree(c.cfg.SandboxFreeDisk)
	a.Refuse = cmp.Or(a.Refuse, err, low)
	fresh := 0
	err = c.Record(ctx, a, r.Workspace, func(a Admission) (err error) {
		fresh, err = record(a)
		return err
	})
	giveBack(r.Count - fresh)
	return low != nil && errors.Is(err, low), err
}

// Admission returns the amounts that must fit into the quota together with an object of a workspace.
func (c *Controller) Admission(ws sandbox.WorkspaceID) Admission {
	return Admission{Limits: c.defaults(), Unrecorded: c.disk.Unrecorded(ws), MaxLive: c.cfg.MaxSandboxes, Most: c.most()}
}

// ResumeAdmission is Admission for a sandbox that is resumed. It uses free capacity of the
// workspace before requests that wait for more: calls that resume a sandbox do not wait, and would
// fail for as long as a create waits.
func (c *Controller) ResumeAdmission(ws sandbox.WorkspaceID) Admission {
	a := c.Admission(ws)
	c.queue.takeTurns(&a, ws)
	return a
}

// Released wakes waiting requests to try again, because capacity may be free.
func (c *Controller) Released() {
	c.queue.wakeAll()
	c.diskWait.changed.Send()
	c.released.Send()
}

// Follow calls Released after each close of a channel that released returns, until ctx ends: other servers may have freed capacity.
func (c *Controller) Follow(ctx context.Context, released func() <-chan struct{}) {
	for next := released(); ; {
		select {
		case <-next:
			next = released() // before the requests try again
			c.Released()
		case <-ctx.Done():
			return
		}
	}
}

// Changed returns a channel that the next [Controller.Released] closes.
func (c *Controller) Changed() <-chan struct{} { return c.released.Wait() }

// StopWaiting refuses all waiting requests, and all later requests that would have to wait: the
// server stops. Idempotent.
func (c *Controller) StopWaiting() { c.queue.stopped() }

// Waiting returns the number of waiting requests of a workspace.
func (c *Controller) Waiting(ws sandbox.WorkspaceID) int { return c.queue.length(ws) }

// WaitingForServer returns the workspaces whose first waiting request found the server full,
// the next to be admitted first.
func (c *Controller) WaitingForServer() []sandbox.WorkspaceID { return c.queue.waitingForServer() }

// Tidy forgets workspaces of which nothing need be remembered.
func (c *Controller) Tidy(now time.Time) { c.buckets.tidy(now) }
