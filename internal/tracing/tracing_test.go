package tracing_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// TestOffCostsNothing: without a trace in the context nothing allocates memory, on the way of an
// exec.
func TestOffCostsNothing(t *testing.T) {
	ctx := t.Context()
	var off *tracing.Tracer
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set(tracing.Header, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	err := errors.New("refused")
	if n := testing.AllocsPerRun(100, func() {
		_, root := off.Request(r)
		ctx, span := tracing.Start(ctx, "exec")
		traceparent, end := tracing.Call(ctx, "agent")
		if traceparent != "" || end != nil {
			t.Fatal("a call has a trace")
		}
		tracing.Of(ctx).In(ctx)
		span.Set("key", "value")
		span.End(err)
		root.Answered("POST", "/", 200, "id")
	}); n != 0 {
		t.Errorf("%v allocations without a trace", n)
	}
}

// TestSpans: the spans of a request are in the trace of its header, each below the one before, and
// have codes of errors but no messages.
func TestSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	r := httptest.NewRequest(http.MethodPost, "/secret-path", nil)
	r.Header.Set("traceparent", "00-"+trace+"-"+caller+"-01")
	ctx, root := tracer.Request(r)
	ctx, span := tracing.Start(ctx, "exec")
	traceparent, end := tracing.Call(ctx, "agent: POST /exec")
	if !strings.HasPrefix(traceparent, "00-"+trace+"-") || strings.Contains(traceparent, caller) {
		t.Errorf("traceparent of a call = %q", traceparent)
	}
	end(sandbox.Errorf(sandbox.AgentUnreachable, "secret"))
	span.End(nil)
	root.Answered("POST", "/v1/sandboxes/{sandbox}/exec", 502, "an-id")
	spans := recorder.Ended()
	var names []string
	for i, s := range spans {
		names = append(names, s.Name())
		if s.SpanContext().TraceID().String() != trace {
			t.Errorf("%s is in trace %s", s.Name(), s.SpanContext().TraceID())
		}
		want := caller
		if i+1 < len(spans) {
			want = spans[i+1].SpanContext().SpanID().String()
		}
		if got := s.Parent().SpanID().String(); got != want {
			t.Errorf("%s is below %s, want %s", s.Name(), got, want)
		}
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s has %s = %q", s.Name(), a.Key, a.Value.String())
			}
		}
	}
	if got := strings.Join(names, ", "); got != "agent: POST /exec, exec, POST /v1/sandboxes/{sandbox}/exec" {
		t.Errorf("spans: %s", got)
	}
	if s := spans[0].Status(); s.Description != string(sandbox.AgentUnreachable) {
		t.Errorf("status of the call = %+v", s)
	}
}
