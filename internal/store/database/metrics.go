package database

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/modbox/modbox/internal/metrics"
)

// commitMetrics measures the transactions that write.
type commitMetrics struct {
	seconds *prometheus.HistogramVec
	writes  prometheus.Counter
}

func newCommitMetrics() commitMetrics {
	m := commitMetrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "modbox_database_commit_seconds",
			Help:    "Time of transactions that write, until they are on the disk, by outcome. A transaction has the writes of several requests.",
			Buckets: metrics.Steps,
		}, []string{"outcome"}),
		writes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "modbox_database_writes_total", Help: "Writes to the database, including refused writes.",
		}),
	}
	m.seconds.WithLabelValues("ok")
	m.seconds.WithLabelValues("error")
	return m
}

// committed measures a transaction of several writes.
func (m *commitMetrics) committed(begin time.Time, writes int, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "error"
	}
	m.seconds.WithLabelValues(outcome).Observe(time.Since(begin).Seconds())
	m.writes.Add(float64(writes))
}

// Collectors returns the metrics of the database and of its connections.
func (d *DB) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		d.metrics.seconds, d.metrics.writes,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "modbox_database_syncs_total", Help: "Transactions that waited for the disk.",
		}, func() float64 { return float64(d.batches.syncs.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_database_bytes", Help: "Bytes of the database; of SQLite with its log.",
		}, func() float64 { return float64(d.engine.bytes()) }),
		collectors.NewDBStatsCollector(d.reader, "reader"), collectors.NewDBStatsCollector(d.writer, "writer"),
	}
}
