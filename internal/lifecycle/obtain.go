package lifecycle

import (
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// obtainImage returns the image of a sandbox, with its packages, and the path of its root
// filesystem. It makes the image if it is not here.
func (s *Service) obtainImage(b *entry) (spec.Image, string, error) {
	sb := b.Sandbox()
	ref, who := sb.Image, registry.Puller{Workspace: sb.Workspace, Registry: sb.Registry}
	if sb.Snapshot != "" {
		ref, who = sb.ImageDigest, registry.Puller{} // access to the snapshot was checked before
	}
	ctx := b.Context() // a task has its own timeout
	img, rootfs, err := s.prepare.Ensure(ctx, ref, who, s.imageProgress(b, ref))
	if err != nil {
		return img, "", fail(sandbox.CauseImage, err, "the image "+sb.Image+" could not be had")
	}
	if d := prepare.PackagesOf(&sb); !d.Empty() {
		if img, rootfs, err = s.prepare.Install(ctx, sb.Workspace, &img, d, prepare.Reserved{Own: sb.Resources}, s.imageProgress(b, ref)); err != nil {
			return img, "", fail(sandbox.CauseImage, err, "its packages could not be installed")
		}
	}
	return img, rootfs, nil
}

// imageEventsMax bounds the events of one sandbox about its image.
const imageEventsMax = 32

// imageProgress returns a function that appends an event to a sandbox for each
// phase in the making of its image.
func (s *Service) imageProgress(b *entry, what string) func(phase.Event) {
	var last phase.Phase
	count := 0
	return func(e phase.Event) { // one call at a time
		if e.Phase == last || count == imageEventsMax {
			return
		}
		last = e.Phase
		count++
		data := map[string]string{"image": what, "phase": string(e.Phase), "detail": sandbox.OneLine(e.Message)}
		if e.Total > 0 {
			data["total"] = strconv.FormatInt(e.Total, 10)
		}
		ev := sandbox.Event{
			Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventImageBuilding,
			Message: sandbox.OneLine(fmt.Sprintf("its image is being made: %s: %s", e.Phase, e.Message)), Data: data,
		}
		s.events.TryAdd(ev) // progress can be missed
	}
}
