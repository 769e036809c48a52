package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/libp2p/go-yamux/v5"
	"golang.org/x/sync/semaphore"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// box has the handle of a box, and which driver of the worker knows it.
type box struct {
	id     sandbox.ID
	handle driver.Handle

	turn     *semaphore.Weighted // 1
	instance string              // guarded by turn; of the worker's driver that knows the box
	gone     bool                // guarded by turn; it has ended while its worker was away

	dials, agentDials *semaphore.Weighted // maxBoxDials

	plugging *semaphore.Weighted // 1; before turn
	link     *link               // guarded by plugging; nil without interface
}

// box returns a box that this driver knows.
func (d *Driver) box(id sandbox.ID) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.boxes[id]; b != nil {
		return b, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no box %s", id)
}

// keep records a box.
func (d *Driver) keep(id sandbox.ID, h driver.Handle, instance string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boxes[id] = &box{
		id: id, handle: h, instance: instance, turn: semaphore.NewWeighted(1), plugging: semaphore.NewWeighted(1),
		dials: semaphore.NewWeighted(maxBoxDials), agentDials: semaphore.NewWeighted(maxBoxDials),
	}
}

// Adopt makes a box known to the driver of a worker that is away, as Recover does when the worker is there. The box is recovered at the next call
// for it that reaches the worker; if it has ended, Wait says so then.
func Adopt(d *Driver, id sandbox.ID, h driver.Handle) { d.keep(id, h, "") }

// known makes sure that the worker's driver knows the box: it is recovered on a driver that does not. Errors: errGone;
// as [session.call].
func (b *box) known(ctx context.Context, s *session) error {
	if err := b.turn.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer b.turn.Release(1)
	if b.gone {
		return errGone
	}
	if b.instance == s.instance {
		return nil
	}
	_, err := s.call(ctx, &request{Op: opRecover, ID: b.id, Handle: b.handle})
	switch {
	case err == nil:
		b.instance = s.instance
	case sandbox.CodeOf(err) == sandbox.NotFound:
		b.gone = true
		return errGone
	}
	return err
}

// on makes a call about a box that this driver knows, and returns its stream and answer. A call that may be repeated
// is, on another connection when one breaks; others return errOutcome. It waits for a worker as long as patience, 0:
// until ctx ends.
func (d *Driver) on(ctx context.Context, req *request, repeat bool, patience time.Duration) (*yamux.Stream, *response, error) {
	b, err := d.box(req.ID)
	if err != nil {
		return nil, nil, err
	}
	for {
		s, err := d.current(ctx, patience)
		if err != nil {
			return nil, nil, err
		}
		var stream *yamux.Stream
		var answer *response
		sent := false
		if err = b.known(ctx, s); err == nil {
			sent = true
			stream, answer, err = s.open(ctx, req)
		}
		switch {
		case !errors.Is(err, errLost):
			return stream, answer, err
		case sent && !repeat && !errors.Is(err, errNotSent), !s.over(ctx):
			return nil, nil, errOutcome
		}
	}
}

// about makes a call about a box that has one answer, see on.
func (d *Driver) about(ctx context.Context, req *request, repeat bool, patience time.Duration) (*response, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	stream, answer, err := d.on(ctx, req, repeat, patience)
	if stream != nil {
		_ = stream.Close()
	}
	return answer, err
}

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	return d.makeBox(ctx, &request{Op: opCreate, ID: spec.ID}, spec)
}

