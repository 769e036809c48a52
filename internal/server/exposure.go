package server

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
)

// PathURLsAdvice is the advice when pages of sandboxes share the host at which people sign in.
const PathURLsAdvice = "set domain, with a wildcard DNS record, or http.path_urls to off"

// checkExposure refuses to listen where others could read tokens, unless a setting permits it, and
// warns where only a header protects users.
func checkExposure(cfg config.Config, addr net.Addr, log *slog.Logger) error {
	if !cfg.TLS.On() && !isLoopback(addr) {
		if !cfg.HTTP.AllowInsecure {
			return fmt.Errorf("listen on %s: TLS is off and others reach this address, so that tokens would travel in clear text: "+
				"set tls.cert and tls.key, or tls.acme.hosts, or listen on loopback behind a TLS proxy, or set http.allow_insecure where nobody else can read the traffic", addr)
		}
		log.Warn("TLS is off and others reach the address: tokens travel in clear text, unless a TLS proxy is in front", "address", addr.String())
	}
	if SharesOrigin(cfg) {
		log.Warn("pages of sandboxes have the host at which people sign in, and only a header keeps browsers from taking them for one origin: " + PathURLsAdvice)
	}
	return nil
}

// SharesOrigin reports whether pages of sandboxes share the host at which people sign in with a
// browser.
func SharesOrigin(cfg config.Config) bool { return len(cfg.OIDC) > 0 && cfg.AnswersPaths() }

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// connectionLimits returns the limits in the settings, reduced to the number of files that the
// process may open.
func connectionLimits(cfg config.Config, log *slog.Logger) conns.Limits {
	c := cfg.Connections
	limits := conns.Limits{Max: c.Max, PerAddress: c.MaxPerAddress, PerUser: c.MaxPerUser}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && uint64(limits.Max) > files.Cur/2 {
		limits.Max = int(files.Cur / 2)
		log.Warn("fewer connections than connections.max says: the process may not have as many files open", "connections", limits.Max, "files", files.Cur)
	}
	return limits
}

// connectionMetrics exports metrics of client connections.
type connectionMetrics struct{ clients *conns.Tracker }

var (
	connectionsDesc = prometheus.NewDesc("modbox_http_connections", "Connections from clients, by what they do.", []string{"state"}, nil)
	closedDesc      = prometheus.NewDesc("modbox_http_connections_closed_total", "Connections from clients that were closed because there were too many, by how.", []string{"how"}, nil)
	refusedDesc     = prometheus.NewDesc("modbox_http_requests_refused_total", "Requests that were refused because their user, or address, has too many under way.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m connectionMetrics) Describe(out chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, out)
}

// Collect implements prometheus.Collector.
func (m connectionMetrics) Collect(out chan<- prometheus.Metric) {
	c := m.clients.Counts()
	for state, n := range map[string]int{"idle": c.Idle, "anonymous": c.Anonymous, "signed_in": c.SignedIn} {
		out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(n), state)
	}
	for how, n := range map[string]uint64{"refused": c.Refused, "evicted": c.Evicted} {
		out <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(n), how)
	}
	out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(c.RefusedRequests))
}
