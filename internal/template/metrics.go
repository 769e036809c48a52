package template

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a restore.
const (
	hit    = "hit"    // a box was restored
	missed = "miss"   // there was no template
	failed = "failed" // the template was of no use
)

func newRestores() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "modbox_template_restores_total",
		Help: "Boxes of images that can have memory templates, by whether one was restored (hit), there was none for the image and resources (miss), or it was of no use (failed).",
	}, []string{"outcome"})
	for _, outcome := range []string{hit, missed, failed} {
		c.WithLabelValues(outcome)
	}
	return c
}

// Collectors returns the metrics of the templates; none when the server makes none.
func (k *Keeper) Collectors() []prometheus.Collector {
	if k.saver == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		k.restores,
		gauge("modbox_templates", "Memory templates that are ready.", func() float64 {
			n, _ := k.size()
			return float64(n)
		}),
		gauge("modbox_templates_bytes", "Bytes that the memory templates take on the disk.", func() float64 {
			_, bytes := k.size()
			return float64(bytes)
		}),
	}
}

// size returns the number of templates, and what they take.
func (k *Keeper) size() (n int, bytes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ready), k.bytes()
}
