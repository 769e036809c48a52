package index

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector exports how many images a table has, and their size. It implements
// [prometheus.Collector].
type Collector struct {
	table        *Table
	count, bytes *prometheus.Desc
}

// NewCollector returns the metrics of a table.
func NewCollector(t *Table) *Collector {
	return &Collector{
		table: t,
		count: prometheus.NewDesc("modbox_images", "Root filesystems on this machine, by kind: built_in, pulled, built, and cache without a name.", []string{"kind"}, nil),
		bytes: prometheus.NewDesc("modbox_images_bytes", "Bytes of the root filesystems on this machine, by kind.", []string{"kind"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.count
	ch <- c.bytes
}

// Collect implements [prometheus.Collector]. Images with the same root filesystem count once, and each file. Layers that
// pulled images share are bytes of these.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ix, err := c.table.Load()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.count, err)
		return
	}
	type sum struct{ count, bytes int64 }
	sums, seen, files := map[string]sum{"built_in": {}, "pulled": {}, "built": {}, "cache": {}}, map[string]bool{}, map[file]bool{}
	for i := range ix.Images {
		r := &ix.Images[i]
		if r.Digest == "" || seen[r.Digest] {
			continue
		}
		seen[r.Digest] = true
		s := sums[imageKind(r)]
		if !r.IsChain() {
			s.count++
		}
		if !files[r.fileOf()] {
			files[r.fileOf()] = true
			s.bytes += r.SizeBytes
		}
		sums[imageKind(r)] = s
	}
	for kind, s := range sums {
		ch <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(s.count), kind)
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(s.bytes), kind)
	}
}

// imageKind returns the label of an image's kind.
func imageKind(r *Record) string {
	switch {
	case r.Pull != nil || r.IsChain():
		return "pulled"
	case r.Name == "":
		return "cache"
	case r.Commit != nil || r.Owner != "":
		return "built"
	}
	return "built_in"
}
