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