// makeBox makes a call that makes a box.
func (d *Driver) makeBox(ctx context.Context, req *request, spec driver.Spec) (_ driver.Handle, err error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	if spec.RootFS, err = digestOf(spec.RootFS); err != nil {
		return nil, err
	}
	req.Spec = &spec
	answered := false
	defer func() {
		if req.Op == opRestore && !answered && errors.Is(err, context.DeadlineExceeded) {
			// Otherwise the caller would take the checkpoint for useless, which no answer does not say.
			err = sandbox.Wrap(sandbox.Unavailable, fmt.Errorf("%w: %w", driver.ErrAway, err), "the worker did not answer in time")
		}
	}()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if b, err := d.box(req.ID); err == nil { // without an answer it would be destroyed
		if err := b.absent(ctx); err != nil {
			return nil, err
		}
	}
	for {
		s, err := d.current(ctx, d.cfg.Patience)
		if err != nil {
			return nil, err
		}
		if err := d.clear(ctx, s, req.ID); err != nil {
			return nil, err
		}
		answer, err := s.call(ctx, req)
		answered = answer != nil
		switch {
		case errors.Is(err, errNotSent) && s.over(ctx):
			continue
		case err == nil && len(answer.Handle) > maxHandle:
			d.destroySoon(ctx, req.ID)
			return nil, sandbox.Errorf(sandbox.Internal, "the worker's handle of box %s is too long", req.ID)
		case err == nil:
			d.keep(req.ID, answer.Handle, s.instance)
			return answer.Handle, nil
		case answer == nil:
			d.destroySoon(ctx, req.ID)
		}
		if errors.Is(err, errLost) {
			err = errOutcome
		}
		return nil, err
	}
}

// absent returns an error unless the box is gone.
func (b *box) absent(ctx context.Context) error {
	if b.turn.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer b.turn.Release(1)
	if b.gone {
		return nil
	}
	return sandbox.Errorf(sandbox.Exists, "box %s exists", b.id)
}

// destroySoon destroys a box that may have been made, if the worker is back within its patience.
func (d *Driver) destroySoon(ctx context.Context, id sandbox.ID) {
	d.mu.Lock()
	d.unclear[id] = true
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Patience)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	if s, err := d.current(ctx, 0); err == nil {
		_ = d.clear(ctx, s, id) // otherwise Attach does
	}
}

// clear destroys a box that may have been made by a call without answer. One does at a time: another would destroy
// the box that is made next.
func (d *Driver) clear(ctx context.Context, s *session, id sandbox.ID) error {
	if !isUnclear(d, id) {
		return nil
	}
	if d.clearing.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer d.clearing.Release(1)
	if !isUnclear(d, id) {
		return nil
	}
	_, err := s.call(ctx, &request{Op: opDestroy, ID: id})
	if errors.Is(err, errLost) {
		return errOutcome
	}
	if err == nil {
		d.mu.Lock()
		delete(d.unclear, id)
		d.mu.Unlock()
	}
	return err
}

// isUnclear reports whether a box may have been made by a call without answer.
func isUnclear(d *Driver, id sandbox.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unclear[id]
}

// removeUnclear destroys all boxes that may have been made by calls without answers.
func (d *Driver) removeUnclear(ctx context.Context, s *session) {
	d.mu.Lock()
	ids := make([]sandbox.ID, 0, len(d.unclear))
	for id := range d.unclear {
		ids = append(ids, id)
	}
	d.mu.Unlock()
	for _, id := range ids {
		if err := d.clear(ctx, s, id); err != nil {
			d.cfg.Log.Warn("a box that may have been made is not destroyed yet", "box", id, "error", err)
		}
	}
}

// Start implements [driver.Driver].
func (d *Driver) Start(ctx context.Context, id sandbox.ID) error {
	_, err := d.about(ctx, &request{Op: opStart, ID: id}, false, d.cfg.Patience)
	return err
}

// Furnish implements [driver.Furnisher].
func (d *Driver) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (int, error) {
	digest, err := digestOf(rootfs)
	if err != nil {
		return 0, err
	}
	answer, err := d.about(ctx, &request{Op: opFurnish, ID: id, RootFS: digest}, false, d.cfg.Patience)
	if err != nil {
		return 0, err
	}
	return answer.Layers, nil
}

// Recover implements [driver.Driver]. It waits for a worker until ctx ends, because its callers give up a box that
// cannot be recovered.
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, h driver.Handle) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	for {
		s, err := d.current(ctx, 0)
		if err != nil {
			return err
		}
		b, _ := d.box(id)
		if b != nil {
			err = b.known(ctx, s)
		} else if _, err = s.call(ctx, &request{Op: opRecover, ID: id, Handle: h}); err == nil {
			d.keep(id, h, s.instance)
		}
		switch {
		case errors.Is(err, errGone):
			return sandbox.Errorf(sandbox.NotFound, "box %s has ended", id)
		case !errors.Is(err, errLost):
			return err
		case !s.over(ctx):
			return errOutcome
		}
	}
}

