package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// passage is a call into a box that takes its time, and finds out what it means
// when its connection breaks. It is used by one goroutine at a time.
type passage struct {
	service *Service
	ctx     context.Context // of the call
	box     *entry
	handle  driver.Handle // of the box it began in
	saves   int64         // of the box, when the connection was made or later
}

func (s *Service) passage(ctx context.Context, b *entry) *passage {
	return &passage{service: s, ctx: ctx, box: b, handle: b.View().Sandbox.Handle, saves: b.Saves()}
}

// transfer is a passage of a file's content: activity, and waited for before the
// box is saved. The caller calls end once, or more often.
func (s *Service) transfer(ctx context.Context, b *entry) (p *passage, end func()) {
	release := b.Activity.Begin()
	b.Transfers.Begin()
	return s.passage(ctx, b), sync.OnceFunc(func() {
		b.Transfers.End()
		release()
	})
}

// again returns nil when the call can be made once more: what broke its connection
// was that the box was saved, and the box goes on. Otherwise it returns what the
// caller is told instead of reason.
func (p *passage) again(reason error) error {
	if p.ctx.Err() != nil || !box.LooksEnded(reason) || !p.saved() && p.goesOn() {
		return p.box.Explain(p.ctx, reason)
	}
	if err := p.box.Settled(p.ctx); err != nil {
		return err
	}
	p.saves = p.box.Saves()
	sb := p.box.Sandbox()
	switch {
	case sb.State == sandbox.Destroying || sb.State.Ended():
		return box.StateError(&sb)
	case !p.goesOn():
		return sandbox.Wrap(sandbox.Unavailable, reason,
			"sandbox %q was paused or taken back to a checkpoint before the call had ended; try again", sb.Name)
	default:
		return nil
	}
}

// saved reports whether the box is being saved, or was since the connection was made.
func (p *passage) saved() bool { return p.box.SavedSince(p.saves) }

// goesOn reports whether the box is still the one that the call began in.
func (p *passage) goesOn() bool {
	sb := p.box.View().Sandbox
	return sb.State == sandbox.Running && bytes.Equal(sb.Handle, p.handle)
}

// cut is again for a call that cannot be made once more, because a part of what it
// carried is gone. nil stays nil.
func (p *passage) cut(reason error) error {
	if reason == nil {
		return nil
	}
	if err := p.again(reason); err != nil {
		return err
	}
	return sandbox.Wrap(sandbox.Unavailable, reason,
		"sandbox %q was saved for a checkpoint or a fork before the transfer had ended; try again", p.box.View().Sandbox.Name)
}

// download is the content of a file, read on after the box was saved.
type download struct {
	passage *passage
	files   agentapi.Files
	path    string
	info    agentapi.FileInfo
	end     func()

	body   io.ReadCloser
	at     int64 // of the next byte
	left   int64 // to be read, negative for all
	failed error // what Read answers from then on
}

// Read reads on. Its errors have codes.
func (d *download) Read(p []byte) (int, error) {
	for d.failed == nil {
		n, err := d.body.Read(p)
		d.at += int64(n)
		if d.left > 0 {
			d.left = max(0, d.left-int64(n))
		}
		switch {
		case err == nil || err == io.EOF:
			return n, err
		case n > 0:
			return n, nil // the error comes again
		}
		d.failed = d.reopen(err)
	}
	return 0, d.failed
}

// reopen opens the file once more where its content broke off with reason.
func (d *download) reopen(reason error) error {
	for {
		if err := d.passage.again(reason); err != nil {
			return err
		}
		if d.info.Size == 0 && d.at > 0 { // as those of /proc, which are other ones each time
			return sandbox.Wrap(sandbox.Unavailable, reason, "the sandbox was saved while %s was read; try again", sandbox.Excerpt(d.path))
		}
		body, info, err := d.files.ReadFile(d.passage.ctx, d.path, d.at, d.left)
		switch {
		case err == nil && info.Size == d.info.Size && info.ModTime.Equal(d.info.ModTime):
			_ = d.body.Close() // it is broken
			d.body = body
			return nil
		case err == nil:
			_ = body.Close() // nothing was read
			return d.changed()
		}
		var refused *agentapi.Error
		if errors.As(err, &refused) && refused.Code == agentapi.CodeInvalid { // too short, or no file any more
			return d.changed()
		}
		reason = err
	}
}

func (d *download) changed() error {
	return sandbox.Errorf(sandbox.Conflict, "%s was changed while it was read, and the sandbox was saved; try again", sandbox.Excerpt(d.path))
}

// Close ends the download. Closing twice does nothing.
func (d *download) Close() error {
	d.end()
	return d.body.Close()
}
