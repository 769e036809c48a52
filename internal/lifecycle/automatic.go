package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// UpdateRequest says what to change of a sandbox; nil fields stay.
type UpdateRequest struct {
	// CheckpointInterval is the time between automatic checkpoints; 0 switches them off.
	CheckpointInterval *time.Duration
}

// Update changes settings of a live sandbox and returns it. Errors: NotFound; Ended; Invalid,
// naming the field; Unsupported when this server cannot save sandboxes; Unavailable.
func (s *Service) Update(ctx context.Context, c sandbox.Caller, ref string, req UpdateRequest) (sandbox.Sandbox, error) {
	if req.CheckpointInterval == nil {
		return s.Get(ctx, c, ref)
	}
	interval := *req.CheckpointInterval
	if err := sandbox.CheckCheckpointInterval(interval); err != nil {
		return sandbox.Sandbox{}, err
	}
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	audit.FromContext(ctx).Detail("checkpoint_interval", interval.String())
	err = b.Exclusively(ctx, box.Checkpoint, func() error { return s.automatic.SetInterval(b.Box, interval) })
	return b.Sandbox(), err
}

// automaticHost implements [autocheckpoint.Host].
type automaticHost struct{ *Service }

func (h automaticHost) Boxes() (list []*box.Box) {
	for _, b := range h.boxes.all() {
		list = append(list, b.Box)
	}
	return list
}

func (h automaticHost) Box(id sandbox.ID) *box.Box {
	if b := h.boxes.byID(id); b != nil {
		return b.Box
	}
	return nil
}

func (h automaticHost) Save(b *box.Box, path string) error {
	return h.save(h.boxes.byID(b.ID), path, driver.CheckpointOptions{Layer: true})
}

func (h automaticHost) Working(b *box.Box) bool { return h.working(h.boxes.byID(b.ID)) }

func (h automaticHost) GoBack(b *box.Box, from sandbox.CheckpointID, digest string) error {
	return h.goBack(h.boxes.byID(b.ID), from, digest)
}

func (h automaticHost) End(b *box.Box, cause sandbox.Cause) { h.endOrLog(h.boxes.byID(b.ID), cause) }

func (h automaticHost) AppendEvent(ctx context.Context, ev sandbox.Event) error {
	return h.store.AppendEvent(ctx, ev)
}
