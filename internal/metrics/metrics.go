// Package metrics makes the registry of a server's metrics for Prometheus, and has the label values
// and buckets that the metrics of several packages share. Each package keeps its own metrics; the
// server registers them.
//
// Labels have only values of a small, closed set: no ids, names, paths or other input of users.
package metrics

import (
	"context"
	"errors"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/modbox/modbox/internal/sandbox"
)

// New returns a registry with the metrics of the process and of the build.
func New(version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "modbox_build_info", Help: "1, with the version of the server and of Go.",
	}, []string{"version", "go_version"})
	info.WithLabelValues(version, runtime.Version()).Set(1)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), info)
	return r
}

// Handler answers with the metrics of a registry. At most two scrapes run at once.
func Handler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{Registry: r, MaxRequestsInFlight: 2})
}

// Outcomes are the values of labels with the name outcome that [Outcome] returns.
var Outcomes = []string{"ok", "refused", "canceled", "error"}

// Outcome returns the value of a label for the result of an operation: "ok"; "canceled" when the
// caller gave up; "refused" when the caller's request is at fault; else "error".
func Outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	switch sandbox.CodeOf(err) {
	case sandbox.Internal, sandbox.Unavailable, sandbox.Timeout, sandbox.AgentUnreachable:
		return "error"
	}
	return "refused"
}

// The buckets of histograms, in seconds.
var (
	// Requests are for answers that a client waits for.
	Requests = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60}
	// Steps are for steps that should take milliseconds.
	Steps = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	// Jobs are for work that takes seconds to minutes.
	Jobs = []float64{.1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)
