package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// snapshotWorkers is how many snapshots are made at the same time: each may take
// much memory, disk and processor time.
const snapshotWorkers = 2

// snapshots are those being made.
type snapshots struct {
	places *fairsem.Semaphore

	// deleted: one was deleted since root filesystems were collected.
	deleted atomic.Bool

	making underWay[sandbox.SnapshotID]
}

func newSnapshots() *snapshots { return &snapshots{places: fairsem.New(snapshotWorkers)} }

// sweepSnapshots forgets snapshots that nobody is making any more.
func (s *Service) sweepSnapshots() {
	ids, err := s.store.SnapshotsBegun(s.ctx)
	if err != nil {
		s.logSweep("list snapshots", err)
	}
	for _, id := range ids {
		if s.snapshots.making.has(id) {
			continue
		}
		if err := s.store.AbandonSnapshot(s.ctx, id); err != nil {
			s.logSweep("forget snapshot "+string(id), err)
		}
	}
	s.begun.expire(time.Now().Add(-buildLifetime))
	if s.snapshots.deleted.Load() {
		s.collect()
	}
}

// collectInterval is how often root filesystems are collected that nothing needs.
const collectInterval = 10 * time.Minute

// collect removes the root filesystems that nothing needs any more.
func (s *Service) collect() {
	if s.layers == nil {
		return
	}
	s.snapshots.deleted.Store(false)
	freed, err := s.layers.Collect(s.ctx, s.store.DigestsInUse)
	if err != nil {
		s.logSweep("collect root filesystems", err)
	}
	if freed > 0 {
		s.log.Info("removed root filesystems that nothing needs", "bytes", freed)
	}
}

// Snapshot returns the snapshot that ref means: an id, name, name:tag, or
// @workspace/name:tag; a name alone means its latest. Public ones of other
// workspaces are found by id and by their full name. Errors: NotFound.
func (s *Service) Snapshot(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	return s.snapshot(ctx, ref, c.Workspace, func(sn *sandbox.Snapshot) bool { return sn.Public || sn.Workspace == c.Workspace })
}

// PublicSnapshot returns the public snapshot that an id or a full name means,
// whoever asks. Errors: NotFound.
func (s *Service) PublicSnapshot(ctx context.Context, ref string) (sandbox.Snapshot, error) {
	return s.snapshot(ctx, ref, "", func(sn *sandbox.Snapshot) bool { return sn.Public })
}

// ownSnapshot is Snapshot for what only the owner may do.
func (s *Service) ownSnapshot(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	return s.snapshot(ctx, ref, c.Workspace, func(sn *sandbox.Snapshot) bool { return sn.Workspace == c.Workspace })
}

// noSnapshot is the message when ref leads to none, which surprises those who gave
// another tag when they made it.
func noSnapshot(ref string) string {
	message := fmt.Sprintf("there is no snapshot %q", sandbox.Excerpt(ref))
	if parsed, ok := sandbox.ParseSnapshotRef(ref); ok && parsed.ID == "" && !strings.Contains(ref, ":") {
		message += fmt.Sprintf("; a name alone means its tag %s", parsed.Tag)
	}
	return message
}

// snapshot looks up ref, where names without a workspace are those of ws.
func (s *Service) snapshot(ctx context.Context, ref string, ws sandbox.WorkspaceID, visible func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "%s", noSnapshot(ref))
	parsed, ok := sandbox.ParseSnapshotRef(ref)
	if !ok {
		return sandbox.Snapshot{}, missing
	}
	var sn sandbox.Snapshot
	err := error(missing)
	if parsed.ID != "" {
		sn, err = s.store.Snapshot(ctx, parsed.ID)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound && (ws != "" || parsed.Slug != "") { // a name may look like an id, too
		sn, err = s.store.SnapshotByTag(ctx, ws, parsed.Slug, parsed.Name, parsed.Tag)
	}
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return sandbox.Snapshot{}, missing
	case err != nil:
		return sandbox.Snapshot{}, err
	case !sn.DeletedAt.IsZero() || !visible(&sn):
		return sandbox.Snapshot{}, missing
	}
	return sn, nil
}

// Snapshots returns a part of the workspace's snapshots. Errors: Invalid, naming
// limit, cursor, offset or sort.
func (s *Service) Snapshots(ctx context.Context, c sandbox.Caller, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	return s.store.Snapshots(ctx, c.Workspace, f)
}

// PublicSnapshots returns a part of the public snapshots of all workspaces,
// whoever asks. Errors: as [Service.Snapshots].
func (s *Service) PublicSnapshots(ctx context.Context, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	return s.store.Snapshots(ctx, "", f)
}

