package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/internal/otlp"
	"github.com/modbox/modbox/internal/sandbox"
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

// nameID and others are types with names, as attributes have them.
type nameID string

type marshaled struct{ id string }

func (m marshaled) MarshalText() ([]byte, error) { return []byte("text of " + m.id), nil }

type broken struct{}

func (broken) String() string { panic("broken") }

type secret string

func (secret) LogValue() slog.Value { return slog.StringValue("hidden") }

// plain returns a value of an entry in the form that a test compares.
func plain(v *commonpb.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_ArrayValue:
		list := []any{}
		for _, one := range v.ArrayValue.GetValues() {
			list = append(list, plain(one))
		}
		return list
	case *commonpb.AnyValue_KvlistValue:
		return named(v.KvlistValue.GetValues())
	}
	return nil
}

func named(list []*commonpb.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		out[a.GetKey()] = plain(a.GetValue())
	}
	return out
}

// logsTo returns an exporter that has not begun, and a log that is also sent by it.
func logsTo(t *testing.T, endpoint string, next slog.Handler) (*otlp.Logs, *slog.Logger) {
	t.Helper()
	l, err := otlp.NewLogs(otlp.Receiver{Endpoint: endpoint, Header: secretHeader, Version: "1", Log: slog.New(next)})
	if err != nil {
		t.Fatal(err)
	}
	return l, slog.New(l.Handler(next))
}

// counted returns the counters of an exporter: the dropped entries, and the batches by their outcome.
func counted(t *testing.T, l *otlp.Logs) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(l.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, label := range one.GetLabel() {
				name = label.GetValue()
			}
			out[name] = one.GetCounter().GetValue()
		}
	}
	return out
}

// TestLogs: entries arrive with their attributes and their trace, also the last entries before the end, and no entries of
// a level that the log does not have. The log itself has all entries as well.
func TestLogs(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusOK, newLogsData)
	var own bytes.Buffer
	next := slog.NewTextHandler(&own, &slog.HandlerOptions{Level: slog.LevelInfo})
	l, log := logsTo(t, endpoint, next)
	l.Begin("i1")
	ctx, span := sdktrace.NewTracerProvider().Tracer("").Start(t.Context(), "request")
	log.Debug("too low")
	log.With("sandbox", nameID("s1")).WarnContext(ctx, "it failed")
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
	if first.GetBody().GetStringValue() != "it failed" || first.GetSeverityNumber() != logspb.SeverityNumber_SEVERITY_NUMBER_WARN || first.GetSeverityText() != "WARN" ||
		first.GetTimeUnixNano() == 0 || !bytes.Equal(first.GetTraceId(), id[:]) || len(first.GetSpanId()) != 8 {
		t.Errorf("entry = %v", first)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	resource := named(batches()[0].GetResourceLogs()[0].GetResource().GetAttributes())
	if diff := cmp.Diff(map[string]any{"service.name": "modbox", "service.version": "1", "service.instance.id": "i1", "host.name": host}, resource); diff != "" {
		t.Errorf("resource (-want +got):\n%s", diff)
	}
	if got := counted(t, l); got["modbox_log_entries_dropped_total"] != 0 || got["error"] != 0 || got["ok"] == 0 {
		t.Errorf("counters: %v", got)
	}
	if n := strings.Count(own.String(), "\n"); n != 1001 || strings.Contains(own.String(), "too low") {
		t.Errorf("the log itself has %d entries, want 1001", n)
	}
}

