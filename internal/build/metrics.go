package build

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/metrics"
)

// newTimes returns the metric of builds.
func newTimes() *prometheus.HistogramVec {
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "modbox_build_seconds", Help: "Time of builds of Dockerfiles, including their wait for a place, by outcome.", Buckets: metrics.Jobs,
	}, []string{"outcome"})
	for _, outcome := range metrics.Outcomes {
		times.WithLabelValues(outcome) // so that each is there before its first time
	}
	return times
}

// ended measures a build that has ended.
func (b *Builder) ended(begin time.Time, err error) {
	b.times.WithLabelValues(metrics.Outcome(err)).Observe(time.Since(begin).Seconds())
}

// Collectors returns the metrics of builds.
func (b *Builder) Collectors() []prometheus.Collector {
	return []prometheus.Collector{b.times, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_builds", Help: "Builds of Dockerfiles and pushes of images under way or waiting for a place.",
	}, func() float64 { return float64(b.underWay()) })}
}

// underWay returns the number of builds and pushes.
func (b *Builder) underWay() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, count := range b.under {
		n += count
	}
	return n
}
