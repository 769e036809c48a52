package quota

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collectTimeout bounds one query of the metrics.
const collectTimeout = 5 * time.Second

// Collector exports the promised capacity. It implements [prometheus.Collector].
type Collector struct {
	store Store
	most  Promise
}

// NewCollector returns the metrics of a store whose maximum is most.
func NewCollector(store Store, most Promise) Collector { return Collector{store: store, most: most} }

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
	for _, m := range []struct {
		desc         *prometheus.Desc
		memory, disk int64
	}{{promisedDesc, p.MemoryBytes, p.DiskBytes}, {promisedMaxDesc, c.most.MemoryBytes, c.most.DiskBytes}} {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.memory), "memory")
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(m.disk), "disk")
	}
}
