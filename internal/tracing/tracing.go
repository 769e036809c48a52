// Package tracing makes spans for OpenTelemetry: a request to the API is a trace, and each part of its
// work is a span below. A context carries the span; code that has a context needs no other
// reference. Without tracing, contexts have no spans, and nothing here allocates memory.
//
// Package otlp exports the spans.
package tracing

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/modbox/modbox/internal/sandbox"
)

// scope names this program as the origin of spans.
const scope = "github.com/modbox/modbox"

// Header is the header with the trace and the span of a caller, as W3C Trace Context defines it.
const Header = "Traceparent"

// Span is a part of a trace. The zero value is a span that nobody records. It is safe for concurrent
// use.
type Span struct{ span trace.Span }

// Start begins a span below the span of ctx. Without one it returns ctx and a span that nobody
// records. The caller calls [Span.End].
func Start(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, Span{span}
}

// Of returns the span of ctx, for work that goes on after the end of ctx.
func Of(ctx context.Context) Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return Span{span}
	}
	return Span{}
}

// In returns ctx with the span, so that spans that begin there are below it.
func (s Span) In(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}

// Set sets an attribute. The value must not be a secret, nor a text of unbounded length.
func (s Span) Set(key, value string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// End ends the span. A span with an error says so, with the error's code; its message, which may
// quote callers, is not recorded.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		code := string(sandbox.CodeOf(err))
		if errors.Is(err, context.Canceled) {
			code = "canceled"
		}
		s.span.SetAttributes(attribute.String("error.type", code))
		s.span.SetStatus(codes.Error, code)
	}
	s.span.End()
}

// Tracer begins the traces of requests. Make it with [New]; nil makes none.
type Tracer struct{ tracer trace.Tracer }

// New returns a tracer whose spans p records.
func New(p trace.TracerProvider) *Tracer { return &Tracer{p.Tracer(scope)} }

// Request begins the span of a request, in the trace that its header names, if it names one.
func (t *Tracer) Request(r *http.Request) (context.Context, Span) {
	if t == nil {
		return r.Context(), Span{}
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(http.Header{Header: r.Header[Header]}))
	ctx, span := t.tracer.Start(ctx, "HTTP request", trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return r.Context(), Span{}
	}
	return ctx, Span{span}
}

// Answered ends the span of a request that was answered: its name is the method and the pattern of
// its route, so that there are few names.
func (s Span) Answered(method, route string, status int, requestID string) {
	if s.span == nil {
		return
	}
	s.span.SetName(method + " " + route)
	s.span.SetAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status), attribute.String("modbox.request_id", requestID))
	if status >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// Call begins the span of a call to an agent, and returns the value of [Header] for it, "" without
// a trace. Nothing that the agent answers becomes part of the span but whether the call failed.
func Call(ctx context.Context, name string) (traceparent string, end func(error)) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return "", nil
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient))
	carrier := propagation.HeaderCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return http.Header(carrier).Get(Header), Span{span}.End
}
