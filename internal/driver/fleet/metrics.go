package fleet

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/worker"
)

var (
	workersDesc     = prometheus.NewDesc("modbox_workers", "Workers, by state: connected; draining, connected and without new sandboxes; away; lost, away for longer than worker.lost_after.", []string{"state"}, nil)
	boxesDesc       = prometheus.NewDesc("modbox_worker_sandboxes", "Sandboxes of a worker, including boxes of builds and of the pool, by its name.", []string{"worker"}, nil)
	promisedDesc    = prometheus.NewDesc("modbox_worker_memory_promised_bytes", "Sum of the memory limits of the sandboxes of a worker, by its name.", []string{"worker"}, nil)
	promisedMaxDesc = prometheus.NewDesc("modbox_worker_memory_promised_max_bytes", "How much memory may be promised to the sandboxes of a worker, by its name; 0 for no limit.", []string{"worker"}, nil)
)

// Collector exports the workers of a driver and what is on them. It has no series for workers that were removed, and none for
// single workers that were supplied, which come and go with their boxes. It implements [prometheus.Collector].
type Collector struct{ driver *Driver }

// NewCollector returns the metrics of a driver.
func NewCollector(d *Driver) Collector { return Collector{d} }

// Describe implements [prometheus.Collector].
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{workersDesc, boxesDesc, promisedDesc, promisedMaxDesc} {
		ch <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int64, label string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), label)
	}
	states := map[string]int64{"connected": 0, "draining": 0, "away": 0, "lost": 0}
	for _, w := range c.driver.Workers() {
		switch {
		case w.Status == worker.Lost:
			states["lost"]++
		case !w.Connected:
			states["away"]++
		case w.Status == worker.Draining:
			states["draining"]++
		default:
			states["connected"]++
		}
		if worker.Supplied(w.ID) {
			continue
		}
		gauge(boxesDesc, int64(w.Boxes), w.Name)
		gauge(promisedDesc, w.PromisedBytes, w.Name)
		gauge(promisedMaxDesc, w.PromisedMaxBytes, w.Name)
	}
	for state, n := range states {
		gauge(workersDesc, n, state)
	}
}
