package edge

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/metrics"
)

// noRoute is the label of requests that no route matches. Their paths are the caller's choice.
const noRoute = "none"

// Metrics measures requests by the pattern of their route. It is safe for concurrent use; nil
// measures nothing.
type Metrics struct {
	seconds *prometheus.HistogramVec
	active  prometheus.Gauge
}

// NewMetrics returns metrics without requests.
func NewMetrics() *Metrics {
	return &Metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "modbox_http_request_seconds",
			Help:    "Time of requests until the end of the answer, by the pattern of the route, method and class of the status.",
			Buckets: metrics.Requests,
		}, []string{"route", "method", "status"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "modbox_http_requests_active", Help: "Requests under way, including streams.",
		}),
	}
}

// Collectors returns the metrics for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.active}
}

// begin counts a request as under way.
func (m *Metrics) begin() {
	if m != nil {
		m.active.Inc()
	}
}

// end measures a request that has ended. Broken is set when its answer broke off.
func (m *Metrics) end(r *http.Request, record *access.Record, t *transfer, begun time.Time, broken bool) {
	if m == nil {
		return
	}
	m.active.Dec()
	status := statusClass(cmp.Or(t.status, http.StatusOK))
	if broken {
		status = "broken"
	}
	m.seconds.WithLabelValues(routeLabel(record.Route()), methodLabel(r.Method), status).Observe(time.Since(begun).Seconds())
}

// routeLabel returns the pattern of a route without its method.
func routeLabel(pattern string) string {
	if method, path, ok := strings.Cut(pattern, " "); ok && methodLabel(method) == method {
		pattern = path
	}
	return cmp.Or(pattern, noRoute)
}

// methodLabel returns a method that HTTP defines, or else "other": callers may send any text.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// statusClass returns the class of a status, which a server in a sandbox may have chosen.
func statusClass(status int) string {
	switch status / 100 {
	case 1:
		return "1xx"
	case 2:
		return "2xx"
	case 3:
		return "3xx"
	case 4:
		return "4xx"
	case 5:
		return "5xx"
	}
	return "other"
}
