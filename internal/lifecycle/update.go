package lifecycle

import (
	"cmp"
	"context"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/timelimit"
)

// Update changes settings of a live sandbox and returns it. Errors: NotFound; Ended; Invalid,
// naming the field; Unsupported for a checkpoint interval when this server cannot save sandboxes;
// Unavailable.
func (s *Service) Update(ctx context.Context, c sandbox.Caller, ref string, req UpdateRequest) (sandbox.Sandbox, error) {
	if req == (UpdateRequest{}) {
		return s.Get(ctx, c, ref)
	}
	err := s.ready()
	if err == nil {
		err = s.cfg.planning().CheckUpdate(&req)
	}
	if err == nil && req.CheckpointInterval != nil {
		_, err = s.saved.Checkpointer()
	}
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	b, sb, err := s.Entry(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	if b == nil {
		return sandbox.Sandbox{}, box.StateError(&sb)
	}
	if req.TTL != nil {
		audit.FromContext(ctx).Detail("ttl", req.TTL.String())
		if err := b.setTTL(s, *req.TTL); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	if req.CheckpointInterval == nil {
		return b.Sandbox(), nil
	}
	interval := *req.CheckpointInterval
	audit.FromContext(ctx).Detail("checkpoint_interval", interval.String())
	err = b.Exclusively(ctx, box.Checkpoint, func() error { return s.automatic.SetInterval(b.Box, interval) })
	return b.Sandbox(), err
}

// setTTL records a ttl that counts from now on, and sets the timer. Errors: Ended, also when the end
// is decided but not recorded yet; Unavailable.
func (b *entry) setTTL(s *Service, ttl time.Duration) error {
	b.Lock()
	defer b.Unlock()
	if cause := cmp.Or(b.evicted.Load(), b.wanted); cause != nil {
		sb := b.Sandbox()
		sb.State, sb.Cause = sandbox.Destroying, cause
		return box.StateError(&sb)
	}
	if err := timelimit.SetTTL(s.ctx, s.limits, b.Box, ttl); err != nil {
		return err
	}
	s.timers.arm(b)
	return nil
}
