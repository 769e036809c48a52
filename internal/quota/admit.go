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
	// Count is the number of sandboxes: new ones, or the one that is resumed; 0 for a build.
	Count int
	// Resumes says that the request is a resume: it takes no token, and what records it finds
	// out by itself whether there is room.
	Resumes bool
	// MaxWait is the time for which the request may wait; 0 is not at all.
	MaxWait time.Duration
}

// Admit calls record when it is the turn of the request and there may be room; record decides.
// Record returns the number of sandboxes that are new: those that were there already need no
// room. While there is no room, Admit waits for r.MaxWait.
//
// Errors: record's; QuotaExceeded and Unavailable, naming the limit without room; the context's;
// Unavailable when the server stops.
func (c *Controller) Admit(ctx context.Context, r Request, record func(sandbox.Admission) (int, error)) error {
	err := c.admitWithDisk(ctx, r, record)
	if r.MaxWait <= 0 || !passes(err) {
		return err
	}
	return c.queue.wait(ctx, r, err, func(w *waiter) error {
		_, err := c.try(ctx, r, w, record)
		return err
	})
}

// admitWithDisk is Admit for a request that does not wait in the queue. While sandboxes are
// being ended to free the disk it waits for that, so that whoever fills the disk keeps nobody
// else from creating. It waits in memory: the database sees each request once before and once
// after.
func (c *Controller) admitWithDisk(ctx context.Context, r Request, record func(sandbox.Admission) (int, error)) error {
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

// diskSettled reports whether the disk has room for a sandbox, or nothing is being done to make
// some.
func (c *Controller) diskSettled(waited time.Duration) (free, hopeless bool) {
	free = c.disk.CheckFree(c.cfg.SandboxFreeDisk) == nil
	return free, !free && waited >= diskGrace && !c.disk.Evicting()
}

// try calls record once, for the waiter w or for a request that does not wait. DiskLow reports
// that the request was refused because the disk of the server is nearly full.
func (c *Controller) try(ctx context.Context, r Request, w *waiter, record func(sandbox.Admission) (int, error)) (diskLow bool, err error) {
	if r.Resumes {
		_, err := record(sandbox.Admission{})
		return false, err
	}
	limits, err := c.Limits(ctx, r.Workspace)
	if err != nil {
		return false, err
	}
	a := c.Admission(r.Workspace)
	c.queue.order(&a, r.Workspace, w)
	giveBack, err := c.buckets.take(r.Workspace, r.Count, limits[sandbox.LimitCreates], time.Now())
	if err != nil {
		giveBack = func(int) {}
	}
	low := c.disk.CheckFree(c.cfg.SandboxFreeDisk)
	a.Refuse = cmp.Or(a.Refuse, err, low)
	fresh := 0
	err = c.Record(ctx, a, r.Workspace, func(a sandbox.Admission) (err error) {
		fresh, err = record(a)
		return err
	})
	giveBack(r.Count - fresh)
	return low != nil && errors.Is(err, low), err
}

// Admission returns what there must be room in for something of a workspace.
func (c *Controller) Admission(ws sandbox.WorkspaceID) sandbox.Admission {
	return sandbox.Admission{Quota: c.cfg.Quota, Held: c.disk.Held(ws), MaxLive: c.cfg.MaxSandboxes, Most: c.cfg.Promise}
}

// ResumeAdmission is Admission for a sandbox that is resumed. It takes free room of the workspace
// before requests that wait for more: calls that wake a sandbox do not wait, and would fail
// for as long as one create does.
func (c *Controller) ResumeAdmission(ws sandbox.WorkspaceID) sandbox.Admission {
	a := c.Admission(ws)
	c.queue.takeTurns(&a, ws)
	return a
}

// Released has waiting requests try again: something may have made room.
func (c *Controller) Released() {
	c.queue.wakeAll()
	c.diskWait.changed.Send()
	c.released.Send()
}

// Changed returns a channel that the next [Controller.Released] closes.
func (c *Controller) Changed() <-chan struct{} { return c.released.Wait() }

// StopWaiting refuses all waiting requests, and those that would wait from then on: the server
// stops. Idempotent.
func (c *Controller) StopWaiting() { c.queue.stopped() }

// Waiting returns the number of waiting requests of a workspace.
func (c *Controller) Waiting(ws sandbox.WorkspaceID) int { return c.queue.length(ws) }

// WaitingForServer returns the workspaces whose first waiting request found the server full,
// the next to be admitted first.
func (c *Controller) WaitingForServer() []sandbox.WorkspaceID { return c.queue.waitingForServer() }

// Tidy forgets workspaces of which nothing need be remembered.
func (c *Controller) Tidy(now time.Time) { c.buckets.tidy(now) }