// TestAttributes: attributes of any type arrive under their own keys, with what With and WithGroup added.
func TestAttributes(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusOK, newLogsData)
	l, log := logsTo(t, endpoint, slog.NewTextHandler(io.Discard, nil))
	var none *url.URL
	log = log.With("sandbox", sandbox.ID("s1"), slog.Attr{}).WithGroup("outer").With("state", sandbox.Running).WithGroup("inner")
	log.Error("it failed",
		"error", errors.New("why \xff"), "second", fmt.Errorf("wrapped: %w", io.EOF), "count", 3, "of", uint8(4), "most", uint64(math.MaxUint64), "ok", true,
		"took", time.Second, "at", time.Unix(0, 5).UTC(), "text", marshaled{"m"}, "broken", broken{}, "none", none, "nil", nil, "url", &url.URL{Host: "h"},
		"list", []any{nameID("a"), 1.5, secret("password")}, "bytes", []byte("b"), "raw", json.RawMessage("{}"), "lists", [][]int{{}, {1}}, "struct", struct{ A int }{1}, "secret", secret("password"),
		slog.Group("", slog.Int("inline", 1)), slog.Group("empty"), slog.Group("in", "ratio", 0.5))
	log.Info("empty groups")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := entriesOf(batches())
	want := map[string]any{"sandbox": "s1", "outer": map[string]any{"state": "running", "inner": map[string]any{
		"error": "why \uFFFD", "second": "wrapped: EOF", "count": int64(3), "of": int64(4), "most": "18446744073709551615", "ok": true,
		"took": int64(time.Second), "at": "1970-01-01T00:00:00.000000005Z", "text": "text of m", "broken": "!PANIC: broken", "none": "<nil>", "nil": "<nil>", "url": "//h",
		"list": []any{"a", 1.5, "hidden"}, "bytes": "b", "raw": "{}", "lists": []any{[]any{}, []any{int64(1)}}, "struct": "{A:1}", "secret": "hidden",
		"inline": int64(1), "in": map[string]any{"ratio": 0.5},
	}}}
	if diff := cmp.Diff(want, named(all[0].GetAttributes())); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"sandbox": "s1", "outer": map[string]any{"state": "running"}}, named(all[1].GetAttributes())); diff != "" {
		t.Errorf("attributes of an entry without own ones (-want +got):\n%s", diff)
	}
}

// TestLargeEntries: an entry is cut to a bound, in bytes and at a character, and a batch of large entries is divided.
func TestLargeEntries(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusOK, newLogsData)
	l, log := logsTo(t, endpoint, slog.NewTextHandler(io.Discard, nil))
	log.Info("body", "id", "s1", "text", strings.Repeat("é", 100_000), "more", 1, slog.Group("in", "text", "x"))
	log.Info(strings.Repeat("x", 100_000), "lost", "s1")
	many := make([]any, 0, 100)
	for i := range 50 {
		many = append(many, fmt.Sprint("key", i), i)
	}
	log.Info("many", many...)
	large := strings.Repeat("x\xff", 10_000)
	for range 500 {
		log.Info("large", "text", large)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := entriesOf(batches())
	if len(all) != 503 || len(batches()) < 2 {
		t.Fatalf("%d entries in %d batches, want 503 in some", len(all), len(batches()))
	}
	for _, b := range batches() {
		if n := proto.Size(b); n > 4<<20+1024 {
			t.Errorf("a batch has %d bytes", n)
		}
	}
	for _, e := range all {
		if n := proto.Size(e); n > 17<<10 {
			t.Errorf("an entry has %d bytes", n)
		}
	}
	first := named(all[0].GetAttributes())
	text, _ := first["text"].(string)
	if first["id"] != "s1" || len(text) < 15<<10 || !utf8.ValidString(text) || strings.Trim(text, "é") != "" || all[0].GetDroppedAttributesCount() != 2 {
		t.Errorf("%d bytes of text, %d attributes are dropped, want 2, the rest: %v", len(text), all[0].GetDroppedAttributesCount(), first["id"])
	}
	if n := len(all[1].GetBody().GetStringValue()); n < 15<<10 || all[1].GetDroppedAttributesCount() != 1 {
		t.Errorf("a long message has %d bytes beside %v", n, all[1].GetAttributes())
	}
	if n := len(all[2].GetAttributes()); n != 32 || all[2].GetDroppedAttributesCount() != 18 {
		t.Errorf("%d of 50 attributes, %d are dropped", n, all[2].GetDroppedAttributesCount())
	}
}

// TestOverflow: the newest entries arrive, as many as may wait, and a counter has the number of dropped entries.
func TestOverflow(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusOK, newLogsData)
	l, log := logsTo(t, endpoint, slog.NewTextHandler(io.Discard, nil))
	for i := range 10_000 { // before it begins, so that all wait
		log.Info(fmt.Sprint("entry ", i))
	}
	l.Begin("i1")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.Info("after the end")
	all := entriesOf(batches())
	if len(all) != 4096 || all[0].GetBody().GetStringValue() != "entry 5904" || all[4095].GetBody().GetStringValue() != "entry 9999" {
		t.Fatalf("%d entries, want the last 4096", len(all))
	}
	if got := counted(t, l)["modbox_log_entries_dropped_total"]; got != 5905 {
		t.Errorf("%v entries are counted as dropped, want 5905", got)
	}
}

