package otlp

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/modbox/modbox/internal/tracing"
)

const (
	// queueMax bounds the spans, and the entries of the log, that wait for their export; more are dropped. batchMax
	// bounds the spans or entries of a request.
	queueMax, batchMax = 4096, 512
	// attributesMax and textMax bound what a span has.
	attributesMax, textMax = 32, 256
)

// Traces records spans and sends them. It is safe for concurrent use.
type Traces struct {
	*client
	provider *sdktrace.TracerProvider
	uploads  *uploader
}

// NewTraces returns an exporter of the part ratio of the traces, from 0 to 1. The caller calls [Traces.Close].
func NewTraces(ctx context.Context, to Receiver, ratio float64) (*Traces, error) {
	c, err := newClient(to, "traces", "trace")
	if err != nil {
		return nil, err
	}
	uploads := &uploader{client: c, until: context.Background()}
	out, err := otlptrace.New(ctx, uploads)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	var described []attribute.KeyValue
	for _, a := range resourceOf(to).GetAttributes() {
		described = append(described, attribute.String(a.GetKey(), a.GetValue().GetStringValue()))
	}
	limits := sdktrace.SpanLimits{
		AttributeValueLengthLimit: textMax, AttributeCountLimit: attributesMax, EventCountLimit: 1, LinkCountLimit: 1,
		AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1,
	}
	return &Traces{client: c, uploads: uploads, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(out, sdktrace.WithMaxQueueSize(queueMax), sdktrace.WithMaxExportBatchSize(batchMax), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(described...)),
		// The caller's wish to be sampled does not count: callers are not trusted with the
		// receiver's capacity.
		sdktrace.WithSampler(whole{sdktrace.TraceIDRatioBased(ratio)}), sdktrace.WithRawSpanLimits(limits),
	)}, nil
}

// whole samples all spans of this server in a trace, or none: a span below a span of this server is
// sampled like that, all others as the sampler says.
type whole struct{ root sdktrace.Sampler }

// ShouldSample implements [sdktrace.Sampler].
func (w whole) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	return sdktrace.ParentBased(w.root, sdktrace.WithRemoteParentSampled(w.root), sdktrace.WithRemoteParentNotSampled(w.root)).ShouldSample(p)
}

// Description implements [sdktrace.Sampler].
func (w whole) Description() string { return w.root.Description() }

// Tracer returns the tracer whose spans are sent.
func (t *Traces) Tracer() *tracing.Tracer { return tracing.New(t.provider) }

// Close sends the spans that wait, until ctx ends. A batch under way has half of that time, as in [Logs.Close].
func (t *Traces) Close(ctx context.Context) error {
	defer t.client.close()
	half, cancel := halfOf(ctx)
	defer cancel()
	t.uploads.end(half, ctx)
	return t.provider.Shutdown(ctx)
}

// uploader implements [otlptrace.Client].
type uploader struct {
	client *client

	mu       sync.Mutex
	until    context.Context    // ends the batches that begin now; guarded by mu
	underway context.CancelFunc // ends the last batch that began, nil before the first; guarded by mu
}

// end cancels the batch under way when the context underway ends, and each later batch when the context further ends.
func (u *uploader) end(underway, further context.Context) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.until = further
	if u.underway != nil {
		context.AfterFunc(underway, u.underway)
	}
}

// Start implements [otlptrace.Client].
func (*uploader) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (*uploader) Stop(context.Context) error { return nil }

// UploadTraces implements [otlptrace.Client]. It returns nil also for a batch that was given up, so that this is not
// logged a second time. TracesData has the same form as the request's message, which is generated together with gRPC.
func (u *uploader) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u.mu.Lock()
	defer context.AfterFunc(u.until, cancel)()
	u.underway = cancel // the SDK makes one call at a time
	u.mu.Unlock()
	u.client.send(ctx, &tracepb.TracesData{ResourceSpans: spans})
	return nil
}
