package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Snapshots are the routes of snapshots.
type Snapshots struct{ Service *snapshot.Service }

// SnapshotRef is the path parameter that names a snapshot. It is exported because
// huma passes over embedded types that are not.
type SnapshotRef struct {
	Snapshot string `path:"snapshot" maxLength:"512" doc:"The snapshot, percent-encoded: its id, name, name:tag or @workspace/name:tag. A name alone means its latest."`
}

type createSnapshotInput struct {
	route.SandboxRef
	Body wire.CreateSnapshot
}

type listSnapshotsInput struct {
	Public    bool   `query:"public" doc:"Public snapshots of all workspaces instead of the workspace's own."`
	SandboxID string `query:"sandbox_id" maxLength:"64" doc:"Only those taken of this sandbox."`
	Name      string `query:"name" maxLength:"128" doc:"Only snapshots with this name."`
	Tag       string `query:"tag" maxLength:"128" doc:"Only snapshots with this tag."`
	Sort      string `query:"sort" enum:"created,name,size,files" default:"created" doc:"What they are sorted by."`
	Order     string `query:"order" enum:"asc,desc" default:"desc" doc:"The direction."`
	route.PageInput
}

type tagSnapshotInput struct {
	SnapshotRef
	Body wire.TagSnapshot
}

type lineageInput struct {
	SnapshotRef
	route.PageInput
}

// Register adds the routes.
func (h *Snapshots) Register(m *route.Mux) {
	const snapshots = "/v1/snapshots"
	tags := []string{"snapshots"}
	route.JSON(m, huma.Operation{
		OperationID: "create-snapshot", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/snapshots", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Save a sandbox's files as a snapshot",
		Description: "Saves the files of a running or paused sandbox, without memory, processes and /tmp. A running sandbox is frozen while its files are read. Answers when sandboxes can be made from it.",
	}, h.createSnapshot)
	route.JSON(m, huma.Operation{
		OperationID: "list-snapshots", Method: http.MethodGet, Path: snapshots, Tags: tags,
		Summary: "List snapshots", Description: "The snapshots of the workspace, or the public snapshots of all workspaces, in the requested order.",
	}, h.listSnapshots)
	route.JSON(m, huma.Operation{
		OperationID: "get-snapshot", Method: http.MethodGet, Path: snapshots + "/{snapshot}", Tags: tags,
		Summary: "Get a snapshot", Description: "Also public snapshots of other workspaces.",
	}, h.getSnapshot)
	route.JSON(m, huma.Operation{
		OperationID: "tag-snapshot", Method: http.MethodPatch, Path: snapshots + "/{snapshot}", Tags: tags,
		Summary: "Change a snapshot's tag",
	}, h.tagSnapshot)
	route.JSON(m, huma.Operation{
		OperationID: "delete-snapshot", Method: http.MethodDelete, Path: snapshots + "/{snapshot}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a snapshot", Description: "Sandboxes that were made from it go on, and snapshots of these stay good.",
	}, h.deleteSnapshot)
	route.JSON(m, huma.Operation{
		OperationID: "get-snapshot-lineage", Method: http.MethodGet, Path: snapshots + "/{snapshot}/lineage", Tags: tags,
		Summary: "List a snapshot and those it came from", Description: "The newest first, with deleted snapshots.",
	}, h.snapshotLineage)
}

func (h *Snapshots) createSnapshot(ctx context.Context, in *createSnapshotInput) (*route.Body[wire.Snapshot], error) {
	sn, err := h.Service.Create(ctx, route.Caller(ctx), in.Ref, snapshot.Request{
		Name: in.Body.Name, Tag: in.Body.Tag, Description: in.Body.Description, Message: in.Body.Message,
		Metadata: in.Body.Metadata, Public: in.Body.Public,
	})
	return answerSnapshot(ctx, &sn, err)
}

func (h *Snapshots) listSnapshots(ctx context.Context, in *listSnapshotsInput) (*route.Body[wire.Page[wire.Snapshot]], error) {
	f := sandbox.SnapshotFilter{
		Sandbox: sandbox.ID(in.SandboxID), Name: in.Name, Tag: in.Tag,
		Sort: sandbox.SnapshotSort(in.Sort), Ascending: in.Order == "asc", Limit: in.Limit, Cursor: in.Cursor,
	}
	var part sandbox.SnapshotPage
	var err error
	if in.Public {
		part, err = h.Service.ListPublic(ctx, f)
	} else {
		part, err = h.Service.List(ctx, route.Caller(ctx), f)
	}
	return route.Paged(page.Page[sandbox.Snapshot]{Items: part.Snapshots, Next: part.Next}, err, showSnapshot(ctx))
}

func (h *Snapshots) getSnapshot(ctx context.Context, in *SnapshotRef) (*route.Body[wire.Snapshot], error) {
	sn, err := h.Service.Get(ctx, route.Caller(ctx), in.Snapshot)
	return answerSnapshot(ctx, &sn, err)
}

func (h *Snapshots) tagSnapshot(ctx context.Context, in *tagSnapshotInput) (*route.Body[wire.Snapshot], error) {
	sn, err := h.Service.Tag(ctx, route.Caller(ctx), in.Snapshot, in.Body.Tag)
	return answerSnapshot(ctx, &sn, err)
}

func (h *Snapshots) deleteSnapshot(ctx context.Context, in *SnapshotRef) (*struct{}, error) {
	return nil, h.Service.Delete(ctx, route.Caller(ctx), in.Snapshot)
}

func (h *Snapshots) snapshotLineage(ctx context.Context, in *lineageInput) (*route.Body[wire.Page[wire.Snapshot]], error) {
	p, err := h.Service.Lineage(ctx, route.Caller(ctx), in.Snapshot, in.Request())
	return route.Paged(p, err, showSnapshot(ctx))
}

func answerSnapshot(ctx context.Context, sn *sandbox.Snapshot, err error) (*route.Body[wire.Snapshot], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(shownSnapshot(ctx, sn)), nil
}

// showSnapshot shows snapshots to the caller.
func showSnapshot(ctx context.Context) func(sandbox.Snapshot) wire.Snapshot {
	return func(sn sandbox.Snapshot) wire.Snapshot { return shownSnapshot(ctx, &sn) }
}

// shownSnapshot returns the public side of sn: its environment stays inside, and what
// leads to who made it within the workspace.
func shownSnapshot(ctx context.Context, sn *sandbox.Snapshot) wire.Snapshot {
	out := wire.Snapshot{
		ID: string(sn.ID), Name: sn.Name, Tag: sn.Tag, FullName: sn.FullName(), Description: sn.Description, Message: sn.Message,
		Metadata: sn.Metadata, ParentID: string(sn.Parent), Image: sn.Image, BaseDigest: sn.BaseDigest, Digest: sn.Digest,
		SizeBytes: sn.SizeBytes, LayerBytes: sn.LayerBytes, FileCount: sn.FileCount, Public: sn.Public, ContentHash: sn.ContentHash,
		CreatedAt: sn.CreatedAt, DeletedAt: route.Optional(sn.DeletedAt),
	}
	if sn.Workspace == route.Caller(ctx).Workspace {
		out.SandboxID, out.CreatedBy = string(sn.Sandbox), string(sn.CreatedBy)
	}
	return out
}
