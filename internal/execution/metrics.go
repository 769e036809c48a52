package execution

import "github.com/prometheus/client_golang/prometheus"

// Collectors returns the metrics of executions.
func (s *Service) Collectors() []prometheus.Collector {
	return append(s.stored.Collectors(),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_executions", Help: "Commands that outlive their request and have not ended, including main commands of sandboxes.",
		}, func() float64 { return float64(s.live.count()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_execution_output_bytes", Help: "Bytes of stored output of executions, as of the last sweep.",
		}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			sum := int64(0)
			for _, bytes := range s.streamBytes {
				sum += bytes
			}
			return float64(sum)
		}),
	)
}

// count returns the number of executions.
func (x *liveExecutions) count() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.ids)
}
