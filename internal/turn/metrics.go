package turn

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/sandbox"
)

// Collector returns the metric of the part of the sandboxes that a server works on.
func Collector(r sandbox.Ranges) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "modbox_server_ranges", Help: "Ranges of shards, of 16, that an active server with standbys works on. The sum over all servers is 16 if every sandbox has a server.",
	})
	g.Set(float64(len(r.Digits())))
	return g
}
