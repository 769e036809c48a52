package api

import (
	"net"
	"net/http"
	"net/netip"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// Values of [Config.MetricsAccess].
const (
	MetricsLoopback = "loopback" // from the server's own machine, through no proxy
	MetricsToken    = "token"    // with the token of an administrator
	MetricsPublic   = "public"   // all
)

// registerMetrics adds GET /metrics for authorized clients.
func (s *Server) registerMetrics() {
	h, rule := s.deps.Metrics, auth.Rule{Needs: auth.Public, Fail: edge.Error}
	switch s.cfg.MetricsAccess {
	case MetricsPublic:
	case MetricsToken:
		rule.Needs = account.Administer
	default:
		h = edge.Handler(func(w http.ResponseWriter, r *http.Request) error {
			if !local(r) {
				return sandbox.Errorf(sandbox.Forbidden, "metrics are only for the server's own machine; the setting metrics.access says so")
			}
			s.deps.Metrics.ServeHTTP(w, r)
			return nil
		})
	}
	s.mux.Handle("GET /metrics", rule, h)
}

// local reports whether a request comes from this machine and was meant for it. A request through a
// proxy on this machine is not local: it has the public host, or the header of a proxy.
func local(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}
