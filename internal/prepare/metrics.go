package prepare

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/sandbox"
)

// The kinds of tasks in metrics.
const (
	taskImage    = "image"    // pulls an image, or builds it of a recipe
	taskPackages = "packages" // installs packages
)

// newTaskTimes returns the metric of tasks.
func newTaskTimes() *prometheus.HistogramVec {
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "modbox_image_task_seconds",
		Help:    "Time of pulls of images (image) and installs of packages (packages), including their wait for a place, by outcome.",
		Buckets: metrics.Jobs,
	}, []string{"task", "outcome"})
	for _, outcome := range metrics.Outcomes {
		times.WithLabelValues(taskImage, outcome) // so that each is there before its first time
		times.WithLabelValues(taskPackages, outcome)
	}
	return times
}

// Collectors returns the metrics of tasks.
func (s *Service) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.times, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_image_tasks", Help: "Pulls of images and installs of packages under way or waiting for a place.",
	}, func() float64 { return float64(s.tasks.count()) })}
}

// count returns the number of tasks.
func (x *tasks) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.byKey)
}

// measured is run, measured.
func (s *Service) measured(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, m *task,
	work func(context.Context, func(phase.Event)) (spec.Image, error),
) (spec.Image, error) {
	kind := taskImage
	if places == s.installs {
		kind = taskPackages
	}
	begin := time.Now()
	img, err := s.run(ctx, places, ws, m, work)
	s.times.WithLabelValues(kind, metrics.Outcome(err)).Observe(time.Since(begin).Seconds())
	return img, err
}
