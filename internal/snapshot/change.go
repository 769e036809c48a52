package snapshot

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Tag gives a snapshot a tag and removes the tag from the snapshot of the same name that has it;
// nil removes the tag of the snapshot. Errors: NotFound; Invalid, naming tag.
func (s *Service) Tag(ctx context.Context, c sandbox.Caller, ref string, tag *string) (sandbox.Snapshot, error) {
	to := ""
	if tag != nil {
		if err := sandbox.CheckSnapshotTag(*tag); err != nil {
			return sandbox.Snapshot{}, err
		}
		to = *tag
	}
	sn, err := s.getOwn(ctx, c, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	message := "snapshot " + sn.Name + " of it has the tag " + to
	if to == "" {
		message = "snapshot " + sn.Name + ":" + sn.Tag + " of it has no tag any more"
	}
	ev := event(c, &sn, sandbox.EventSnapshotTagged, message)
	ev.Data["tag"] = to
	return s.records.TagSnapshot(ctx, sn.ID, to, ev)
}

// Delete deletes a snapshot. Sandboxes that were made from it, and snapshots of these, continue to
// work; Sweep removes its files when nothing needs them any more. Errors: NotFound.
func (s *Service) Delete(ctx context.Context, c sandbox.Caller, ref string) error {
	sn, err := s.getOwn(ctx, c, ref)
	if err != nil {
		return err
	}
	ev := event(c, &sn, sandbox.EventSnapshotDeleted, "snapshot "+sn.Name+" of it was deleted")
	if err := s.records.DeleteSnapshot(ctx, sn.ID, ev); err != nil {
		return err
	}
	s.collectNow.Store(true)
	return nil
}

// event returns the event of a caller's change of a snapshot, for the sandbox that the snapshot
// was taken of.
func event(c sandbox.Caller, sn *sandbox.Snapshot, kind sandbox.EventType, message string) sandbox.Event {
	return sandbox.Event{
		Sandbox: sn.Sandbox, Time: time.Now().UTC(), Type: kind, Message: sandbox.OneLine(message),
		Data: map[string]string{"snapshot": string(sn.ID), "name": sn.Name, "user": string(c.User)},
	}
}
