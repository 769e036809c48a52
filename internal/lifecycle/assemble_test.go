package lifecycle_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

func TestEndOfACommandLeavesAnEventWithoutArguments(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "job"})
	stream, err := s.Guest().Exec(t.Context(), e.caller, "job", agentapi.Command{Argv: []string{"sh", "-c", "exit 22 # secret"}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Next()
	}
	if err != io.EOF {
		t.Fatalf("Next: %v", err)
	}
	s.stop() // writes what is queued
	s = e.start()
	events, err := s.Events(t.Context(), e.caller, "job", sandbox.EventFilter{Descending: true})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	for _, ev := range events.Items {
		if ev.Type == sandbox.EventExec {
			got = ev.Data
			delete(got, "duration_ms")
		}
	}
	want := map[string]string{"program": "sh", "exit_code": "22"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("data of the exec event differs (-want +got):\n%s", d)
	}
}

func TestMetrics(t *testing.T) {
	e := newEnv(t)
	st := e.openStore()
	t.Cleanup(func() { _ = st.Close() })
	d := e.host.open()
	t.Cleanup(func() { _ = d.Close() })
	registry := prometheus.NewPedanticRegistry()
	deps := lifecycle.Deps{
		Store: st.Sandboxes, Starts: st.Sandboxes, Lookup: st.Sandboxes, Quotas: st.Quotas, Usage: st.Usage, Networks: st.Sandboxes, Environments: st.Sandboxes, Executions: st.Executions,
		Checkpoints: st.Checkpoints, Snapshots: st.Snapshots, Drafts: st.Snapshots, Switches: st.Catalogue, Driver: d, Images: e.images, Calls: e.calls, Catalogue: catalogue.New(st.Catalogue, st.Registries, e.images, 0), Logger: slog.New(slog.DiscardHandler), Metrics: registry,
	}
	e.cfg.Promise = quota.Promise{MemoryBytes: 64 << 30}
	svc, err := lifecycle.New(e.cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if err := svc.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &server{Service: svc, t: t, caller: e.caller}
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.run(lifecycle.CreateRequest{Name: "b"})
	s.destroy("b")
	got := gather(t, registry)
	want := map[string]float64{
		"modbox_sandboxes provisioning": 0, "modbox_sandboxes running": 1, "modbox_sandboxes destroying": 0,
		"modbox_sandboxes pausing": 0, "modbox_sandboxes paused": 0, "modbox_sandboxes resuming": 0,
		"modbox_sandbox_create_seconds": 2, "modbox_sweep_orphans_total": 0,
		"modbox_promised_bytes memory": 512 << 20, "modbox_promised_bytes disk": 2 << 30,
		"modbox_promised_max_bytes memory": 64 << 30, "modbox_promised_max_bytes disk": 0,
	}
	for _, cause := range sandbox.Causes {
		want["modbox_sandbox_ends_total "+string(cause)] = 0
	}
	want["modbox_sandbox_ends_total destroyed"] = 1
	want["modbox_admission_seconds admitted"] = 2
	for _, phase := range []telemetry.Phase{telemetry.Admission, telemetry.Image, telemetry.Queue, telemetry.Box, telemetry.Boot, telemetry.Network, telemetry.Agent} {
		want["modbox_sandbox_create_phase_seconds ok "+string(phase)] = 2
	}
	for name, value := range got {
		if _, ok := want[name]; !ok && value == 0 {
			delete(got, name) // another metric, which nothing happened to
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("metrics differ (-want +got):\n%s", d)
	}
	if err := svc.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := lifecycle.New(e.cfg, deps); err != nil {
		t.Errorf("New over the same registry after Close: %v", err)
	}
}

// gather returns the value of each metric by its name and labels; of a histogram the count.
func gather(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestNewRefusesNonsense(t *testing.T) {
	e := newEnv(t)
	st := e.openStore()
	t.Cleanup(func() { _ = st.Close() })
	d := e.host.open()
	t.Cleanup(func() { _ = d.Close() })
	good := lifecycle.Deps{
		Store: st.Sandboxes, Starts: st.Sandboxes, Lookup: st.Sandboxes, Quotas: st.Quotas, Usage: st.Usage, Networks: st.Sandboxes, Environments: st.Sandboxes, Executions: st.Executions,
		Checkpoints: st.Checkpoints, Snapshots: st.Snapshots, Drafts: st.Snapshots, Switches: st.Catalogue, Driver: d, Images: e.images, Calls: e.calls, Catalogue: catalogue.New(st.Catalogue, st.Registries, e.images, 0), Logger: slog.New(slog.DiscardHandler),
	}
	for name, tt := range map[string]struct {
		cfg  lifecycle.Config
		deps lifecycle.Deps
	}{
		"NoStore":          {lifecycle.Config{}, lifecycle.Deps{Driver: d, Images: e.images, Logger: good.Logger}},
		"DefaultOverMax":   {lifecycle.Config{Defaults: sandbox.Resources{MemoryBytes: 2 << 30}, Max: sandbox.Resources{MemoryBytes: 1 << 30}}, good},
		"TooLittleMemory":  {lifecycle.Config{Defaults: sandbox.Resources{MemoryBytes: 1}}, good},
		"NegativeInterval": {lifecycle.Config{SweepInterval: -1}, good},
	} {
		if _, err := lifecycle.New(tt.cfg, tt.deps); err == nil {
			t.Errorf("New(%s) succeeded", name)
		}
	}
	if _, err := lifecycle.New(lifecycle.Config{}, good); err != nil {
		t.Errorf("New with all defaults: %v", err)
	}
}
