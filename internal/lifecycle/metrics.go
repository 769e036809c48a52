package lifecycle

import (
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/warmbox"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the service's numbers for Prometheus.
type metrics struct {
	created prometheus.Histogram
	ends    *prometheus.CounterVec
	orphans prometheus.Counter
	ops     *prometheus.HistogramVec
	taken   *prometheus.CounterVec // nil without a pool

	registry   prometheus.Registerer // nil for none
	registered []prometheus.Collector
}

// newMetrics makes the metrics and registers them with r, when that is not nil.
func newMetrics(x *box.Index[*entry], p *pool.Pool[warmbox.Box], promises quota.Collector, r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		created: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "modbox_sandbox_create_seconds",
			Help:    "Time from the request for a sandbox until it was running.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "modbox_sandbox_ends_total",
			Help: "Sandboxes that ended, by cause.",
		}, []string{"cause"}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modbox_sweep_orphans_total",
			Help: "Boxes without a sandbox that the sweep found and destroyed.",
		}),
		ops: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "modbox_sandbox_operation_seconds",
			Help:    "Time of pausing, resuming, saving and forking sandboxes, by operation and outcome.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 15),
		}, []string{"operation", "outcome"}),
		registry: r,
	}
	for _, cause := range sandbox.Causes {
		m.ends.WithLabelValues(string(cause)) // so that each is there before its first time
	}
	collectors := append(m.pool(p), m.created, m.ends, m.orphans, m.ops, stateCollector{x}, promises)
	if r == nil {
		return m, nil
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			m.unregister()
			return nil, fmt.Errorf("register lifecycle metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

// pool makes the metrics of the pool, if there is one.
func (m *metrics) pool(p *pool.Pool[warmbox.Box]) []prometheus.Collector {
	if p.Size() == 0 {
		return nil
	}
	m.taken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_pool_creates_total",
		Help: "New sandboxes, by whether the pool had a started box for them (hit) or one was made (miss).",
	}, []string{"outcome"})
	m.pooled(true, 0)
	m.pooled(false, 0)
	return []prometheus.Collector{m.taken, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_pool_boxes",
		Help: "Started boxes that wait for a sandbox.",
	}, func() float64 { return float64(p.Len()) })}
}

// pooled adds n to the sandboxes that got a box of the pool, or did not.
func (m *metrics) pooled(hit bool, n float64) {
	if m.taken == nil {
		return
	}
	outcome := "miss"
	if hit {
		outcome = "hit"
	}
	m.taken.WithLabelValues(outcome).Add(n)
}

// op notes an operation that began at some time and has ended.
func (m *metrics) op(kind box.OperationKind, begin time.Time, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.ops.WithLabelValues(string(kind), outcome).Observe(time.Since(begin).Seconds())
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
}

// stateCollector counts live sandboxes by state when it is asked.
type stateCollector struct{ boxes *box.Index[*entry] }

var stateDesc = prometheus.NewDesc("modbox_sandboxes", "Sandboxes that have not ended, by state.", []string{"state"}, nil)

// Describe implements [prometheus.Collector].
func (stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- stateDesc }

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	counts := c.boxes.Count()
	for _, state := range sandbox.States {
		if !state.Ended() {
			ch <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(counts[state]), string(state))
		}
	}
}
