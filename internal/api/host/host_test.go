package host_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/host"
)

// gauges registers gauges by name, with the values of one label; label "" is none.
func gauges(r *prometheus.Registry, name, label string, values map[string]float64) {
	labels := []string{}
	if label != "" {
		labels = append(labels, label)
	}
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: name}, labels)
	r.MustRegister(v)
	for value, n := range values {
		if label == "" {
			v.WithLabelValues().Set(n)
			continue
		}
		v.WithLabelValues(value).Set(n)
	}
}

// get returns the answer about the host with the metrics of a registry.
func get(t *testing.T, r *prometheus.Registry) wire.Host {
	t.Helper()
	h := &host.Routes{Version: "1.2.3", Driver: "fake", Machine: host.Machine{MemoryBytes: 64 << 30, DiskBytes: 1 << 40, Cores: 8}, Platform: host.Platform{Name: "systrap", Reason: "it was set"}, Metrics: r}
	answer, err := h.Get(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Body
}

func TestHost(t *testing.T) {
	r := prometheus.NewRegistry()
	gauges(r, "modbox_promised_bytes", "resource", map[string]float64{"memory": 3, "disk": 4})
	gauges(r, "modbox_promised_max_bytes", "resource", map[string]float64{"memory": 30, "disk": 0})
	gauges(r, "modbox_used_bytes", "resource", map[string]float64{"memory": 1, "disk": 2})
	gauges(r, "modbox_disk_free_bytes", "", map[string]float64{"": 7})
	gauges(r, "modbox_disk_pressure", "", map[string]float64{"": 1})
	gauges(r, "modbox_sandboxes", "state", map[string]float64{"running": 5, "paused": 6})
	gauges(r, "modbox_images", "kind", map[string]float64{"built": 2})
	gauges(r, "modbox_images_bytes", "kind", map[string]float64{"built": 2048})
	gauges(r, "modbox_builds", "", map[string]float64{"": 1})
	got := get(t, r)
	want := wire.Host{
		Version: "1.2.3", Driver: "fake", Platform: "systrap", PlatformReason: "it was set", StartedAt: got.StartedAt, Cores: 8, DiskPressure: true,
		Memory:     wire.HostResource{TotalBytes: 64 << 30, PromisedBytes: 3, PromisedMaxBytes: 30, UsedBytes: 1},
		Disk:       wire.HostResource{TotalBytes: 1 << 40, FreeBytes: 7, PromisedBytes: 4, UsedBytes: 2},
		Sandboxes:  []wire.HostSandboxes{{State: "paused", Count: 6}, {State: "running", Count: 5}},
		Images:     []wire.HostImages{{Kind: "built", Count: 2, SizeBytes: 2048}},
		Waiting:    wire.HostWaiting{Builds: 1},
		Operations: []wire.HostOperation{},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("GET /v1/host (-want +got):\n%s", d)
	}
}

func TestHostWithPool(t *testing.T) {
	r := prometheus.NewRegistry()
	gauges(r, "modbox_pool_boxes", "", map[string]float64{"": 3})
	gauges(r, "modbox_pool_blank_boxes", "", map[string]float64{"": 2})
	creates := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modbox_pool_creates_total", Help: "creates"}, []string{"outcome"})
	r.MustRegister(creates)
	creates.WithLabelValues("hit").Add(9)
	creates.WithLabelValues("miss").Add(1)
	if d := cmp.Diff(&wire.HostPool{Boxes: 3, BlankBoxes: 2, Hits: 9, Misses: 1}, get(t, r).Pool); d != "" {
		t.Errorf("the pool (-want +got):\n%s", d)
	}
}

func TestOperations(t *testing.T) {
	r := prometheus.NewRegistry()
	ops := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "modbox_sandbox_operation_seconds", Help: "operations", Buckets: []float64{1, 2, 4}}, []string{"operation", "outcome"})
	phases := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "modbox_sandbox_create_phase_seconds", Help: "phases", Buckets: []float64{1, 2, 4}}, []string{"phase", "outcome"})
	r.MustRegister(ops, phases)
	phases.WithLabelValues("queue", "ok")             // never ended
	phases.WithLabelValues("boot", "ok").Observe(100) // above all bounds
	for range 9 {
		ops.WithLabelValues("pause", "ok").Observe(0.5)
	}
	ops.WithLabelValues("pause", "error").Observe(3.5)
	got := get(t, r).Operations
	want := []wire.HostOperation{
		{Operation: "create", Phase: "boot", Count: 1, MeanSeconds: 100, P50Seconds: 4, P95Seconds: 4},
		// Half of the ten are within the first bucket, 5/9 of its width; 9.5 of them within the third.
		{Operation: "pause", Count: 10, Failed: 1, MeanSeconds: 0.8, P50Seconds: 5.0 / 9, P95Seconds: 3},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
		t.Errorf("operations (-want +got):\n%s", d)
	}
}

func TestHostWithoutMetrics(t *testing.T) {
	h := &host.Routes{}
	if _, err := h.Get(t.Context(), nil); err == nil {
		t.Error("a host without metrics has an answer, want an error")
	}
}

func TestHostWithTemplates(t *testing.T) {
	r := prometheus.NewRegistry()
	gauges(r, "modbox_templates", "", map[string]float64{"": 3})
	gauges(r, "modbox_templates_bytes", "", map[string]float64{"": 2048})
	restores := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "modbox_template_restores_total", Help: "restores"}, []string{"outcome"})
	r.MustRegister(restores)
	restores.WithLabelValues("hit").Add(9)
	restores.WithLabelValues("miss").Add(1)
	restores.WithLabelValues("failed").Add(2)
	if d := cmp.Diff(&wire.HostTemplates{Count: 3, SizeBytes: 2048, Hits: 9, Misses: 1, Failed: 2}, get(t, r).Templates); d != "" {
		t.Errorf("the templates (-want +got):\n%s", d)
	}
}
