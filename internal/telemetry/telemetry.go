// Package telemetry has the numbers for Prometheus about the life of sandboxes: how many there are,
// how long their operations took, how they ended.
package telemetry

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Pool is the pool of warm boxes.
type Pool interface {
	// Size returns the number of boxes that the pool is to have; 0 turns it off.
	Size() int
	// Len returns the number of boxes that wait for a sandbox, and how many of them can have any image.
	Len() (all, blank int)
}

// Metrics are the numbers. They are safe for concurrent use.
type Metrics struct {
	created prometheus.Histogram
	ends    *prometheus.CounterVec
	orphans prometheus.Counter
	ops     *prometheus.HistogramVec
	taken   *prometheus.CounterVec // nil without a pool
	phases  *prometheus.HistogramVec

	registry   prometheus.Registerer // nil for none
	registered []prometheus.Collector
}

// New makes the metrics and registers them with r, when that is not nil. The function count returns
// the number of live sandboxes in each state.
func New(r prometheus.Registerer, count func() map[sandbox.State]int, p Pool) (*Metrics, error) {
	m := &Metrics{
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
		phases:   newPhases(),
		registry: r,
	}
	for _, cause := range sandbox.Causes {
		m.ends.WithLabelValues(string(cause)) // so that each is there before its first time
	}
	for _, kind := range []box.OperationKind{box.Pause, box.Resume, box.Checkpoint, box.Restore, box.Fork, box.Snapshot} {
		m.ops.WithLabelValues(string(kind), "ok")
		m.ops.WithLabelValues(string(kind), "error")
	}
	if err := m.Register(append(m.pool(p), m.created, m.ends, m.orphans, m.ops, m.phases, newStateCollector(count))); err != nil {
		return nil, err
	}
	return m, nil
}

// Register registers metrics of other parts, until Unregister. On an error it registers none, and
// unregisters all.
func (m *Metrics) Register(lists ...[]prometheus.Collector) error {
	if m.registry == nil {
		return nil
	}
	for _, c := range slices.Concat(lists...) {
		if err := m.registry.Register(c); err != nil {
			m.Unregister()
			return fmt.Errorf("register the metrics of sandboxes: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

// pool makes the metrics of the pool, if there is one.
func (m *Metrics) pool(p Pool) []prometheus.Collector {
	if p.Size() == 0 {
		return nil
	}
	m.taken = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_pool_creates_total",
		Help: "New sandboxes, by whether the pool had a started box for them (hit) or one was made (miss).",
	}, []string{"outcome"})
	m.FromPool(true, 0)
	m.FromPool(false, 0)
	return []prometheus.Collector{m.taken, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_pool_boxes",
		Help: "Started boxes that wait for a sandbox.",
	}, func() float64 { all, _ := p.Len(); return float64(all) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_pool_blank_boxes",
		Help: "Boxes of modbox_pool_boxes that can have any image.",
	}, func() float64 { _, blank := p.Len(); return float64(blank) })}
}

// FromPool counts n sandboxes that got a box of the pool, or, if hit is false, did not.
func (m *Metrics) FromPool(hit bool, n int) {
	if m.taken == nil {
		return
	}
	outcome := "miss"
	if hit {
		outcome = "hit"
	}
	m.taken.WithLabelValues(outcome).Add(float64(n))
}

// Created observes that a sandbox runs, the time took after the request for it.
func (m *Metrics) Created(took time.Duration) { m.created.Observe(took.Seconds()) }

// Ended counts a sandbox that ended.
func (m *Metrics) Ended(cause sandbox.CauseCode) { m.ends.WithLabelValues(string(cause)).Inc() }

// Orphan counts a box without a sandbox.
func (m *Metrics) Orphan() { m.orphans.Inc() }

// Operation observes an operation that began at some time and has ended now.
func (m *Metrics) Operation(kind box.OperationKind, begin time.Time, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.ops.WithLabelValues(string(kind), outcome).Observe(time.Since(begin).Seconds())
}

// Unregister ends the registration of the metrics.
func (m *Metrics) Unregister() {
	for _, c := range m.registered {
		m.registry.Unregister(c)
	}
}

// stateCollector counts live sandboxes by state when it is asked.
type stateCollector struct {
	count func() map[sandbox.State]int
	desc  *prometheus.Desc
}

func newStateCollector(count func() map[sandbox.State]int) stateCollector {
	return stateCollector{count, prometheus.NewDesc("modbox_sandboxes", "Sandboxes that have not ended, by state.", []string{"state"}, nil)}
}

// Describe implements [prometheus.Collector].
func (c stateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	counts := c.count()
	for _, state := range sandbox.States {
		if !state.Ended() {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(counts[state]), string(state))
		}
	}
}
