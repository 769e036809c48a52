package forward

import "github.com/prometheus/client_golang/prometheus"

// counters are the metrics of a forwarder.
type counters struct {
	under, waiting prometheus.GaugeFunc
	refused, lost  prometheus.Counter
	late           prometheus.Counter
}

func newCounters(f *Forwarder) *counters {
	gauge := func(name, help string, n *int) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			f.mu.Lock()
			defer f.mu.Unlock()
			return float64(*n)
		})
	}
	return &counters{
		under:   gauge("modbox_forward_requests", "Requests under way that a standby forwards to the active server, with the requests that wait for one.", &f.under),
		waiting: gauge("modbox_forward_waiting_requests", "Requests to a standby that wait for an active server.", &f.waits),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "modbox_forward_refused_total", Help: "Requests to a standby that were refused, because there were too many or no server was active for too long."}),
		lost:    prometheus.NewCounter(prometheus.CounterOpts{Name: "modbox_forward_lost_total", Help: "Requests to a standby whose connection to the active server was lost before it answered."}),
		late:    prometheus.NewCounter(prometheus.CounterOpts{Name: "modbox_forward_found_total", Help: "Requests that an active server forwarded to another after it had found that this works on their sandbox."}),
	}
}

// Collectors returns the metrics of the forwarder.
func (f *Forwarder) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.metrics.under, f.metrics.waiting, f.metrics.refused, f.metrics.lost, f.metrics.late}
}

// Role returns the metric of the role of a server.
func Role(active bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_server_active", Help: "1 for a server with standbys that does the work itself, 0 for a standby, which forwards requests.",
	}, func() float64 {
		if active {
			return 1
		}
		return 0
	})
}
