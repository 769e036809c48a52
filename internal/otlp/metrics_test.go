package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"

	"github.com/modbox/modbox/internal/otlp"
)

// registry has a metric of each type.
func registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"outcome"})
	requests.WithLabelValues("ok").Add(3)
	requests.WithLabelValues("error").Inc()
	sandboxes := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sandboxes"})
	sandboxes.Set(-2)
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1, 10, 100}})
	for _, s := range []float64{0.5, 2, 3, 1000} {
		seconds.Observe(s)
	}
	pauses := prometheus.NewSummary(prometheus.SummaryOpts{Name: "pauses", Objectives: map[float64]float64{0.5: 0}})
	pauses.Observe(4)
	r.MustRegister(requests, sandboxes, seconds, pauses)
	return r
}

func newMetricsData() *metricspb.MetricsData { return new(metricspb.MetricsData) }

// TestMetricsAtIntervals: the metrics arrive again and again.
func TestMetricsAtIntervals(t *testing.T) {
	endpoint, batches := receive(t, "/v1/metrics", http.StatusOK, newMetricsData)
	m, err := otlp.NewMetrics(otlp.Receiver{Endpoint: endpoint, Header: secretHeader, Log: slog.New(slog.DiscardHandler)}, registry(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	for tick := time.NewTicker(time.Millisecond); len(batches()) < 3; <-tick.C {
		// until the third has arrived
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMetrics: the metrics of a registry arrive at the end, with the values of Prometheus.
func TestMetrics(t *testing.T) {
	endpoint, batches := receive(t, "/v1/metrics", http.StatusOK, newMetricsData)
	begun := uint64(time.Now().UnixNano())
	m, err := otlp.NewMetrics(otlp.Receiver{Endpoint: endpoint, Header: secretHeader, Version: "1", Instance: "i1", Log: slog.New(slog.DiscardHandler)}, registry(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := batches()
	if len(all) != 1 {
		t.Fatalf("%d batches, want one at the end", len(all))
	}
	resource := all[0].GetResourceMetrics()[0]
	if a := named(resource.GetResource().GetAttributes()); a["service.name"] != "modbox" || a["service.version"] != "1" || a["service.instance.id"] != "i1" || a["host.name"] == "" {
		t.Errorf("resource = %v", a)
	}
	list := map[string]*metricspb.Metric{}
	for _, metric := range resource.GetScopeMetrics()[0].GetMetrics() {
		list[metric.GetName()] = metric
	}
	requests := list["requests_total"]
	got := map[string]float64{}
	for _, p := range requests.GetSum().GetDataPoints() {
		got[p.GetAttributes()[0].GetKey()+"="+p.GetAttributes()[0].GetValue().GetStringValue()] = p.GetAsDouble()
		if p.GetStartTimeUnixNano() < begun || p.GetTimeUnixNano() < p.GetStartTimeUnixNano() {
			t.Errorf("times of a counter: from %d to %d", p.GetStartTimeUnixNano(), p.GetTimeUnixNano())
		}
	}
	if diff := cmp.Diff(map[string]float64{"outcome=ok": 3, "outcome=error": 1}, got); diff != "" || requests.GetDescription() != "Requests." ||
		!requests.GetSum().GetIsMonotonic() || requests.GetSum().GetAggregationTemporality() != metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE {
		t.Errorf("counter = %v (-want +got):\n%s", requests, diff)
	}
	if p := list["sandboxes"].GetGauge().GetDataPoints(); len(p) != 1 || p[0].GetAsDouble() != -2 {
		t.Errorf("gauge = %v", p)
	}
	h := list["seconds"].GetHistogram().GetDataPoints()[0]
	if diff := cmp.Diff([]any{[]float64{1, 10, 100}, []uint64{1, 2, 0, 1}, uint64(4), 1005.5}, []any{h.GetExplicitBounds(), h.GetBucketCounts(), h.GetCount(), h.GetSum()}); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
	s := list["pauses"].GetSummary().GetDataPoints()[0]
	if q := s.GetQuantileValues(); s.GetCount() != 1 || s.GetSum() != 4 || len(q) != 1 || q[0].GetQuantile() != 0.5 || q[0].GetValue() != 4 {
		t.Errorf("summary = %v", s)
	}
}

// TestMetricsWithoutReceiver: a receiver that does not answer costs no more than the time of the end.
func TestMetricsWithoutReceiver(t *testing.T) {
	var log bytes.Buffer
	m, err := otlp.NewMetrics(otlp.Receiver{Endpoint: silent(t), Log: slog.New(slog.NewTextHandler(&log, nil))}, registry(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Close(ctx); err == nil || !strings.Contains(log.String(), "metrics cannot be sent") {
		t.Errorf("Close = %v, log:\n%s", err, log.String())
	}
}
