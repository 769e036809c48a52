package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/tracing"
)

// Phase is a part of the way from the request for a sandbox until it runs.
type Phase string

// The phases, in their order. A sandbox that gets a box of the pool has Pooled instead of Queue to
// Agent.
const (
	Admission Phase = "admission" // its wait for the quota, and its record
	Image     Phase = "image"     // its image is found, pulled or built
	Packages  Phase = "packages"  // its packages are installed
	Pooled    Phase = "pooled"    // a box of the pool becomes its box
	Queue     Phase = "queue"     // it waits for other boots; also when it is resumed
	Box       Phase = "box"       // the driver makes its box
	Boot      Phase = "boot"      // the kernel of the box and its agent start
	Network   Phase = "network"   // its box is connected to the network
	Agent     Phase = "agent"     // the agent answers and is configured
	Ready     Phase = "ready"     // the server on its readiness port answers
)

// Phases lists every phase.
var Phases = []Phase{Admission, Image, Packages, Pooled, Queue, Box, Boot, Network, Agent, Ready}

// newPhases returns the metric of phases.
func newPhases() *prometheus.HistogramVec {
	phases := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "modbox_sandbox_create_phase_seconds",
		Help:    "Time of the parts of making a sandbox, by phase and outcome.",
		Buckets: metrics.Steps,
	}, []string{"phase", "outcome"})
	for _, p := range Phases {
		phases.WithLabelValues(string(p), "ok") // so that each is there before its first time
	}
	return phases
}

// Do runs f, which is a phase and a span of the trace of ctx, and returns its error.
func (m *Metrics) Do(ctx context.Context, p Phase, f func(context.Context) error) error {
	begin := time.Now()
	ctx, span := tracing.Start(ctx, "create: "+string(p))
	err := f(ctx)
	span.End(err)
	m.phases.WithLabelValues(string(p), metrics.Outcome(err)).Observe(time.Since(begin).Seconds())
	return err
}

// NewWaiting returns the metric of the sandboxes in phase [Queue], which waiting counts.
func NewWaiting(waiting func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "modbox_boots_waiting", Help: "Sandboxes that wait until others have booted or been restored.",
	}, func() float64 { return float64(waiting()) })
}
