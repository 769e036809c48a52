// Package otlp sends spans to a receiver of OpenTelemetry's protocol (OTLP) over HTTP.
//
// It has an HTTP client of its own for the converter of OpenTelemetry: the official client brings gRPC
// with it, which would add megabytes to the program and time to the start of each command.
package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/tracing"
)

const (
	// requestTimeout bounds one attempt, exportTimeout all attempts for a batch.
	requestTimeout, exportTimeout = 10 * time.Second, 30 * time.Second
	// queueMax bounds the spans that wait for their export; more are dropped. batchMax bounds the
	// spans of a request.
	queueMax, batchMax = 4096, 512
	// attributesMax and textMax bound what a span has.
	attributesMax, textMax = 32, 256
	// answerMax bounds what is read of an answer.
	answerMax = 64 << 10
	// logInterval is the least time between two messages about the same trouble.
	logInterval = time.Minute
)

// Config are the settings of traces.
type Config struct {
	// Endpoint is the address of the receiver, such as http://127.0.0.1:4318; spans go to
	// /v1/traces below it.
	Endpoint string
	// Ratio is the part of the traces that is recorded, from 0 to 1.
	Ratio float64
	// Header has further headers of each request, such as an authorization.
	Header http.Header
	// Version is the version of this program.
	Version string
	// Log receives what goes wrong.
	Log *slog.Logger
}

// Exporter records spans and sends them. It is safe for concurrent use.
type Exporter struct {
	provider *sdktrace.TracerProvider
	client   *client
}

// New returns an exporter. The caller calls [Exporter.Close].
func New(ctx context.Context, cfg Config) (*Exporter, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	out, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("export of traces: %w", err)
	}
	limits := sdktrace.SpanLimits{
		AttributeValueLengthLimit: textMax, AttributeCountLimit: attributesMax, EventCountLimit: 1, LinkCountLimit: 1,
		AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1,
	}
	return &Exporter{client: c, provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(out, sdktrace.WithMaxQueueSize(queueMax), sdktrace.WithMaxExportBatchSize(batchMax), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "modbox"), attribute.String("service.version", cfg.Version))),
		// The caller's wish to be sampled does not count: callers are not trusted with the
		// receiver's capacity.
		sdktrace.WithSampler(whole{sdktrace.TraceIDRatioBased(cfg.Ratio)}), sdktrace.WithRawSpanLimits(limits),
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

// Tracer returns the tracer whose spans the exporter sends.
func (e *Exporter) Tracer() *tracing.Tracer { return tracing.New(e.provider) }

// Close sends the spans that wait, until ctx ends.
func (e *Exporter) Close(ctx context.Context) error {
	err := e.provider.Shutdown(ctx)
	e.client.http.CloseIdleConnections()
	return err
}

// Collectors returns the metrics of the export.
func (e *Exporter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{e.client.batches}
}

// client sends batches of spans over HTTP. It implements [otlptrace.Client].
type client struct {
	url     string
	header  http.Header
	http    *http.Client
	log     *slog.Logger
	logged  atomic.Int64 // when the last message was logged, in nanoseconds
	batches *prometheus.CounterVec
}

func newClient(cfg Config) (*client, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("traces.endpoint: it is not an http or https URL")
	}
	c := &client{
		url: strings.TrimSuffix(u.String(), "/") + "/v1/traces", header: cfg.Header.Clone(), log: cfg.Log,
		http: &http.Client{Timeout: requestTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		batches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modbox_trace_batches_total", Help: "Batches of spans that were sent to the receiver of traces, by outcome: ok, or error for batches that were given up.",
		}, []string{"outcome"}),
	}
	c.batches.WithLabelValues("ok")
	c.batches.WithLabelValues("error")
	return c, nil
}

// Start implements [otlptrace.Client].
func (c *client) Start(context.Context) error { return nil }

// Stop implements [otlptrace.Client].
func (c *client) Stop(context.Context) error { return nil }

// UploadTraces implements [otlptrace.Client]. A batch that cannot be sent is given up: it logs that,
// at most once in a minute, and returns nil, so that it is not logged a second time.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := encode(spans)
	if err == nil {
		_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, c.post(ctx, body) },
			retry.Pauses(500*time.Millisecond, 5*time.Second), backoff.WithMaxElapsedTime(exportTimeout))
	}
	if err == nil {
		c.batches.WithLabelValues("ok").Inc()
		return nil
	}
	c.batches.WithLabelValues("error").Inc()
	if now, last := time.Now().UnixNano(), c.logged.Load(); now-last >= int64(logInterval) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("traces cannot be sent and are lost", "error", err)
	}
	return nil
}

// encode returns the body of a request. TracesData has the same form as the request's message,
// which is generated together with gRPC.
func encode(spans []*tracepb.ResourceSpans) ([]byte, error) {
	message, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err = w.Write(message)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// post makes one attempt. Errors that no further attempt can change are permanent.
func (c *client) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "gzip")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, answerMax) // so that the connection is used again
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("the receiver of traces answered with status %d", resp.StatusCode)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return err
	}
	return backoff.Permanent(err)
}
