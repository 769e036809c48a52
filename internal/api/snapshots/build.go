package snapshots

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// Builds are the routes of snapshots that are built from files and packages.
type Builds struct{ Service *snapshot.Assemblies }

type beginBuildInput struct {
	Body wire.BeginSnapshotBuild
}

type buildInput struct {
	ID string `path:"build" maxLength:"64" doc:"The build."`
}

type finishBuildInput struct {
	ID   string `path:"build" maxLength:"64" doc:"The build."`
	Body wire.FinishSnapshotBuild
}

// Register adds the routes.
func (h *Builds) Register(m *route.Mux) {
	const builds = "/v1/snapshot-builds"
	tags := []string{"snapshots"}
	route.JSON(m, huma.Operation{
		OperationID: "begin-snapshot-build", Method: http.MethodPost, Path: builds, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Begin to build a snapshot from files and packages",
		Description: "Answers the id of the build, which has an hour for its files and its finish; or, with 200, the snapshot of the same content that is there already.",
		Responses:   map[string]*huma.Response{"200": {Description: "There is a snapshot of this content", Content: route.JSONContent[wire.SnapshotBuild](m)}},
	}, h.beginBuild)
	route.JSON(m, huma.Operation{
		OperationID: "watch-snapshot-build", Method: http.MethodGet, Path: builds + "/{build}/progress", Tags: tags,
		Summary:     "Watch a build",
		Description: "Progress of a build that waits for its files and its finish, that is being made or that, until an hour after its beginning, has ended.",
	}, h.watchBuild)
	route.JSON(m, huma.Operation{
		OperationID: "get-snapshot-build-log", Method: http.MethodGet, Path: builds + "/{build}/log", Tags: tags,
		Summary:     "Read what happened in a build",
		Description: "With the lines that its tools wrote, while it is being made and after its end, until an hour after it was begun.",
	}, h.readLog)
	m.Raw(huma.Operation{
		OperationID: "upload-snapshot-build", Method: http.MethodPut, Path: builds + "/{build}/files", Tags: tags,
		Summary:     "Upload the files of a build",
		Description: "A tar.gz whose names are relative to the destination of the files. It replaces an earlier upload. An upload that is not a readable archive is refused with 422, which names `archive`, and replaces nothing; the build stays open.",
		Parameters:  []*huma.Param{{Name: "build", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The build."}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/gzip": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}},
		Responses:   map[string]*huma.Response{"204": {Description: "They are there"}},
	}, h.uploadBuild)
	route.JSON(m, huma.Operation{
		OperationID: "finish-snapshot-build", Method: http.MethodPost, Path: builds + "/{build}/finish", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Finish a build",
		Description: "Installs what it needs, unpacks its files and keeps both as a snapshot. Answers when sandboxes can be made from it. A finish without packages, variables and files is refused with 422, which names `archive`, and a finish during an upload with 409: the build stays open. A build that fails must be begun again.",
	}, h.finishBuild)
}

func (h *Builds) beginBuild(ctx context.Context, in *beginBuildInput) (*route.Created[wire.SnapshotBuild], error) {
	b := &in.Body
	begun, err := h.Service.Begin(ctx, route.Caller(ctx), snapshot.AssemblyRequest{
		Request: snapshot.Request{
			Name: b.Name, Tag: b.Tag, Description: b.Description, Message: b.Message, Metadata: b.Metadata, Public: b.Public,
		},
		Runtime: b.Runtime, ContentHash: b.ContentHash, Force: b.Force, Dir: b.Dir,
	})
	if err != nil {
		return nil, err
	}
	if begun.Existing != nil {
		sn := shownSnapshot(ctx, begun.Existing)
		return &route.Created[wire.SnapshotBuild]{Status: http.StatusOK, Body: wire.SnapshotBuild{Unchanged: true, Snapshot: &sn}}, nil
	}
	return &route.Created[wire.SnapshotBuild]{Status: http.StatusCreated, Body: wire.SnapshotBuild{ID: string(begun.ID)}}, nil
}

func (h *Builds) watchBuild(ctx context.Context, in *buildInput) (*route.Body[wire.SnapshotBuildProgress], error) {
	e, err := h.Service.Progress(ctx, route.Caller(ctx), sandbox.SnapshotID(in.ID))
	if err != nil {
		return nil, err
	}
	return &route.Body[wire.SnapshotBuildProgress]{Body: wire.SnapshotBuildProgress{
		ID: in.ID, Phase: string(e.Phase), Detail: e.Message, Done: e.Done, Total: e.Total,
	}}, nil
}

func (h *Builds) readLog(ctx context.Context, in *buildInput) (*route.Body[wire.SnapshotBuildLog], error) {
	log, err := h.Service.Log(ctx, route.Caller(ctx), sandbox.SnapshotID(in.ID))
	if err != nil {
		return nil, err
	}
	out := wire.SnapshotBuildLog{Lines: make([]wire.SnapshotBuildLine, len(log.Lines)), Truncated: log.Truncated, Ended: log.Ended}
	for i, l := range log.Lines {
		out.Lines[i] = wire.SnapshotBuildLine{Time: l.Time, Phase: string(l.Phase), Message: l.Message}
	}
	return route.Reply(out), nil
}

func (h *Builds) uploadBuild(w http.ResponseWriter, r *http.Request) error {
	if err := h.Service.Upload(r.Context(), route.Caller(r.Context()), sandbox.SnapshotID(r.PathValue("build")), r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Builds) finishBuild(ctx context.Context, in *finishBuildInput) (*route.Body[wire.Snapshot], error) {
	sn, err := h.Service.Finish(ctx, route.Caller(ctx), sandbox.SnapshotID(in.ID), snapshot.Contents{
		AptPackages: in.Body.AptPackages, NpmPackages: in.Body.NpmPackages, PipPackages: in.Body.PipPackages, Env: in.Body.Env, WaitForQuota: route.Seconds(in.Body.WaitForQuotaSeconds),
	})
	return answerSnapshot(ctx, &sn, err)
}
