package api

import (
	"context"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/openapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// bodyMax bounds JSON bodies; exec bodies carry stdin and may be larger.
	bodyMax     = 1 << 20
	execBodyMax = 16 << 20
	// filesBodyMax bounds bodies with files, which are in base64.
	filesBodyMax = sandbox.ExecutionFilesMax/3*4 + 4*bodyMax
)

// newAPI returns huma on mux, with errors as problems and nothing of huma's own routes.
func newAPI(mux router, version string) huma.API {
	schemas := huma.NewMapRegistry("#/components/schemas/", schemaName)
	schemas.RegisterTypeAlias(reflect.TypeFor[wire.Base64](), reflect.TypeFor[openapi.Base64Text]())
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Modbox",
				Version:     version,
				Description: apiDescription,
				License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "An API token, mbx_…"},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: map[string]huma.Format{
			"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat,
			// curl -d sends this type by default; bodies are JSON all the same.
			"application/x-www-form-urlencoded": huma.DefaultJSONFormat,
		},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{problems},
	}
	a := humago.New(mux, config)
	a.UseMiddleware(prepare)
	return a
}

// humaContext lets operation embed huma.Context, which has a method of that name.
type humaContext huma.Context

// operation is a context whose status the transformer of errors can still set.
type operation struct {
	humaContext
	status int
	unread error // why the body was not read as a whole
}

func (o *operation) SetStatus(status int) {
	if o.status != 0 {
		status = o.status
	}
	o.humaContext.SetStatus(status)
}

// Unwrap lets huma and humago find the context below.
func (o *operation) Unwrap() huma.Context { return o.humaContext }

// BodyReader bounds the time a body may take. The server has no read timeout
// of its own, which would end long requests, and huma's would too: the deadline
// must go as soon as the body is read.
func (o *operation) BodyReader() io.Reader {
	return &timedBody{Reader: edge.JSON(o.Context(), o.humaContext.BodyReader()), operation: o}
}

type timedBody struct {
	io.Reader
	operation *operation
	started   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.started {
		b.started = true
		_ = b.operation.SetReadDeadline(time.Now().Add(edge.BodyTime)) // a transport without deadlines, as in tests
	}
	n, err := b.Reader.Read(p)
	if err != nil {
		_ = b.operation.SetReadDeadline(time.Time{})
	}
	if err != io.EOF {
		b.operation.unread = err
	}
	return n, err
}

func prepare(ctx huma.Context, next func(huma.Context)) { next(&operation{humaContext: ctx}) }

// problems turns huma's own errors into ours, with the status of our table. It does not repeat the
// input: it may contain secrets.
func problems(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	o, ok := ctx.(*operation)
	if ok && o.unread != nil { // huma takes that for a fault of ours
		p := edge.Problem(ctx.Context(), o.unread)
		o.status = p.Status
		return p, nil
	}
	code := apierror.CodeOf(m.Status)
	audit.FromContext(ctx.Context()).Fail(code)
	p := apierror.New(&sandbox.Error{Code: code, Message: m.Detail}, edge.RequestID(ctx.Context()))
	for _, d := range m.Errors[:min(len(m.Errors), apierror.FieldErrorsMax)] {
		p.Errors = append(p.Errors, apierror.Field(d.Location, d.Message))
	}
	p.ErrorsOmitted = len(m.Errors) - len(p.Errors)
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Location + ": " + p.Errors[0].Message
	}
	if ok {
		o.status = p.Status
	}
	return p, nil
}

// route declares a JSON route: h gets the decoded and validated input; its error
// is answered as a problem, and logged when it is ours.
func route[I, O any](a huma.API, op huma.Operation, h func(context.Context, *I) (*O, error)) {
	op.BodyReadTimeout = -1 // see timedBody
	if op.MaxBodyBytes == 0 {
		op.MaxBodyBytes = bodyMax
	}
	describe(a, &op)
	huma.Register(a, op, func(ctx context.Context, in *I) (*O, error) {
		edge.Decoded(ctx)
		out, err := h(ctx, in)
		if err != nil {
			return nil, edge.Problem(ctx, err)
		}
		return out, nil
	})
}

// describe adds what all routes have in common.
func describe(a huma.API, op *huma.Operation) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = problemResponse(a)
	if open(op) {
		op.Security = []map[string][]string{}
		return
	}
	op.Security = []map[string][]string{{"token": scope(op)}}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: "X-Workspace-Id", In: "header", Schema: &huma.Schema{Type: "string"},
		Description: "One of the caller's workspaces, by id or slug; the token's own when omitted.",
	})
}

func problemResponse(a huma.API) *huma.Response {
	return &huma.Response{
		Description: "An error",
		Content: map[string]*huma.MediaType{
			apierror.MediaType: {Schema: schemaOf[apierror.Problem](a)},
		},
	}
}

// body is an answer with a JSON body.
type body[T any] struct{ Body T }

func reply[T any](v T) *body[T] { return &body[T]{Body: v} }

// created is an answer whose status says whether something was made.
type created[T any] struct {
	Status int
	Body   T
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func octal(mode uint32) string { return "0" + strconv.FormatUint(uint64(mode), 8) }

// parseMode reads permission bits in octal; "" is 0.
func parseMode(s string) (uint32, error) {
	if s == "" {
		return 0, nil
	}
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil || m > 0o7777 {
		return 0, sandbox.InvalidField("mode", "must be permission bits in octal, such as 0644")
	}
	return uint32(m), nil
}
