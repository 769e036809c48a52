package quota

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/sandbox"
)

// collectTimeout bounds one query of the metrics.
const collectTimeout = 5 * time.Second

// newWaits returns the metric of admissions.
func newWaits() *prometheus.HistogramVec {
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "modbox_admission_seconds",
		Help:    "Time of requests for sandboxes in admission, by outcome: admitted; quota, when the workspace may have no more; server, when the server is full; refused and canceled for other reasons; error.",
		Buckets: metrics.Steps,
	}, []string{"outcome"})
	for _, outcome := range []string{"admitted", "quota", "server", "refused", "canceled", "error"} {
		waits.WithLabelValues(outcome) // so that each is there before its first time
	}
	return waits
}

// admission returns the outcome of an admission.
func admission(err error) string {
	switch code := sandbox.CodeOf(err); {
	case err == nil:
		return "admitted"
	case errors.Is(err, ErrServerFull) || code == sandbox.Unavailable:
		return "server"
	case code == sandbox.QuotaExceeded:
		return "quota"
	}
	return metrics.Outcome(err)
}

// Collectors returns the metrics of admission.
func (c *Controller) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.waits, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_admission_waiting", Help: "Requests that wait for the quota of their workspace or for capacity of the server.",
	}, func() float64 { return float64(c.queue.total()) })}
}

// Collector exports the promised capacity. It implements [prometheus.Collector].
type Collector struct {
	store Store
	most  func() Promise
}

// NewCollector returns the metrics of a store; most returns its maximum.
func NewCollector(store Store, most func() Promise) Collector {
	return Collector{store: store, most: most}
}

var (
	promisedDesc    = prometheus.NewDesc("modbox_promised_bytes", "Sum of the limits of all running sandboxes and builds.", []string{"resource"}, nil)
	promisedMaxDesc = prometheus.NewDesc("modbox_promised_max_bytes", "Maximum of modbox_promised_bytes (capacity.*); 0 for no limit.", []string{"resource"}, nil)
)

// Describe implements [prometheus.Collector].
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- promisedDesc
	ch <- promisedMaxDesc
}

// Collect implements [prometheus.Collector].
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	p, err := c.store.Promised(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(promisedDesc, err)
		return
	}
	most := c.most()
	for _, m := range []struct {
		desc         *prometheus.Desc
		memory, disk int64
	}{{promisedDesc, p.MemoryBytes, p.DiskBytes}, {promisedMaxDesc, most.MemoryBytes, most.DiskBytes}} {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.memory), "memory")
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.disk), "disk")
	}
}
