package imagearchive

import "github.com/prometheus/client_golang/prometheus"

// moved counts transfers.
type moved struct {
	bytes             *prometheus.CounterVec
	failures, damaged prometheus.Counter
}

func newMoved() moved {
	m := moved{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_stored_images_moved_bytes_total", Help: "Bytes of images, by direction: sent to the object store; fetched.",
	}, []string{"direction"}), prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modbox_stored_images_failures_total", Help: "Failures of the server to store, remove or sweep images in the object store. It tries again.",
	}), prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modbox_stored_images_damaged_total", Help: "Files of images that were missing or damaged in the object store when they were fetched.",
	})}
	for _, d := range []string{"sent", "fetched"} {
		m.bytes.WithLabelValues(d)
	}
	return m
}

// Collectors returns the metrics of stored images.
func (s *Service) Collectors() []prometheus.Collector {
	gauge := func(name, help string, of func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			return float64(of())
		})
	}
	return []prometheus.Collector{
		s.moved.bytes, s.moved.failures, s.moved.damaged,
		gauge("modbox_stored_images_waiting", "Images that are to be stored in the object store and are not.", func() int64 { return int64(s.waiting) }),
		gauge("modbox_stored_images_bytes", "Bytes of the files of images in the object store, also of images that were removed within archive.grace.", func() (n int64) {
			for _, f := range s.stored {
				n += f.SizeBytes
			}
			return n
		}),
	}
}
