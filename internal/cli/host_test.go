package cli

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/prometheus/client_golang/prometheus"
)

// TestHost shows the pool of a server whose metrics are known.
func TestHost(t *testing.T) {
	metrics := prometheus.NewRegistry()
	boxes := prometheus.NewGauge(prometheus.GaugeOpts{Name: "modbox_pool_boxes"})
	blank := prometheus.NewGauge(prometheus.GaugeOpts{Name: "modbox_pool_blank_boxes"})
	creates := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modbox_pool_creates_total"}, []string{"outcome"})
	metrics.MustRegister(boxes, blank, creates)
	boxes.Set(2)
	blank.Set(1)
	creates.WithLabelValues("hit").Add(7)
	creates.WithLabelValues("miss").Add(3)
	s := apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) { deps.Measured = metrics })
	host := func(args ...string) result {
		t.Helper()
		return invoke(t, nil, "", append([]string{"--url", s.URL, "--token", s.Token, "host"}, args...)...)
	}
	if r := host(); r.code != 0 || !strings.Contains(r.stdout, "2 boxes, 1 for any image; 7 of 10 creates got one") {
		t.Errorf("host = %+v", r)
	}
	if r := host("--json"); r.code != 0 || !strings.Contains(r.stdout, `"blank_boxes": 1`) {
		t.Errorf("host --json = %+v", r)
	}
	if r := host("x"); r.code != base.ExitUsage {
		t.Errorf("host with an argument = %+v", r)
	}
}
