package otlp

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
)

// Metrics sends the metrics of a registry at intervals, under their names for Prometheus.
type Metrics struct {
	*client
	source   prometheus.Gatherer
	resource *resourcepb.Resource
	begun    uint64 // the beginning of the counters, in nanoseconds since 1970

	end  context.CancelFunc
	work sync.WaitGroup
}

// NewMetrics begins to send the metrics of source. The caller calls [Metrics.Close].
func NewMetrics(to Receiver, source prometheus.Gatherer, interval time.Duration) (*Metrics, error) {
	c, err := newClient(to, "metrics", "metric")
	if err != nil {
		return nil, err
	}
	m := &Metrics{client: c, source: source, resource: resourceOf(to), begun: nanos(time.Now())}
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	m.work.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				m.export(ctx)
			}
		}
	})
	return m, nil
}

// Close sends the metrics a last time, until ctx ends.
func (m *Metrics) Close(ctx context.Context) error {
	m.end()
	m.work.Wait()
	m.export(ctx)
	m.client.close()
	return ctx.Err()
}

// export sends the present metrics. If it fails, the next export has the counts that this one did not deliver.
func (m *Metrics) export(ctx context.Context) {
	families, err := m.source.Gather()
	if err != nil {
		m.log.Warn("some metrics are not sent", "error", err) // the others are
	}
	now := nanos(time.Now())
	list := make([]*metricspb.Metric, 0, len(families))
	for _, f := range families {
		if metric := m.metricOf(f, now); metric != nil {
			list = append(list, metric)
		}
	}
	m.send(ctx, &metricspb.MetricsData{ResourceMetrics: []*metricspb.ResourceMetrics{{
		Resource: m.resource, ScopeMetrics: []*metricspb.ScopeMetrics{{Scope: &commonpb.InstrumentationScope{Name: scope}, Metrics: list}},
	}}})
}

// scope names this program as the origin of metrics.
const scope = "github.com/modbox/modbox"

// metricOf translates metrics of one name, nil for a type without translation.
func (m *Metrics) metricOf(f *dto.MetricFamily, now uint64) *metricspb.Metric {
	const total = metricspb.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
	out := &metricspb.Metric{Name: f.GetName(), Description: f.GetHelp()}
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		sum := &metricspb.Sum{IsMonotonic: true, AggregationTemporality: total}
		for _, one := range f.GetMetric() {
			point := number(one, one.GetCounter().GetValue(), now)
			point.StartTimeUnixNano = m.begun
			sum.DataPoints = append(sum.DataPoints, point)
		}
		out.Data = &metricspb.Metric_Sum{Sum: sum}
	case dto.MetricType_GAUGE, dto.MetricType_UNTYPED:
		gauge := &metricspb.Gauge{}
		for _, one := range f.GetMetric() {
			value := one.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_UNTYPED {
				value = one.GetUntyped().GetValue()
			}
			gauge.DataPoints = append(gauge.DataPoints, number(one, value, now))
		}
		out.Data = &metricspb.Metric_Gauge{Gauge: gauge}
	case dto.MetricType_HISTOGRAM:
		histogram := &metricspb.Histogram{AggregationTemporality: total}
		for _, one := range f.GetMetric() {
			histogram.DataPoints = append(histogram.DataPoints, m.distribution(one, now))
		}
		out.Data = &metricspb.Metric_Histogram{Histogram: histogram}
	case dto.MetricType_SUMMARY:
		summary := &metricspb.Summary{}
		for _, one := range f.GetMetric() {
			summary.DataPoints = append(summary.DataPoints, m.quantiles(one, now))
		}
		out.Data = &metricspb.Metric_Summary{Summary: summary}
	default:
		return nil
	}
	return out
}

func number(one *dto.Metric, value float64, now uint64) *metricspb.NumberDataPoint {
	return &metricspb.NumberDataPoint{Attributes: labels(one), TimeUnixNano: now, Value: &metricspb.NumberDataPoint_AsDouble{AsDouble: value}}
}

// distribution translates a histogram: each of its buckets includes the counts of the lower buckets, and a
// bucket of OTLP does not.
func (m *Metrics) distribution(one *dto.Metric, now uint64) *metricspb.HistogramDataPoint {
	h := one.GetHistogram()
	sum, count := h.GetSampleSum(), h.GetSampleCount()
	point := &metricspb.HistogramDataPoint{Attributes: labels(one), StartTimeUnixNano: m.begun, TimeUnixNano: now, Count: count, Sum: &sum}
	var below uint64
	for _, b := range h.GetBucket() {
		point.ExplicitBounds = append(point.ExplicitBounds, b.GetUpperBound())
		point.BucketCounts = append(point.BucketCounts, b.GetCumulativeCount()-below)
		below = b.GetCumulativeCount()
	}
	point.BucketCounts = append(point.BucketCounts, count-below)
	return point
}

func (m *Metrics) quantiles(one *dto.Metric, now uint64) *metricspb.SummaryDataPoint {
	s := one.GetSummary()
	point := &metricspb.SummaryDataPoint{Attributes: labels(one), StartTimeUnixNano: m.begun, TimeUnixNano: now, Count: s.GetSampleCount(), Sum: s.GetSampleSum()}
	for _, q := range s.GetQuantile() {
		point.QuantileValues = append(point.QuantileValues, &metricspb.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
	}
	return point
}

func labels(one *dto.Metric) []*commonpb.KeyValue {
	var list []*commonpb.KeyValue
	for _, l := range one.GetLabel() {
		list = append(list, text(l.GetName(), l.GetValue()))
	}
	return list
}

// text returns an attribute.
func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: textOf(value)}
}

func textOf(value string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "\uFFFD")}}
}

func nanos(t time.Time) uint64 { return uint64(t.UnixNano()) }