// Wait implements [driver.Driver]. It goes on while no worker is connected.
func (d *Driver) Wait(ctx context.Context, id sandbox.ID) (driver.Exit, error) {
	if !d.waits.TryAcquire(1) {
		return driver.Exit{}, sandbox.Errorf(sandbox.Unavailable, "the worker has too many sandboxes")
	}
	defer d.waits.Release(1)
	answer, err := d.about(ctx, &request{Op: opWait, ID: id}, true, 0)
	switch {
	case err == nil:
		return checkedExit(answer.Exit), nil
	case errors.Is(err, errGone):
		return driver.Exit{Cause: sandbox.CauseHostRestart, Lost: true, Detail: "its processes did not survive a restart of its worker"}, nil
	}
	return driver.Exit{}, err
}

// checkedExit returns the exit that a worker reports, as the contract has it.
func checkedExit(e driver.Exit) driver.Exit {
	if e.Cause != sandbox.CauseOOM && e.Cause != sandbox.CauseDestroyed {
		e.Cause = sandbox.CauseExited
	}
	e.Detail = sandbox.OneLine(e.Detail)
	return e
}

// Destroy implements [driver.Driver].
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	ctx, leave := d.enter(ctx)
	defer leave()
	b, _ := d.box(id) // it may be unknown
	if _, err := d.ask(ctx, &request{Op: opDestroy, ID: id}, d.cfg.Patience); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.unclear, id)
	if d.boxes[id] == b {
		delete(d.boxes, id)
	}
	d.mu.Unlock()
	if b != nil && b.plugging.Acquire(ctx, 1) == nil {
		defer b.plugging.Release(1)
		b.unlink()
	}
	return nil
}

// Dial implements [driver.Driver].
func (d *Driver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	ctx, leave := d.enter(ctx)
	defer leave()
	b, err := d.box(id)
	if err != nil {
		return nil, err
	}
	free, err := b.reserve(d, port)
	if err != nil {
		return nil, err
	}
	stream, _, err := d.on(ctx, &request{Op: opDial, ID: id, Port: port}, true, d.cfg.Patience)
	if err != nil {
		free()
		return nil, err
	}
	return newConn(stream, free), nil
}

// reserve counts a connection into a box until free is called. Connections to agents count apart, so that users of
// servers in boxes do not keep others from their boxes.
func (b *box) reserve(d *Driver, port uint16) (free func(), err error) {
	share, all := b.dials, d.dials
	if port == driver.AgentPort {
		share, all = b.agentDials, d.agentDials
	}
	if !share.TryAcquire(1) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "the worker has too many connections into the sandbox; try again")
	}
	if !all.TryAcquire(1) {
		share.Release(1)
		return nil, sandbox.Errorf(sandbox.Unavailable, "the worker has too many connections into sandboxes; try again")
	}
	return func() { share.Release(1); all.Release(1) }, nil
}

// Stats implements [driver.Driver].
func (d *Driver) Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error) {
	answer, err := d.about(ctx, &request{Op: opStats, ID: id}, true, d.cfg.Patience)
	if err != nil {
		return sandbox.Stats{}, err
	}
	s := answer.Stats
	for _, n := range []*int64{
		&s.MemoryBytes, &s.MemoryLimit, &s.CPUNanos, &s.CPULimitMilli, &s.DiskBytes, &s.DiskLimit, &s.Processes, &s.HostPSSBytes,
		&s.SentBytes, &s.ReceivedBytes,
	} {
		*n = max(*n, 0)
	}
	return s, nil
}

// Usage implements [driver.Meter].
func (d *Driver) Usage(ctx context.Context, id sandbox.ID) (driver.Usage, error) {
	answer, err := d.about(ctx, &request{Op: opUsage, ID: id}, true, d.cfg.Patience)
	if err != nil {
		return driver.Usage{}, err
	}
	u := answer.Usage
	return driver.Usage{CPU: max(u.CPU, 0), MemoryBytes: max(u.MemoryBytes, 0)}, nil
}
