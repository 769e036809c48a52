package otlp

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

const (
	// logsInterval is how long an entry of the log waits for others at most.
	logsInterval = time.Second
	// entryTextMax bounds each text of an entry, in bytes.
	entryTextMax = 16 << 10
)

// Logs sends the entries of a log. It is safe for concurrent use.
type Logs struct {
	*client
	provider *sdklog.LoggerProvider
}

// NewLogs returns an exporter. The log of the receiver, which has what goes wrong with it, must not be sent there. The
// caller calls [Logs.Close].
func NewLogs(to Receiver) (*Logs, error) {
	c, err := newClient(to, "logs", "log")
	if err != nil {
		return nil, err
	}
	batches := sdklog.NewBatchProcessor(entries{c, resourceOf(to)}, sdklog.WithMaxQueueSize(queueMax), sdklog.WithExportMaxBatchSize(batchMax),
		sdklog.WithExportInterval(logsInterval), sdklog.WithExportTimeout(exportTimeout))
	return &Logs{client: c, provider: sdklog.NewLoggerProvider(sdklog.WithProcessor(batches), sdklog.WithAttributeCountLimit(attributesMax),
		sdklog.WithAttributeValueLengthLimit(entryTextMax))}, nil
}

// Handler returns a handler that passes entries on to next, and sends them if next takes their level.
func (l *Logs) Handler(next slog.Handler) slog.Handler {
	return slog.NewMultiHandler(next, taken{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(l.provider)), next})
}

// Close sends the entries that wait, until ctx ends.
func (l *Logs) Close(ctx context.Context) error {
	defer l.client.close()
	return l.provider.Shutdown(ctx)
}

// taken is a handler of the levels that another one takes.
type taken struct {
	slog.Handler
	by slog.Handler
}

// Enabled implements [slog.Handler].
func (h taken) Enabled(ctx context.Context, level slog.Level) bool { return h.by.Enabled(ctx, level) }

// WithAttrs implements [slog.Handler].
func (h taken) WithAttrs(list []slog.Attr) slog.Handler {
	return taken{h.Handler.WithAttrs(list), h.by}
}

// WithGroup implements [slog.Handler].
func (h taken) WithGroup(name string) slog.Handler { return taken{h.Handler.WithGroup(name), h.by} }

// entries implements [sdklog.Exporter].
type entries struct {
	client   *client
	resource *resourcepb.Resource
}

// Export implements [sdklog.Exporter]. It returns nil also for a batch that was given up, so that this is not logged a
// second time.
func (e entries) Export(ctx context.Context, records []sdklog.Record) error {
	list := make([]*logspb.LogRecord, 0, len(records))
	for i := range records {
		list = append(list, entryOf(&records[i]))
	}
	e.client.send(ctx, &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{{
		Resource: e.resource, ScopeLogs: []*logspb.ScopeLogs{{Scope: &commonpb.InstrumentationScope{Name: scope}, LogRecords: list}},
	}}})
	return nil
}

// Shutdown implements [sdklog.Exporter].
func (entries) Shutdown(context.Context) error { return nil }

// ForceFlush implements [sdklog.Exporter].
func (entries) ForceFlush(context.Context) error { return nil }

// entryOf translates an entry, which has the trace and the span that it belongs to.
func entryOf(r *sdklog.Record) *logspb.LogRecord {
	out := &logspb.LogRecord{
		TimeUnixNano: nanos(r.Timestamp()), ObservedTimeUnixNano: nanos(r.ObservedTimestamp()), SeverityNumber: logspb.SeverityNumber(r.Severity()),
		SeverityText: r.SeverityText(), Body: valueOf(r.Body()), DroppedAttributesCount: uint32(r.DroppedAttributes()),
	}
	if id := r.TraceID(); id.IsValid() {
		out.TraceId = id[:]
	}
	if id := r.SpanID(); id.IsValid() {
		out.SpanId = id[:]
	}
	r.WalkAttributes(func(kv attribute.KeyValue) bool {
		out.Attributes = append(out.Attributes, attributesOf([]attribute.KeyValue{kv})...)
		return true
	})
	return out
}

// valueOf translates a value of an entry. A receiver refuses a batch with a text that is not UTF-8.
func valueOf(v attribute.Value) *commonpb.AnyValue {
	switch v.Type() {
	case attribute.BOOL:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v.AsBool()}}
	case attribute.INT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v.AsInt64()}}
	case attribute.FLOAT64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v.AsFloat64()}}
	case attribute.SLICE:
		list := &commonpb.ArrayValue{}
		for _, one := range v.AsSlice() {
			list.Values = append(list.Values, valueOf(one))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: list}}
	case attribute.MAP:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{KvlistValue: &commonpb.KeyValueList{Values: attributesOf(v.AsMap())}}}
	}
	return textOf(v.String()) // lists of numbers and others have the form of JSON
}

func attributesOf(list []attribute.KeyValue) (out []*commonpb.KeyValue) {
	for _, kv := range list {
		out = append(out, &commonpb.KeyValue{Key: strings.ToValidUTF8(string(kv.Key), "\uFFFD"), Value: valueOf(kv.Value)})
	}
	return out
}
