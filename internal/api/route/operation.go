package route

import (
	"io"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

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
