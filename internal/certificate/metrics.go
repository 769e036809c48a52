package certificate

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var expiryDesc = prometheus.NewDesc("modbox_tls_certificate_expiry_timestamp_seconds", "End of the certificate of the listener, in seconds since 1970, by the first host that it is for.", []string{"host"}, nil)

// metrics are the metrics of certificates.
type metrics struct {
	expiries func() map[string]time.Time // by host
	failures prometheus.Counter
}

func newMetrics(expiries func() map[string]time.Time) *metrics {
	return &metrics{expiries, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "modbox_tls_certificate_failures_total",
		Help: "Certificates that could not be obtained, renewed or read again; the certificate before remains in use.",
	})}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- expiryDesc
	m.failures.Describe(out)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for host, end := range m.expiries() {
		out <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(end.Unix()), host)
	}
	m.failures.Collect(out)
}