// TagSnapshot gives the snapshot a tag, which leaves the one of the same name
// that held it; nil takes its tag away. Errors: NotFound; Invalid, naming tag.
func (s *Service) TagSnapshot(ctx context.Context, c sandbox.Caller, ref string, tag *string) (sandbox.Snapshot, error) {
	to := ""
	if tag != nil {
		if err := sandbox.CheckSnapshotTag(*tag); err != nil {
			return sandbox.Snapshot{}, err
		}
		to = *tag
	}
	sn, err := s.ownSnapshot(ctx, c, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	message := "snapshot " + sn.Name + " of it has the tag " + to
	if to == "" {
		message = "snapshot " + sn.Name + ":" + sn.Tag + " of it has no tag any more"
	}
	ev := snapshotEvent(c, &sn, sandbox.EventSnapshotTagged, message)
	ev.Data["tag"] = to
	return s.store.TagSnapshot(ctx, sn.ID, to, ev)
}

// snapshotEvent is what a caller did to a snapshot, for the events of the sandbox
// it was taken of.
func snapshotEvent(c sandbox.Caller, sn *sandbox.Snapshot, kind sandbox.EventType, message string) sandbox.Event {
	return sandbox.Event{
		Sandbox: sn.Sandbox, Time: time.Now().UTC(), Type: kind, Message: sandbox.OneLine(message),
		Data: map[string]string{"snapshot": string(sn.ID), "name": sn.Name, "user": string(c.User)},
	}
}

// DeleteSnapshot deletes a snapshot. Sandboxes that were made from it go on, and
// snapshots of these stay good; its files go when nothing needs them any more.
// Errors: NotFound.
func (s *Service) DeleteSnapshot(ctx context.Context, c sandbox.Caller, ref string) error {
	sn, err := s.ownSnapshot(ctx, c, ref)
	if err != nil {
		return err
	}
	ev := snapshotEvent(c, &sn, sandbox.EventSnapshotDeleted, "snapshot "+sn.Name+" of it was deleted")
	if err := s.store.DeleteSnapshot(ctx, sn.ID, ev); err != nil {
		return err
	}
	s.snapshots.deleted.Store(true)
	return nil
}

// Lineage returns a snapshot and those before it, the newest first, deleted ones
// included; of other workspaces only public ones. Errors: NotFound; Invalid, naming
// limit or cursor.
func (s *Service) Lineage(ctx context.Context, c sandbox.Caller, ref string, r page.Request) (page.Page[sandbox.Snapshot], error) {
	var none page.Page[sandbox.Snapshot]
	size, err := r.Size()
	if err != nil {
		return none, err
	}
	sn, err := s.Snapshot(ctx, c, ref)
	if err != nil {
		return none, err
	}
	const order = "lineage"
	id, skip := string(sn.ID), 0
	further, err := page.Parse(r.Cursor, order, &id)
	if err != nil {
		return none, err
	}
	if further {
		skip = 1 // the snapshot that the page before ended with
	}
	list, err := s.store.Lineage(ctx, sandbox.SnapshotID(id), size+skip+1)
	if err != nil {
		return none, err
	}
	p := page.Cut(list[min(skip, len(list)):], size, func(sn sandbox.Snapshot) string { return page.Cursor(order, string(sn.ID)) })
	p.Items = slices.DeleteFunc(p.Items, func(sn sandbox.Snapshot) bool { return !sn.Public && sn.Workspace != c.Workspace })
	return p, nil
}

// fromSnapshot is what to record for a sandbox made from a snapshot: it has the
// root filesystem from the beginning, so that this counts as in use.
func (s *Service) fromSnapshot(ctx context.Context, c sandbox.Caller, req *CreateRequest) (sandbox.Creation, error) {
	if req.Image != "" || req.ImageID != "" {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "give either a snapshot or an image, not both")
	}
	sn, err := s.Snapshot(ctx, c, req.Snapshot)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "%s", noSnapshot(req.Snapshot))
	}
	if err != nil {
		return sandbox.Creation{}, err
	}
	img, _, err := s.images.Resolve(ctx, sn.Digest)
	if err != nil {
		return sandbox.Creation{}, fmt.Errorf("root filesystem of snapshot %s: %w", sn.ID, err)
	}
	env := merged(sn.Env, req.Env)
	if err := sandbox.CheckEnv(env); err != nil {
		return sandbox.Creation{}, err
	}
	creation := s.creation(c, req, &img)
	sb := &creation.Sandbox
	sb.Snapshot, sb.Image, sb.ImageDigest, sb.Env = sn.ID, sn.Image, sn.Digest, env
	creation.Event.Data = map[string]string{"image": sn.Image, "snapshot": string(sn.ID), "user": string(c.User)}
	return creation, nil
}