// TestRejected: entries that the receiver rejects in its answer are counted, and the log has its message.
func TestRejected(t *testing.T) {
	partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too old")
	answer := protowire.AppendFixed32(protowire.AppendTag(nil, 9, protowire.Fixed32Type), 1) // of a later version
	answer = protowire.AppendBytes(protowire.AppendTag(answer, 1, protowire.BytesType), partial)
	for _, c := range []struct {
		body     []byte
		rejected float64
		message  string
	}{{answer, 2, "too old"}, {answer[:len(answer)-1], 0, ""}, {[]byte("<html>"), 0, ""}, {nil, 0, ""}} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(c.body) }))
		var own bytes.Buffer
		l, log := logsTo(t, s.URL, slog.NewTextHandler(&own, nil))
		for range 3 {
			log.Info("entry")
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.Close()
		if got := counted(t, l); got["modbox_log_entries_dropped_total"] != c.rejected || got["ok"] != 1 {
			t.Errorf("answer %q: counters %v, want %v dropped", c.body, got, c.rejected)
		}
		if logged := strings.Contains(own.String(), "does not take all logs"); logged != (c.rejected > 0) || !strings.Contains(own.String(), c.message) {
			t.Errorf("answer %q: log:\n%s", c.body, own.String())
		}
	}
}

// TestEndWithHungBatch: a batch whose receiver does not answer leaves time for entries that wait when the server ends.
func TestEndWithHungBatch(t *testing.T) {
	hung, got := make(chan struct{}), make(chan []byte, 1)
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
	}))
	t.Cleanup(s.Close)
	l, log := logsTo(t, s.URL, slog.NewTextHandler(io.Discard, nil))
	l.Begin("i1")
	log.Info("first")
	<-hung
	log.Info("second")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		t.Error(err)
	}
	select {
	case data := <-got:
		if !bytes.Contains(data, []byte("second")) || bytes.Contains(data, []byte("first")) {
			t.Errorf("the second batch is %q", data)
		}
	default:
		t.Error("the entry that waits does not arrive")
	}
	if n := counted(t, l)["modbox_log_entries_dropped_total"]; n != 1 {
		t.Errorf("%v entries are counted as dropped, want 1", n)
	}
}

// TestLogsWithoutReceiver: with a receiver that does not answer, logging waits for nothing, and all entries are counted as dropped.
func TestLogsWithoutReceiver(t *testing.T) {
	var own bytes.Buffer
	l, err := otlp.NewLogs(otlp.Receiver{Endpoint: silent(t), Log: slog.New(slog.NewTextHandler(&own, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin("i1")
	log := slog.New(l.Handler(slog.NewTextHandler(io.Discard, nil)))
	const entries = 20_000 // many times what may wait
	for range entries {
		log.Info("entry")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Close(ctx); err == nil {
		t.Error("Close of entries that cannot be sent succeeds")
	}
	if n := counted(t, l)["modbox_log_entries_dropped_total"]; n != entries || !strings.Contains(own.String(), "logs cannot be sent") {
		t.Errorf("%v entries are counted as dropped, want %d, log:\n%s", n, entries, own.String())
	}
}

// TestLogsRefused: a batch that is refused is counted and lost, with one message, which is not sent itself.
func TestLogsRefused(t *testing.T) {
	endpoint, batches := receive(t, "/v1/logs", http.StatusForbidden, newLogsData)
	var own bytes.Buffer
	next := slog.NewTextHandler(&own, nil)
	l, log := logsTo(t, endpoint, next)
	l.Begin("i1")
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
	if got := counted(t, l); got["modbox_log_entries_dropped_total"] < 2000 || got["error"] == 0 || got["ok"] != 0 {
		t.Errorf("counters: %v, want errors, and 2000 entries or more dropped", got)
	}
}
