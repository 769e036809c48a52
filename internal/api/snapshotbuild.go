package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

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

func (s *Server) registerBuilds(a huma.API, mux router) {
	const builds = "/v1/snapshot-builds"
	tags := []string{"snapshots"}
	route(a, huma.Operation{
		OperationID: "begin-snapshot-build", Method: http.MethodPost, Path: builds, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Begin to build a snapshot from files and packages",
		Description: "Answers the id of the build, which has an hour for its files and its finish; or, with 200, the snapshot of the same content that is there already.",
		Responses:   map[string]*huma.Response{"200": {Description: "There is a snapshot of this content", Content: jsonContent[wire.SnapshotBuild](a)}},
	}, s.beginBuild)
	route(a, huma.Operation{
		OperationID: "watch-snapshot-build", Method: http.MethodGet, Path: builds + "/{build}/progress", Tags: tags,
		Summary:     "Watch a build",
		Description: "Progress of a build that waits for its files and its finish, that is being made or that, until an hour after its beginning, has ended.",
	}, s.watchBuild)
	route(a, huma.Operation{
		OperationID: "get-snapshot-build-log", Method: http.MethodGet, Path: builds + "/{build}/log", Tags: tags,
		Summary:     "Read what happened in a build",
		Description: "With the lines that its tools wrote, while it is being made and after its end, until an hour after it was begun.",
	}, s.buildLog)
	upload := huma.Operation{
		OperationID: "upload-snapshot-build", Method: http.MethodPut, Path: builds + "/{build}/files", Tags: tags,
		Summary:     "Upload the files of a build",
		Description: "A tar.gz whose names are relative to the destination of the files. It replaces an earlier upload. An upload that is not a readable archive is refused with 422, which names `archive`, and replaces nothing; the build stays open.",
		Parameters:  []*huma.Param{{Name: "build", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The build."}},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/gzip": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}},
		Responses:   map[string]*huma.Response{"204": {Description: "They are there"}},
	}
	describe(a, &upload)
	mux.HandleFunc(upload.Method+" "+upload.Path, edge.Handler(s.uploadBuild).ServeHTTP)
	a.OpenAPI().AddOperation(&upload)
	route(a, huma.Operation{
		OperationID: "finish-snapshot-build", Method: http.MethodPost, Path: builds + "/{build}/finish", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Finish a build",
		Description: "Installs what it needs, unpacks its files and keeps both as a snapshot. Answers when sandboxes can be made from it. A finish without packages, variables and files is refused with 422, which names `archive`, and a finish during an upload with 409: the build stays open. A build that fails must be begun again.",
	}, s.finishBuild)
}

func (s *Server) beginBuild(ctx context.Context, in *beginBuildInput) (*created[wire.SnapshotBuild], error) {
	b := &in.Body
	begun, err := s.svc.Snapshots().Assemblies().Begin(ctx, caller(ctx), snapshot.AssemblyRequest{
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
		return &created[wire.SnapshotBuild]{Status: http.StatusOK, Body: wire.SnapshotBuild{Unchanged: true, Snapshot: &sn}}, nil
	}
	return &created[wire.SnapshotBuild]{Status: http.StatusCreated, Body: wire.SnapshotBuild{ID: string(begun.ID)}}, nil
}

func (s *Server) watchBuild(ctx context.Context, in *buildInput) (*body[wire.SnapshotBuildProgress], error) {
	e, err := s.svc.Snapshots().Assemblies().Progress(ctx, caller(ctx), sandbox.SnapshotID(in.ID))
	if err != nil {
		return nil, err
	}
	return &body[wire.SnapshotBuildProgress]{Body: wire.SnapshotBuildProgress{
		ID: in.ID, Phase: string(e.Phase), Detail: e.Message, Done: e.Done, Total: e.Total,
	}}, nil
}

func (s *Server) buildLog(ctx context.Context, in *buildInput) (*body[wire.SnapshotBuildLog], error) {
	log, err := s.svc.Snapshots().Assemblies().Log(ctx, caller(ctx), sandbox.SnapshotID(in.ID))
	if err != nil {
		return nil, err
	}
	out := wire.SnapshotBuildLog{Lines: make([]wire.SnapshotBuildLine, len(log.Lines)), Truncated: log.Truncated, Ended: log.Ended}
	for i, l := range log.Lines {
		out.Lines[i] = wire.SnapshotBuildLine{Time: l.Time, Phase: string(l.Phase), Message: l.Message}
	}
	return reply(out), nil
}

func (s *Server) uploadBuild(w http.ResponseWriter, r *http.Request) error {
	if err := s.svc.Snapshots().Assemblies().Upload(r.Context(), caller(r.Context()), sandbox.SnapshotID(r.PathValue("build")), r.Body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) finishBuild(ctx context.Context, in *finishBuildInput) (*body[wire.Snapshot], error) {
	sn, err := s.svc.Snapshots().Assemblies().Finish(ctx, caller(ctx), sandbox.SnapshotID(in.ID), snapshot.Contents{
		AptPackages: in.Body.AptPackages, NpmPackages: in.Body.NpmPackages, PipPackages: in.Body.PipPackages, Env: in.Body.Env, WaitForQuota: seconds(in.Body.WaitForQuotaSeconds),
	})
	return answerSnapshot(ctx, &sn, err)
}
