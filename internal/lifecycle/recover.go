package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/recovery"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/usage"
)

// successor changes sandboxes of the server before, for package recovery.
type successor struct{ s *Service }

var _ recovery.Host = successor{}

func (r successor) Adopt(row sandbox.Sandbox) *box.Box { return r.s.registrar.adopt(row).Box }

func (r successor) End(b *box.Box, cause sandbox.Cause) { r.s.End(b, cause) }

func (r successor) GoOnEnding(b *box.Box) {
	b.Lock()
	defer b.Unlock()
	r.s.ender.destroyLater(r.s.boxes.ByID(b.ID))
}

func (r successor) Over(b *box.Box, ended box.Exit) {
	r.s.suspender.watcher.over(r.s.boxes.ByID(b.ID), ended)
}

func (r successor) Settle(ctx context.Context, b *box.Box) {
	r.s.suspender.settleLater(ctx, r.s.boxes.ByID(b.ID))
}

func (r successor) Start(b *box.Box, remove func(context.Context) error) {
	e := r.s.boxes.ByID(b.ID)
	if e == nil {
		return // it has ended
	}
	r.s.provisioner.launch(e, func(e *entry) error {
		if err := remove(e.Context()); err != nil {
			return fail(sandbox.CauseHostRestart, err, recovery.Interrupted+", and its box could not be removed")
		}
		if sb := e.Sandbox(); len(sb.Handle) > 0 {
			if err := r.s.suspender.states.recordBox(e, sb.ImageDigest, nil); err != nil {
				return err
			}
		}
		return r.s.provisioner.makeRunning(e)
	})
}

func (r successor) Watch(b *box.Box, running bool) {
	b.Lock()
	defer b.Unlock()
	e := r.s.boxes.ByID(b.ID)
	if e == nil || b.Context().Err() != nil {
		return
	}
	usage.RecallActivity(b, time.Now())
	r.s.timers.arm(e)
	if running {
		r.s.suspender.watcher.watchLater(e)
	}
}
