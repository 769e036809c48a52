package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
)

// automaticHost implements [autocheckpoint.Host] and [pressure.Host].
type automaticHost struct {
	boxes     *box.Index[*entry]
	saver     *savedbox.Saver
	suspender *suspender
	archives  *archiver.Service
	expirer   *expirer
	ender     *ender
	store     eventlog.Store
}

func (h automaticHost) Boxes() []*box.Box { return h.boxes.Boxes() }

func (h automaticHost) Box(id sandbox.ID) *box.Box {
	if b := h.boxes.ByID(id); b != nil {
		return b.Box
	}
	return nil
}

func (h automaticHost) Exclusively(ctx context.Context, b *box.Box, kind box.OperationKind, f func() error) error {
	return h.saver.Exclusively(ctx, b, kind, f)
}

func (h automaticHost) Save(b *box.Box, path string) error {
	return h.saver.Save(b, path, driver.CheckpointOptions{Layer: true})
}

func (h automaticHost) Working(b *box.Box) bool { return h.expirer.working(h.boxes.ByID(b.ID)) }

func (h automaticHost) PauseIdle(b *box.Box, why string, idle func(*sandbox.Sandbox) bool) {
	if e := h.boxes.ByID(b.ID); e != nil && !h.expirer.working(e) {
		h.expirer.pauseIdle(e, why, idle)
	}
}

func (h automaticHost) Fetch(b *box.Box, cp sandbox.Checkpoint) (sandbox.Checkpoint, error) {
	return h.archives.FetchAutomatic(b, cp)
}

func (h automaticHost) GoBack(b *box.Box, from sandbox.CheckpointID, digest string) error {
	return h.suspender.goBack(h.boxes.ByID(b.ID), from, digest)
}

func (h automaticHost) End(b *box.Box, cause sandbox.Cause) {
	h.ender.endOrLog(h.boxes.ByID(b.ID), cause)
}

func (h automaticHost) AppendEvent(ctx context.Context, ev sandbox.Event) error {
	return h.store.AppendEvent(ctx, ev)
}
