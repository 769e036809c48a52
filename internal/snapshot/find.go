package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Get returns the snapshot that ref means: an id, name, name:tag, or @workspace/name:tag; a name
// alone means its latest. Public snapshots of other workspaces are found by id and by full name.
// Errors: NotFound.
func (s *Service) Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	return s.find(ctx, ref, c.Workspace, func(sn *sandbox.Snapshot) bool { return sn.Public || sn.Workspace == c.Workspace })
}

// GetPublic returns the public snapshot that an id or a full name means, for any caller.
// Errors: NotFound.
func (s *Service) GetPublic(ctx context.Context, ref string) (sandbox.Snapshot, error) {
	return s.find(ctx, ref, "", func(sn *sandbox.Snapshot) bool { return sn.Public })
}

// getOwn is Get without the snapshots of other workspaces.
func (s *Service) getOwn(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Snapshot, error) {
	return s.find(ctx, ref, c.Workspace, func(sn *sandbox.Snapshot) bool { return sn.Workspace == c.Workspace })
}

// Missing returns the message for a ref that means no snapshot. For a name alone it mentions the
// tag latest, because the caller may have made the snapshot under another tag.
func Missing(ref string) string {
	message := fmt.Sprintf("there is no snapshot %q", sandbox.Excerpt(ref))
	if parsed, ok := sandbox.ParseSnapshotRef(ref); ok && parsed.ID == "" && !strings.Contains(ref, ":") {
		message += fmt.Sprintf("; a name alone means its tag %s", parsed.Tag)
	}
	return message
}

// find looks up ref, where names without a workspace are names of ws.
func (s *Service) find(ctx context.Context, ref string, ws sandbox.WorkspaceID, visible func(*sandbox.Snapshot) bool) (sandbox.Snapshot, error) {
	missing := sandbox.Errorf(sandbox.NotFound, "%s", Missing(ref))
	parsed, ok := sandbox.ParseSnapshotRef(ref)
	if !ok {
		return sandbox.Snapshot{}, missing
	}
	var sn sandbox.Snapshot
	err := error(missing)
	if parsed.ID != "" {
		sn, err = s.records.Snapshot(ctx, parsed.ID)
	}
	if sandbox.CodeOf(err) == sandbox.NotFound && (ws != "" || parsed.Slug != "") { // a name may look like an id
		sn, err = s.records.SnapshotByTag(ctx, ws, parsed.Slug, parsed.Name, parsed.Tag)
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

// List returns a part of the workspace's snapshots. Errors: Invalid, naming limit, cursor, offset
// or sort.
func (s *Service) List(ctx context.Context, c sandbox.Caller, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	return s.records.Snapshots(ctx, c.Workspace, f)
}

// ListPublic returns a part of the public snapshots of all workspaces, for any caller. Errors: as
// [Service.List].
func (s *Service) ListPublic(ctx context.Context, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error) {
	return s.records.Snapshots(ctx, "", f)
}

// Lineage returns a page of a snapshot and its ancestors, the newest first, with deleted
// snapshots. It skips snapshots of other workspaces that are not public. Errors: NotFound;
// Invalid, naming limit or cursor.
func (s *Service) Lineage(ctx context.Context, c sandbox.Caller, ref string, r page.Request) (page.Page[sandbox.Snapshot], error) {
	var none page.Page[sandbox.Snapshot]
	size, err := r.Size()
	if err != nil {
		return none, err
	}
	sn, err := s.Get(ctx, c, ref)
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
	list, err := s.records.Lineage(ctx, sandbox.SnapshotID(id), size+skip+1)
	if err != nil {
		return none, err
	}
	p := page.Cut(list[min(skip, len(list)):], size, func(sn sandbox.Snapshot) string { return page.Cursor(order, string(sn.ID)) })
	p.Items = slices.DeleteFunc(p.Items, func(sn sandbox.Snapshot) bool { return !sn.Public && sn.Workspace != c.Workspace })
	return p, nil
}
