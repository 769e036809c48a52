package guest

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/metrics"
)

// commandMetrics measures the commands of callers. Commands that outlive their request are not
// among them: package execution has those.
type commandMetrics struct {
	starts *prometheus.HistogramVec
	runs   *prometheus.HistogramVec
}

func newCommandMetrics() commandMetrics {
	m := commandMetrics{
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "modbox_exec_start_seconds",
			Help:    "Time from the request for a command until its process runs, including the resume of a paused sandbox, by outcome.",
			Buckets: metrics.Steps,
		}, []string{"outcome"}),
		runs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "modbox_exec_seconds",
			Help:    "Time from the start of a command to its exit, by how it ended: exited, timed_out, limited.",
			Buckets: metrics.Jobs,
		}, []string{"end"}),
	}
	for _, outcome := range metrics.Outcomes {
		m.starts.WithLabelValues(outcome) // so that each is there before its first time
	}
	for _, end := range []string{"exited", "timed_out", "limited"} {
		m.runs.WithLabelValues(end)
	}
	return m
}

// started measures an attempt to start a command.
func (m *commandMetrics) started(begin time.Time, err error) {
	m.starts.WithLabelValues(metrics.Outcome(err)).Observe(time.Since(begin).Seconds())
}

// ended measures a command that has ended, by the clock of this machine: the agent may say anything.
func (m *commandMetrics) ended(begin time.Time, exit agentapi.Exit) {
	end := "exited"
	switch {
	case exit.TimedOut:
		end = "timed_out"
	case exit.Limit != "":
		end = "limited"
	}
	m.runs.WithLabelValues(end).Observe(time.Since(begin).Seconds())
}

// Collectors returns the metrics of commands.
func (g *Calls) Collectors() []prometheus.Collector {
	return []prometheus.Collector{g.metrics.starts, g.metrics.runs}
}
