package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// dockerfilePart bounds the part with the Dockerfile; what is longer is refused by
// the builder.
const dockerfilePart = 1 << 20

// buildImage is POST /v1/images/build: an image from a Dockerfile. It answers one JSON object a
// line for each event, with a ping after each silence, and finally done or error. The build ends
// when the client disconnects.
func (s *Server) buildImage(w http.ResponseWriter, r *http.Request) error {
	control := http.NewResponseController(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	_ = control.SetReadDeadline(time.Now().Add(edge.BodyTime)) // a transport without deadlines, as in tests
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	parts, err := r.MultipartReader()
	if err != nil {
		return sandbox.InvalidField("body", "is not multipart/form-data with the parts options and context")
	}
	req, context, err := buildParts(ctx, parts)
	edge.Decoded(ctx)
	if err != nil {
		return err
	}
	_ = control.SetReadDeadline(time.Time{}) // until it is the build's turn
	upload := &uploadReader{
		Reader: context, control: control, within: s.deps.Builder.UploadTimeout(),
		after: time.Now().Add(s.deps.Builder.Timeout(&req) + clientTimeout), // after the build's own end
	}
	out := newBuildLog(w, s.cfg.Ping, cancel)
	defer out.close()
	img, err := s.deps.Builder.Build(ctx, caller(ctx), req, upload, out.event)
	switch {
	case err != nil && !out.began():
		return err // with its status
	case err != nil:
		out.say(buildError(r.Context(), err))
	default:
		shown := shownImage(img)
		out.say(wire.ImageBuildMessage{Type: wire.BuildDone, Image: &shown})
	}
	return nil
}

// buildParts reads the parts of a build up to the context.
func buildParts(ctx context.Context, parts *multipart.Reader) (req build.Request, context io.Reader, err error) {
	for {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return req, nil, sandbox.InvalidField("context", "is missing: the last part must be a tar of the files to build from")
		}
		if err != nil {
			return req, nil, sandbox.InvalidField("body", "is not the multipart/form-data that this route takes")
		}
		switch part.FormName() {
		case "options":
			if err := buildOptions(edge.JSON(ctx, part), &req); err != nil {
				return req, nil, err
			}
		case "dockerfile":
			if req.Source, err = io.ReadAll(io.LimitReader(edge.Whole(ctx, part), dockerfilePart)); err != nil {
				return req, nil, sandbox.InvalidField("dockerfile", "did not arrive as a whole")
			}
		case "context":
			return req, part, nil
		default:
			return req, nil, sandbox.InvalidField("body", "has the part %.50q; there are options, dockerfile and context", part.FormName())
		}
	}
}

// buildOptions reads the part with the options.
func buildOptions(part io.Reader, req *build.Request) error {
	dec := json.NewDecoder(io.LimitReader(part, bodyMax))
	dec.DisallowUnknownFields()
	var o wire.ImageBuild
	if err := dec.Decode(&o); err != nil {
		return bodyError(err)
	}
	resources, err := parseResources(o.Resources)
	if err != nil {
		return err
	}
	source := req.Source
	*req = build.Request{
		Tag: o.Tag, Path: o.Dockerfile, Source: source, Args: o.BuildArgs, Target: o.Target,
		NoCache: o.NoCache, Network: o.Network, Push: o.Push, Resources: resources, Timeout: seconds(o.TimeoutSeconds),
		WaitForQuota: seconds(o.WaitForQuotaSeconds),
	}
	return nil
}

// buildError is an error as the last message of a build.
func buildError(ctx context.Context, err error) wire.ImageBuildMessage {
	p := edge.Problem(ctx, err)
	m := wire.ImageBuildMessage{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail}
	var failure *build.Failure
	if errors.As(err, &failure) {
		m.Line, m.Instruction, m.ExitCode = failure.Line, failure.Instruction, failure.ExitCode
	}
	return m
}

// event tells what happens in a build.
func (l *buildLog) event(e build.Event) {
	m := wire.ImageBuildMessage{Type: string(e.Kind)}
	switch e.Kind {
	case build.KindStep:
		m.Step, m.Steps, m.Line, m.Stage, m.Instruction, m.Cached = e.Step, e.Steps, e.Line, e.Stage, e.Instruction, e.Cached
	case build.KindOutput:
		m.Data = e.Output
	case build.KindWarning:
		m.Message = e.Warning
	case build.KindProgress:
		p := e.Progress
		m.Phase, m.Done, m.Total, m.Message = string(p.Phase), p.Done, p.Total, p.Message
	}
	l.say(m)
}

// pushImage is POST /v1/images/push: progress as with a pull.
func (s *Server) pushImage(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[wire.ImagePush](w, r, bodyMax)
	if err != nil {
		return err
	}
	return s.tellImage(w, r, func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		return s.deps.Builder.Push(ctx, caller(ctx), in.Image, in.To, progress)
	})
}

// registerImageBuilds adds the routes of builds from Dockerfiles.
func (s *Server) registerImageBuilds(a huma.API, mux router) {
	tags := []string{"images"}
	text := &huma.Schema{Type: "string"}
	binary := &huma.Schema{Type: "string", Format: "binary"}
	add := func(op huma.Operation, h func(http.ResponseWriter, *http.Request) error) {
		describe(a, &op)
		mux.HandleFunc(op.Method+" "+op.Path, edge.Handler(h).ServeHTTP)
		a.OpenAPI().AddOperation(&op)
	}
	add(huma.Operation{
		OperationID: "build-image", Method: http.MethodPost, Path: "/v1/images/build", Tags: tags,
		Summary:     "Build an image from a Dockerfile",
		Description: buildDescription,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"multipart/form-data": {
			Schema: &huma.Schema{Type: "object", Required: []string{"context"}, Properties: map[string]*huma.Schema{
				"options": schemaOf[wire.ImageBuild](a), "dockerfile": text, "context": binary,
			}},
			Encoding: map[string]*huma.Encoding{"options": {ContentType: "application/json"}},
		}}},
		Responses: map[string]*huma.Response{"200": {Description: "What happens", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.ImageBuildMessage](a)},
		}}},
	}, s.buildImage)
	add(huma.Operation{
		OperationID: "push-image", Method: http.MethodPost, Path: "/v1/images/push", Tags: tags,
		Summary:     "Push an image to a registry",
		Description: "Sends an image that the workspace has built to a registry, signed in as for a pull. Answers one JSON object a line, as a pull does, with the phase `pushing`.",
		RequestBody: &huma.RequestBody{Required: true, Content: jsonContent[wire.ImagePush](a)},
		Responses: map[string]*huma.Response{"200": {Description: "The progress", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.ImageProgress](a)},
		}}},
	}, s.pushImage)
}

const buildDescription = "The parts come in this order: `options`, a JSON object; `dockerfile`, when it is not a file of the context; and `context`, a tar of the files to build from, plain or compressed with gzip, bzip2 or zstd. " +
	"Answers one JSON object a line: a `step` for each instruction, and another `step` with `cached` when its layer was in the cache; `output` of commands; `progress` of long operations; `warning`; finally `done` with the image, or `error`, with the `line` and `exit_code` of the failed instruction. " +
	"After 15 seconds of silence comes a `ping`; skip it like any unknown type. A failure before the first object has an error's status. The build ends when the connection does."
