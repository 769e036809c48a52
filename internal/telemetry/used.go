package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
)

// usedCollector exports the resources that boxes use now.
type usedCollector struct {
	boxes  func() []*box.Box
	driver driver.Driver
	desc   *prometheus.Desc
}

// NewUsed returns the metrics of the memory that boxes use now, and of the disk that the boxes of a
// driver use.
func NewUsed(boxes func() []*box.Box, d driver.Driver) prometheus.Collector {
	return usedCollector{boxes, d, prometheus.NewDesc("modbox_used_bytes",
		"Bytes that boxes use, of what modbox_promised_bytes promises: memory, as of the last measurement of each sandbox; disk, including boxes of builds and of the pool.", []string{"resource"}, nil)}
}

// Describe implements [prometheus.Collector].
func (c usedCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c usedCollector) Collect(ch chan<- prometheus.Metric) {
	memory := int64(0)
	for _, b := range c.boxes() {
		memory += b.Meter.Memory()
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(memory), "memory")
	m, ok := c.driver.(driver.DiskMeter)
	if !ok {
		return
	}
	use, err := m.DiskUse()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.desc, err)
		return
	}
	disk := int64(0)
	for _, n := range use {
		disk += n
	}
	ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(disk), "disk")
}
