package output

import "github.com/prometheus/client_golang/prometheus"

// moved counts transfers.
type moved struct {
	bytes    *prometheus.CounterVec
	failures prometheus.Counter
}

func newMoved() moved {
	m := moved{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_output_moved_bytes_total", Help: "Bytes of the output of ended executions, by direction: sent to the object store; fetched.",
	}, []string{"direction"}), prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modbox_output_failures_total", Help: "Failures of the server to store, remove or sweep the output of ended executions in the object store. It tries again.",
	})}
	for _, d := range []string{"sent", "fetched"} {
		m.bytes.WithLabelValues(d)
	}
	return m
}

// Collectors returns the metrics of stored output.
func (s *Service) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.moved.bytes, s.moved.failures}
}
