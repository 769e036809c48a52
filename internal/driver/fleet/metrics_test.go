package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/worker"
)

// TestMetrics checks the metrics of workers that are connected, away, being drained, and removed.
func TestMetrics(t *testing.T) {
	r := newRig(t, brief, 8*gib, 4*gib, gib, gib)
	s, _ := r.started(t, gib)
	r.wantOn(t, s.ID, "a")
	if _, err := r.driver().Use(within(t), "b", worker.Draining); err != nil {
		t.Fatal(err)
	}
	if _, err := r.driver().Remove(within(t), "c", false); err != nil {
		t.Fatal(err)
	}
	r.machines[2].end()
	r.machines[3].end()
	eventually(t, "two workers are connected", func() error { return wantConnected(r.control.Load(), 2) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(fleet.NewCollector(r.control.Load()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"modbox_workers connected": 1, "modbox_workers draining": 1, "modbox_workers away": 1, "modbox_workers lost": 0,
		"modbox_worker_sandboxes a": 1, "modbox_worker_sandboxes b": 0, "modbox_worker_sandboxes d": 0,
		"modbox_worker_memory_promised_bytes a": gib, "modbox_worker_memory_promised_bytes b": 0, "modbox_worker_memory_promised_bytes d": 0,
		"modbox_worker_memory_promised_max_bytes a": 0, "modbox_worker_memory_promised_max_bytes b": 0, "modbox_worker_memory_promised_max_bytes d": 0,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
}
