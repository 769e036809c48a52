package images

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
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// dockerfilePart bounds the part with the Dockerfile; a longer part is refused by
// the builder.
const dockerfilePart = 1 << 20

// Dockerfiles are the routes of builds from Dockerfiles, and of pushes of built images.
type Dockerfiles struct {
	Builder *build.Builder
	// Ping is the longest silence of a stream.
	Ping time.Duration
}

// Register adds the routes.
func (h *Dockerfiles) Register(m *route.Mux) {
	tags := []string{"images"}
	text := &huma.Schema{Type: "string"}
	binary := &huma.Schema{Type: "string", Format: "binary"}
	m.Raw(huma.Operation{
		OperationID: "build-image", Method: http.MethodPost, Path: "/v1/images/build", Tags: tags,
		Summary:     "Build an image from a Dockerfile",
		Description: buildDescription,
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"multipart/form-data": {
			Schema: &huma.Schema{Type: "object", Required: []string{"context"}, Properties: map[string]*huma.Schema{
				"options": route.SchemaOf[wire.ImageBuild](m), "dockerfile": text, "context": binary,
			}},
			Encoding: map[string]*huma.Encoding{"options": {ContentType: "application/json"}},
		}}},
		Responses: map[string]*huma.Response{"200": {Description: "What happens", Content: route.LinesContent[wire.ImageBuildMessage](m)}},
	}, h.buildImage)
	m.Raw(huma.Operation{
		OperationID: "push-image", Method: http.MethodPost, Path: "/v1/images/push", Tags: tags,
		Summary:     "Push an image to a registry",
		Description: "Sends an image that the workspace has built to a registry, signed in as for a pull. Answers one JSON object a line, as a pull does, with the phase `pushing`.",
		RequestBody: &huma.RequestBody{Required: true, Content: route.JSONContent[wire.ImagePush](m)},
		Responses:   map[string]*huma.Response{"200": {Description: "The progress", Content: route.LinesContent[wire.ImageProgress](m)}},
	}, h.pushImage)
}

// buildImage is POST /v1/images/build: an image from a Dockerfile. It answers one JSON object a
// line for each event, with a ping after each silence, and finally done or error. The build ends
// when the client disconnects.
func (h *Dockerfiles) buildImage(w http.ResponseWriter, r *http.Request) error {
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
		Reader: context, rest: r.Body, control: control, within: h.Builder.UploadTimeout(),
		after: time.Now().Add(h.Builder.Timeout(&req) + clientTimeout), // after the build's own end
	}
	out := newBuildLog(w, h.Ping, cancel)
	defer out.close()
	img, err := h.Builder.Build(ctx, route.Caller(ctx), req, upload, out.event)
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
	dec := json.NewDecoder(io.LimitReader(part, route.BodyMax))
	dec.DisallowUnknownFields()
	var o wire.ImageBuild
	if err := dec.Decode(&o); err != nil {
		return route.BodyError(err)
	}
	resources, err := quantity.ParseResources(o.Resources)
	if err != nil {
		return err
	}
	source := req.Source
	*req = build.Request{
		Tag: o.Tag, Path: o.Dockerfile, Source: source, Args: o.BuildArgs, Target: o.Target,
		NoCache: o.NoCache, Network: o.Network, Push: o.Push, Resources: resources, Timeout: route.Seconds(o.TimeoutSeconds),
		WaitForQuota: route.Seconds(o.WaitForQuotaSeconds),
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

// pushImage is POST /v1/images/push: progress as with a pull.
func (h *Dockerfiles) pushImage(w http.ResponseWriter, r *http.Request) error {
	in, err := route.Decode[wire.ImagePush](w, r, route.BodyMax)
	if err != nil {
		return err
	}
	return tellImage(w, r, h.Ping, func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		return h.Builder.Push(ctx, route.Caller(ctx), in.Image, in.To, progress)
	})
}

const buildDescription = "The parts come in this order: `options`, a JSON object; `dockerfile`, when it is not a file of the context; and `context`, a tar of the files to build from, plain or compressed with gzip, bzip2 or zstd. " +
	"Answers one JSON object a line: a `step` for each instruction, and another `step` with `cached` when its layer was in the cache; `output` of commands; `progress` of long operations; `warning`; finally `done` with the image, or `error`, with the `line` and `exit_code` of the failed instruction. " +
	"After 15 seconds of silence comes a `ping`; skip it like any unknown type. A failure before the first object has an error's status. The build ends when the connection does."
