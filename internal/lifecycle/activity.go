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

// held is a connection into a sandbox, which counts as activity while it is
// open. Its last activity is the last byte, not the close: those who keep
// connections for later close them late. What breaks it has a code when it was
// that the sandbox was saved.
type held struct {
	net.Conn
	passage *passage
	tunnel  bool // through the agent, so that every saving breaks it
	closed  atomic.Bool
	release func() // ends the activity
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.passage.box.Activity.At(time.Now())
	}
	return n, h.explain(err)
}

func (h *held) Write(p []byte) (int, error) {
	n, err := h.Conn.Write(p)
	if n > 0 {
		h.passage.box.Activity.At(time.Now())
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
			"sandbox %q was saved, paused or taken back to a checkpoint while the connection was open; try again", h.passage.box.View().Sandbox.Name)
	default:
		return err
	}
}

func (h *held) Close() error {
	if h.closed.CompareAndSwap(false, true) {
		h.release()
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
	h := &held{Conn: c, passage: p, tunnel: tunnel, release: p.box.Activity.Open()}
	if _, ok := c.(halfCloser); ok {
		return heldHalf{h}
	}
	return h
}

// working asks the agent whether a command runs in the sandbox. The image's own
// command does not count: it runs as long as the sandbox.
func (s *Service) working(b *entry) bool {
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	list, err := b.Agent.Processes(ctx)
	if err != nil {
		s.log.Warn("cannot ask an idle sandbox whether it works", "sandbox", b.ID, "error", err)
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
		if last := b.Activity.Unrecorded(lag); !last.IsZero() {
			at[b.ID] = last
		}
	}
	if err := s.store.NoteActivity(ctx, at); err != nil {
		s.log.Error("activity not recorded, trying again soon", "error", err)
		return
	}
	for id, last := range at {
		if b := s.boxes.byID(id); b != nil {
			b.Activity.Recorded(last)
		}
	}
}

// recallActivity takes over what the server before recorded. What it did not get
// around to record counts: a sandbox is rather idle for too long than ended too early.
func (b *entry) recallActivity(now time.Time) {
	sb := b.View().Sandbox
	last := sb.LastActivityAt
	if last.IsZero() {
		last = sb.UpdatedAt
	}
	if last = last.Add(activityInterval); last.After(now) {
		last = now
	}
	b.Activity.At(last)
}
