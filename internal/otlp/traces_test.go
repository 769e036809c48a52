package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/internal/otlp"
	"github.com/modbox/modbox/internal/tracing"
)

// record makes a trace of a request and a span below it.
func record(e *otlp.Traces) {
	ctx, root := e.Tracer().Request(httptest.NewRequest(http.MethodGet, "/", nil))
	_, span := tracing.Start(ctx, "below")
	span.Set("text", strings.Repeat("x", 10_000))
	span.End(nil)
	root.Answered("GET", "/v1/version", 200, "id")
}

// TestExport: spans arrive as OTLP with the settings' headers, also after the receiver was busy, and
// their texts are bounded.
func TestExport(t *testing.T) {
	var requests atomic.Int32
	var got tracepb.TracesData
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path != "/base/v1/traces" || r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("request to %s with %v", r.URL.Path, r.Header)
		}
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		data, err := io.ReadAll(body)
		if err == nil {
			err = proto.Unmarshal(data, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer receiver.Close()
	e, err := otlp.NewTraces(t.Context(), otlp.Receiver{
		Endpoint: receiver.URL + "/base/", Header: http.Header{"Authorization": {"Bearer secret"}}, Version: "1", Instance: "i1", Log: slog.New(slog.DiscardHandler),
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	record(e)
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n != 2 {
		t.Fatalf("%d requests, want one and its repetition", n)
	}
	if a := named(got.GetResourceSpans()[0].GetResource().GetAttributes()); a["service.name"] != "modbox" || a["service.version"] != "1" || a["service.instance.id"] != "i1" || a["host.name"] == "" {
		t.Errorf("resource = %v", a)
	}
	spans := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 2 || spans[0].GetName() != "below" || !bytes.Equal(spans[0].GetParentSpanId(), spans[1].GetSpanId()) {
		t.Fatalf("spans: %v", spans)
	}
	if text := spans[0].GetAttributes()[0].GetValue().GetStringValue(); len(text) != 256 {
		t.Errorf("a text of 10,000 bytes has %d bytes in a span, want 256", len(text))
	}
}

// TestReceiverThatRefuses: a batch that is refused is lost with one message, and not repeated; the
// header, which is a secret, is not in the message.
func TestReceiverThatRefuses(t *testing.T) {
	var requests atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer receiver.Close()
	var log bytes.Buffer
	e, err := otlp.NewTraces(t.Context(), otlp.Receiver{
		Endpoint: receiver.URL, Header: http.Header{"Authorization": {"Bearer secret"}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	record(e)
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if requests.Load() != 1 || strings.Count(log.String(), "status 403") != 1 || strings.Contains(log.String(), "secret") {
		t.Errorf("%d requests, log:\n%s", requests.Load(), log.String())
	}
}

// TestRatioNone: with a ratio of 0 no request is traced, whatever its caller asks for.
func TestRatioNone(t *testing.T) {
	e, err := otlp.NewTraces(t.Context(), otlp.Receiver{Endpoint: "http://127.0.0.1:1", Log: slog.New(slog.DiscardHandler)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(tracing.Header, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	ctx, _ := e.Tracer().Request(r)
	if traceparent, _ := tracing.Call(ctx, "agent"); traceparent != "" {
		t.Errorf("a request that asks for it is traced: %s", traceparent)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestEndpoint(t *testing.T) {
	for _, endpoint := range []string{"", "127.0.0.1:4318", "ftp://host", "http://"} {
		to := otlp.Receiver{Endpoint: endpoint}
		_, traces := otlp.NewTraces(t.Context(), to, 1)
		_, metrics := otlp.NewMetrics(to, prometheus.NewRegistry(), time.Hour)
		if _, logs := otlp.NewLogs(to); traces == nil || metrics == nil || logs == nil {
			t.Errorf("endpoint %q is accepted", endpoint)
		}
	}
}

// TestEndWithHungSpans: a batch whose receiver does not answer leaves time for spans that wait when the server ends, and no
// request lasts longer than that.
func TestEndWithHungSpans(t *testing.T) {
	hung, ended, got := make(chan struct{}), make(chan struct{}), make(chan []byte, 1)
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := gzip.NewReader(r.Body)
		data, _ := io.ReadAll(body)
		if requests.Add(1) > 1 {
			got <- data
			return
		}
		close(hung)
		<-r.Context().Done()
		close(ended)
	}))
	t.Cleanup(s.Close)
	e, err := otlp.NewTraces(t.Context(), otlp.Receiver{Endpoint: s.URL, Log: slog.New(slog.DiscardHandler)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 256 { // a whole batch, which is sent at once
		record(e)
	}
	<-hung
	_, span := e.Tracer().Request(httptest.NewRequest(http.MethodGet, "/", nil))
	span.Answered("GET", "/v1/second", 200, "id")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case data := <-got:
		if !bytes.Contains(data, []byte("/v1/second")) {
			t.Errorf("the second batch is %q", data)
		}
	default:
		t.Fatal("the span that waits does not arrive")
	}
	<-ended
}
