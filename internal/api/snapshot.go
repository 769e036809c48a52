package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// SnapshotRef is the path parameter that names a snapshot. It is exported because
// huma passes over embedded types that are not.
type SnapshotRef struct {
	Snapshot string `path:"snapshot" maxLength:"512" doc:"The snapshot, percent-encoded: its id, name, name:tag or @workspace/name:tag. A name alone means its latest."`
}

type createSnapshotInput struct {
	SandboxRef
	Body wire.CreateSnapshot
}

type listSnapshotsInput struct {
	Public    bool   `query:"public" doc:"Public snapshots of all workspaces instead of the workspace's own."`
	SandboxID string `query:"sandbox_id" maxLength:"64" doc:"Only those taken of this sandbox."`
	Name      string `query:"name" maxLength:"128" doc:"Only snapshots with this name."`
	Tag       string `query:"tag" maxLength:"128" doc:"Only snapshots with this tag."`
	Sort      string `query:"sort" enum:"created,name,size,files" default:"created" doc:"What they are sorted by."`
	Order     string `query:"order" enum:"asc,desc" default:"desc" doc:"The direction."`
	PageInput
}

type tagSnapshotInput struct {
	SnapshotRef
	Body wire.TagSnapshot
}

type lineageInput struct {
	SnapshotRef
	PageInput
}

func (s *Server) registerSnapshots(a huma.API) {
	const snapshots = "/v1/snapshots"
	tags := []string{"snapshots"}
	route(a, huma.Operation{
		OperationID: "create-snapshot", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/snapshots", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Save a sandbox's files as a snapshot",
		Description: "Saves the files of a running or paused sandbox, without memory, processes and /tmp. A running sandbox is frozen while its files are read. Answers when sandboxes can be made from it.",
	}, s.createSnapshot)
	route(a, huma.Operation{
		OperationID: "list-snapshots", Method: http.MethodGet, Path: snapshots, Tags: tags,
		Summary: "List snapshots", Description: "The snapshots of the workspace, or the public snapshots of all workspaces, in the requested order.",
	}, s.listSnapshots)
	route(a, huma.Operation{
		OperationID: "get-snapshot", Method: http.MethodGet, Path: snapshots + "/{snapshot}", Tags: tags,
		Summary: "Get a snapshot", Description: "Also public snapshots of other workspaces.",
	}, s.getSnapshot)
	route(a, huma.Operation{
		OperationID: "tag-snapshot", Method: http.MethodPatch, Path: snapshots + "/{snapshot}", Tags: tags,
		Summary: "Change a snapshot's tag",
	}, s.tagSnapshot)
	route(a, huma.Operation{
		OperationID: "delete-snapshot", Method: http.MethodDelete, Path: snapshots + "/{snapshot}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a snapshot", Description: "Sandboxes that were made from it go on, and snapshots of these stay good.",
	}, s.deleteSnapshot)
	route(a, huma.Operation{
		OperationID: "get-snapshot-lineage", Method: http.MethodGet, Path: snapshots + "/{snapshot}/lineage", Tags: tags,
		Summary: "List a snapshot and those it came from", Description: "The newest first, with deleted snapshots.",
	}, s.snapshotLineage)
}

func (s *Server) createSnapshot(ctx context.Context, in *createSnapshotInput) (*body[wire.Snapshot], error) {
	sn, err := s.svc.Snapshots().Create(ctx, caller(ctx), in.Ref, snapshot.Request{
		Name: in.Body.Name, Tag: in.Body.Tag, Description: in.Body.Description, Message: in.Body.Message,
		Metadata: in.Body.Metadata, Public: in.Body.Public,
	})
	return answerSnapshot(ctx, &sn, err)
}

func (s *Server) listSnapshots(ctx context.Context, in *listSnapshotsInput) (*body[wire.Page[wire.Snapshot]], error) {
	f := sandbox.SnapshotFilter{
		Sandbox: sandbox.ID(in.SandboxID), Name: in.Name, Tag: in.Tag,
		Sort: sandbox.SnapshotSort(in.Sort), Ascending: in.Order == "asc", Limit: in.Limit, Cursor: in.Cursor,
	}
	var part sandbox.SnapshotPage
	var err error
	if in.Public {
		part, err = s.svc.Snapshots().ListPublic(ctx, f)
	} else {
		part, err = s.svc.Snapshots().List(ctx, caller(ctx), f)
	}
	return paged(page.Page[sandbox.Snapshot]{Items: part.Snapshots, Next: part.Next}, err, showSnapshot(ctx))
}

func (s *Server) getSnapshot(ctx context.Context, in *SnapshotRef) (*body[wire.Snapshot], error) {
	sn, err := s.svc.Snapshots().Get(ctx, caller(ctx), in.Snapshot)
	return answerSnapshot(ctx, &sn, err)
}

func (s *Server) tagSnapshot(ctx context.Context, in *tagSnapshotInput) (*body[wire.Snapshot], error) {
	sn, err := s.svc.Snapshots().Tag(ctx, caller(ctx), in.Snapshot, in.Body.Tag)
	return answerSnapshot(ctx, &sn, err)
}

func (s *Server) deleteSnapshot(ctx context.Context, in *SnapshotRef) (*struct{}, error) {
	return nil, s.svc.Snapshots().Delete(ctx, caller(ctx), in.Snapshot)
}

func (s *Server) snapshotLineage(ctx context.Context, in *lineageInput) (*body[wire.Page[wire.Snapshot]], error) {
	p, err := s.svc.Snapshots().Lineage(ctx, caller(ctx), in.Snapshot, in.request())
	return paged(p, err, showSnapshot(ctx))
}

func answerSnapshot(ctx context.Context, sn *sandbox.Snapshot, err error) (*body[wire.Snapshot], error) {
	if err != nil {
		return nil, err
	}
	return reply(shownSnapshot(ctx, sn)), nil
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
		CreatedAt: sn.CreatedAt, DeletedAt: optional(sn.DeletedAt),
	}
	if sn.Workspace == caller(ctx).Workspace {
		out.SandboxID, out.CreatedBy = string(sn.Sandbox), string(sn.CreatedBy)
	}
	return out
}
