package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// diskPatience is for how long a new sandbox waits for others to be ended that fill
	// the disk, and diskGrace for how long until it is known that there are some.
	diskPatience = 20 * time.Second
	diskGrace    = time.Second
	diskPoll     = 50 * time.Millisecond
)

// entry is who wants to be let in.
type entry struct {
	workspace sandbox.WorkspaceID
	count     int // of sandboxes: new ones, or the one that is resumed; 0 of a build
	resumes   bool
	patience  time.Duration // for how long it may wait
}

// letIn has record record what an entry is about when there is room for it and it is
// its turn. Record answers how many new sandboxes there are by it: those that were
// there already need no room. Where there is none, letIn waits for as long as it may.
//
// Errors: those of record; QuotaExceeded and Unavailable with what there is no
// room in; the context's; Unavailable when the service closes.
func (s *Service) letIn(ctx context.Context, e entry, record func(sandbox.Admission) (int, error)) error {
	err := s.tryWithDisk(ctx, e, record)
	if e.patience <= 0 || !passes(err) {
		return err
	}
	return s.waitInLine(ctx, e, err, func(w *waiter) error { return s.tryIn(ctx, e, w, record) })
}

// waitInLine has an entry that was refused with err wait in line, and try for room whenever it is
// the first and there may be some. Errors: as [Service.letIn].
func (s *Service) waitInLine(ctx context.Context, e entry, err error, try func(*waiter) error) error {
	w := &waiter{count: e.count}
	if err := s.gate.join(e.workspace, w); err != nil {
		return err
	}
	in := false
	defer func() { s.gate.leave(e.workspace, w, in) }()
	deadline := time.NewTimer(e.patience)
	defer deadline.Stop()
	for {
		changed := s.gate.room.Wait()
		if s.gate.stopped() {
			return errStopping()
		}
		if s.gate.first(e.workspace, w) {
			if err = try(w); !passes(err) {
				in = err == nil
				return err
			}
			s.gate.refused(e.workspace, err)
		}
		poll := time.NewTimer(roomPoll)
		select {
		case <-changed:
		case <-poll.C:
		case <-deadline.C:
			poll.Stop()
			return err
		case <-ctx.Done():
			poll.Stop()
			return ctx.Err()
		case <-s.gate.shut:
			poll.Stop()
			return errStopping()
		}
		poll.Stop()
	}
}

// tryWithDisk is tryIn for somebody who is not in the line. While sandboxes are being ended
// to free the disk it waits for that, so that what fills the disk refuses nobody.
func (s *Service) tryWithDisk(ctx context.Context, e entry, record func(sandbox.Admission) (int, error)) error {
	begin := time.Now()
	poll := time.NewTicker(diskPoll)
	defer poll.Stop()
	for {
		err := s.tryIn(ctx, e, nil, record)
		waited := time.Since(begin)
		if !errors.Is(err, errDiskLow) || waited >= diskPatience || waited >= diskGrace && s.evicting.Load() == 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.gate.shut:
			return errStopping()
		}
	}
}

// StopWaiting has everybody who waits for room told that the server stops, and
// nobody wait from then on: who would is told the same. Idempotent.
func (s *Service) StopWaiting() { s.gate.stop() }

// errStopping is for who waits when the server stops.
func errStopping() error {
	e := sandbox.Errorf(sandbox.Unavailable, "the server is shutting down, and nobody can wait for room any more; try again")
	e.RetryAfter = stoppingRetry
	return e
}

// stoppingRetry is how long a restart takes, roughly.
const stoppingRetry = 5 * time.Second

// passes reports whether err is of the kind that goes away by itself.
func passes(err error) bool {
	var e *sandbox.Error
	return errors.As(err, &e) && e.RetryAfter > 0 && !errors.Is(err, sandbox.ErrNeverFits)
}

// tryIn is letIn without waiting, for w in the line or for somebody who is not in it.
func (s *Service) tryIn(ctx context.Context, e entry, w *waiter, record func(sandbox.Admission) (int, error)) error {
	if e.resumes { // which costs no ticket, and finds out by itself what there is room for
		_, err := record(sandbox.Admission{})
		return err
	}
	limits, err := s.limits(ctx, e.workspace)
	if err != nil {
		return err
	}
	a := s.admission(e.workspace)
	s.gate.order(&a, e.workspace, w)
	giveBack, err := s.gate.tickets(e.workspace, e.count, limits[sandbox.LimitCreates], time.Now())
	if err != nil {
		giveBack = func(int) {}
	}
	a.Refuse = cmp.Or(a.Refuse, err, s.saved.enough(s.cfg.SandboxFreeDisk))
	fresh := 0
	err = s.admit(ctx, a, e.workspace, func(a sandbox.Admission) (err error) {
		fresh, err = record(a)
		return err
	})
	giveBack(e.count - fresh)
	return err
}

// admission is what there must be room in for something of the workspace.
func (s *Service) admission(ws sandbox.WorkspaceID) sandbox.Admission {
	return sandbox.Admission{Quota: s.cfg.Quota, Held: s.held(ws), MaxLive: s.cfg.MaxSandboxes, Most: s.cfg.Promise}
}

// resumption is what there must be room in for a sandbox to be resumed. It takes room of
// the workspace that there is before those who wait for more: calls that wake a sandbox
// do not wait, and would fail for as long as one create does.
func (s *Service) resumption(sb *sandbox.Sandbox) sandbox.Admission {
	a := s.admission(sb.Workspace)
	s.gate.byTurns(&a, sb.Workspace)
	return a
}
