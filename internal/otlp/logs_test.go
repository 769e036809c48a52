package otlp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/modbox/modbox/internal/otlp"
)

// silent returns the address of a receiver that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "http://" + l.Addr().String()
}

func newLogsData() *logspb.LogsData { return new(logspb.LogsData) }

func entriesOf(batches []*logspb.LogsData) (all []*logspb.LogRecord) {
	for _, b := range batches {
		all = append(all, b.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords()...)
	}
	return all
}

// TestLogs: entries arrive with their attributes and their trace, also the last entries before the end, and no entries of
// a level that the log does not have. The log itself has all entries as well.
func TestLogs(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusOK, newLogsData)
	var own bytes.Buffer
	next := slog.NewTextHandler(&own, &slog.HandlerOptions{Level: slog.LevelInfo})
	l, err := otlp.NewLogs(otlp.Receiver{Endpoint: endpoint, Header: secretHeader, Version: "1", Log: slog.New(next)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(l.Handler(next))
	ctx, span := sdktrace.NewTracerProvider().Tracer("").Start(t.Context(), "request")
	log.Debug("too low")
	log.With("sandbox", "s1").WarnContext(ctx, "it failed", "error", errors.New("why \xff"), "count", 3, "ok", true, slog.Group("in", "ratio", 0.5), "text", strings.Repeat("x", 100_000))
	for i := range 1000 {
		log.Info(fmt.Sprint("entry ", i))
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := entriesOf(batches())
	if len(all) != 1001 || all[1000].GetBody().GetStringValue() != "entry 999" {
		t.Fatalf("%d entries, want 1001 that end with entry 999", len(all))
	}
	first := all[0]
	id := span.SpanContext().TraceID()
	if first.GetBody().GetStringValue() != "it failed" || first.GetSeverityNumber() != logspb.SeverityNumber_SEVERITY_NUMBER_WARN || first.GetTimeUnixNano() == 0 ||
		!bytes.Equal(first.GetTraceId(), id[:]) || len(first.GetSpanId()) != 8 {
		t.Errorf("entry = %v", first)
	}
	got := map[string]any{}
	for _, a := range first.GetAttributes() {
		switch v := a.GetValue(); a.GetKey() {
		case "count":
			got[a.GetKey()] = v.GetIntValue()
		case "ok":
			got[a.GetKey()] = v.GetBoolValue()
		case "in":
			got[a.GetKey()] = v.GetKvlistValue().GetValues()[0].GetValue().GetDoubleValue()
		case "text":
			got[a.GetKey()] = len(v.GetStringValue())
		default:
			got[a.GetKey()] = v.GetStringValue()
		}
	}
	if diff := cmp.Diff(map[string]any{"sandbox": "s1", "exception.message": "why \uFFFD", "exception.type": "*errors.errorString", "count": int64(3), "ok": true, "in": 0.5, "text": 16 << 10}, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if n := strings.Count(own.String(), "\n"); n != 1001 || strings.Contains(own.String(), "too low") {
		t.Errorf("the log itself has %d entries, want 1001", n)
	}
}

// TestLogsWithoutReceiver: with a receiver that does not answer, logging waits for nothing, the memory of entries is
// bounded, and the end takes no more than its time.
func TestLogsWithoutReceiver(t *testing.T) {
	var own bytes.Buffer
	next := slog.NewTextHandler(&own, nil)
	l, err := otlp.NewLogs(otlp.Receiver{Endpoint: silent(t), Log: slog.New(next)})
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(l.Handler(slog.NewTextHandler(new(bytes.Buffer), nil)))
	for range 100_000 { // many times what may wait
		quiet.Info("entry")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); err == nil {
		t.Error("Close of entries that cannot be sent succeeds")
	}
}

// TestLogsRefused: a batch that is refused is counted and lost, with one message, which is not sent itself.
func TestLogsRefused(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusForbidden, newLogsData)
	var own bytes.Buffer
	next := slog.NewTextHandler(&own, nil)
	l, err := otlp.NewLogs(otlp.Receiver{Endpoint: endpoint, Header: secretHeader, Log: slog.New(next)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(l.Handler(next))
	for range 2000 {
		log.Info("entry")
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(own.String(), "logs cannot be sent"); n != 1 || strings.Contains(own.String(), "secret") {
		t.Errorf("%d messages, want one without the header", n)
	}
	for _, e := range entriesOf(batches()) {
		if e.GetBody().GetStringValue() != "entry" {
			t.Errorf("the receiver gets %q", e.GetBody().GetStringValue())
		}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(l.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range families[0].GetMetric() {
		outcome, n := one.GetLabel()[0].GetValue(), one.GetCounter().GetValue()
		if (outcome == "error") != (n > 0) {
			t.Errorf("%s counts %v batches with the outcome %s", families[0].GetName(), n, outcome)
		}
	}
}
