package lifecycle

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// activityInterval is how far the recorded last activity may lag behind.
const activityInterval = 15 * time.Second

// activity is the use of a sandbox by others. What counts: a call into it, an
// open connection to one of its ports, and a command that runs.
type activity struct {
	last    atomic.Int64 // Unix nanoseconds
	holds   atomic.Int64 // of what goes on
	written atomic.Int64 // last, as the store has it
}

// at notes activity at some time. The clock only goes forward.
func (a *activity) at(t time.Time) {
	n := t.UnixNano()
	for {
		last := a.last.Load()
		if n <= last || a.last.CompareAndSwap(last, n) {
			return
		}
	}
}

// time returns the last activity, which is now while something goes on; zero for none.
func (a *activity) time() time.Time {
	if a.holds.Load() > 0 {
		return time.Now().UTC()
	}
	if n := a.last.Load(); n != 0 {
		return time.Unix(0, n).UTC()
	}
	return time.Time{}
}

// hold notes that something goes on until the returned function is called, once.
func (a *activity) hold() (release func()) {
	a.holds.Add(1)
	return func() {
		a.at(time.Now())
		a.holds.Add(-1)
	}
}

// held is a connection into a sandbox, which counts as activity while it is
// open. Its last activity is the last byte, not the close: those who keep
// connections for later close them late. What breaks it has a code when it was
// that the sandbox was saved.
type held struct {
	net.Conn
	passage *passage
	tunnel  bool // through the agent, so that every saving breaks it
	closed  atomic.Bool
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.passage.box.activity.at(time.Now())
	}
	return n, h.explain(err)
}

func (h *held) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	if n > 0 {
		h.passage.box.activity.at(time.Now())
	}
	return n, h.explain(err)
}

// explain says of an error what it comes from.
func (h *held) explain(err error) error {
	var timeout net.Error
	switch {
	case err == nil, err == io.EOF, h.closed.Load(), errors.As(err, &timeout) && timeout.Timeout():
		return err
	case h.tunnel && h.passage.saved() || !h.passage.goesOn():
		return sandbox.Wrap(sandbox.Unavailable, err,
			"sandbox %q was saved, paused or taken back to a checkpoint while the connection was open; try again", h.passage.box.view().sb.Name)
	default:
		return err
	}
}

func (h *held) Close() error {
	if h.closed.CompareAndSwap(false, true) {
		h.passage.box.activity.holds.Add(-1)
	}
	return h.Conn.Close()
}

// halfCloser is a connection one direction of which can be closed.
type halfCloser interface{ CloseWrite() error }

// heldHalf is held for a halfCloser.
type heldHalf struct{ *held }

func (h heldHalf) CloseWrite() error { return h.Conn.(halfCloser).CloseWrite() }

// hold counts c, which was made with p, as activity of its box until it is closed.
func (p *passage) hold(c net.Conn, tunnel bool) net.Conn {
	p.box.activity.holds.Add(1)
	h := &held{Conn: c, passage: p, tunnel: tunnel}
	if _, ok := c.(halfCloser); ok {
		return heldHalf{h}
	}
	return h
}

// working asks the agent whether a command runs in the sandbox. The image's own
// command does not count: it runs as long as the sandbox.
func (s *Service) working(b *box) bool {
	ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
	defer cancel()
	list, err := b.agent.Processes(ctx)
	if err != nil {
		s.log.Warn("cannot ask an idle sandbox whether it works", "sandbox", b.id, "error", err)
		return false
	}
	for _, p := range list {
		if p.Exit == nil && p.ID != agentapi.MainID {
			return true
		}
	}
	return false
}

// saveActivity records the last activity of all sandboxes where that is behind
// by at least lag.
func (s *Service) saveActivity(ctx context.Context, lag time.Duration) {
	at := map[sandbox.ID]time.Time{}
	for _, b := range s.boxes.all() {
		last := b.activity.time()
		if last.IsZero() || last.UnixNano() < b.activity.written.Load()+int64(lag) {
			continue
		}
		at[b.id] = last
	}
	if err := s.store.NoteActivity(ctx, at); err != nil {
		s.log.Error("activity not recorded, trying again soon", "error", err)
		return
	}
	for id, last := range at {
		if b := s.boxes.byID(id); b != nil {
			b.activity.written.Store(last.UnixNano())
		}
	}
}

// recallActivity takes over what the server before recorded. What it did not get
// around to record counts: a sandbox is rather idle for too long than ended too early.
func (b *box) recallActivity(now time.Time) {
	sb := b.view().sb
	last := sb.LastActivityAt
	if last.IsZero() {
		last = sb.UpdatedAt
	}
	if last = last.Add(activityInterval); last.After(now) {
		last = now
	}
	b.activity.at(last)
}
