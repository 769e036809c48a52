package host

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/modbox/modbox/client/wire"
)

// measured has the metrics of a server by name.
type measured map[string]*dto.MetricFamily

func read(families []*dto.MetricFamily) measured {
	m := make(measured, len(families))
	for _, f := range families {
		m[f.GetName()] = f
	}
	return m
}

// label returns the value of a label, "" without it.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// each calls f with the value of the label and the number of each series of a metric.
func (m measured) each(metric, name string, f func(value string, n int64)) {
	for _, s := range m[metric].GetMetric() {
		f(label(s, name), int64(s.GetGauge().GetValue()+s.GetCounter().GetValue()))
	}
}

// number returns the number of a metric whose label name has that value; both are "" for a metric
// without labels.
func (m measured) number(metric, name, value string) (n int64) {
	m.each(metric, name, func(v string, found int64) {
		if v == value {
			n = found
		}
	})
	return n
}

// resource returns the numbers of memory or disk.
func (m measured) resource(name string) wire.HostResource {
	of := func(metric string) int64 { return m.number(metric, "resource", name) }
	return wire.HostResource{
		PromisedBytes: of("modbox_promised_bytes"), PromisedMaxBytes: of("modbox_promised_max_bytes"), UsedBytes: of("modbox_used_bytes"),
	}
}

// describe returns what the metrics say about a host.
func describe(m measured) wire.Host {
	plain := func(metric string) int64 { return m.number(metric, "", "") }
	out := wire.Host{
		StartedAt: time.Unix(plain("process_start_time_seconds"), 0).UTC(),
		Memory:    m.resource("memory"), Disk: m.resource("disk"), DiskPressure: plain("modbox_disk_pressure") > 0,
		Sandboxes: []wire.HostSandboxes{}, Images: []wire.HostImages{}, Operations: m.operations(),
		Waiting: wire.HostWaiting{
			Requests: plain("modbox_admission_waiting"), Builds: plain("modbox_builds"),
			ImageTasks: plain("modbox_image_tasks"), Executions: plain("modbox_executions"),
		},
		DatabaseBytes: plain("modbox_database_bytes"),
	}
	out.Disk.FreeBytes = plain("modbox_disk_free_bytes")
	m.each("modbox_sandboxes", "state", func(state string, n int64) {
		out.Sandboxes = append(out.Sandboxes, wire.HostSandboxes{State: state, Count: n})
	})
	m.each("modbox_images", "kind", func(kind string, n int64) {
		out.Images = append(out.Images, wire.HostImages{Kind: kind, Count: n, SizeBytes: m.number("modbox_images_bytes", "kind", kind)})
	})
	if m["modbox_pool_boxes"] != nil {
		creates := func(outcome string) int64 { return m.number("modbox_pool_creates_total", "outcome", outcome) }
		out.Pool = &wire.HostPool{Boxes: plain("modbox_pool_boxes"), BlankBoxes: plain("modbox_pool_blank_boxes"), Hits: creates("hit"), Misses: creates("miss")}
	}
	if m["modbox_templates"] != nil {
		restores := func(outcome string) int64 { return m.number("modbox_template_restores_total", "outcome", outcome) }
		out.Templates = &wire.HostTemplates{
			Count: plain("modbox_templates"), SizeBytes: plain("modbox_templates_bytes"), Hits: restores("hit"), Misses: restores("miss"), Failed: restores("failed"),
		}
	}
	return out
}

// timed are the metrics of the time that operations took. The operation is named here, or is the
// value of a label; the value of another label is its phase.
var timed = []struct{ metric, operation, named, phase string }{
	{metric: "modbox_sandbox_create_seconds", operation: "create"},
	{metric: "modbox_sandbox_create_phase_seconds", operation: "create", phase: "phase"},
	{metric: "modbox_sandbox_operation_seconds", named: "operation"},
	{metric: "modbox_exec_start_seconds", operation: "exec"},
	{metric: "modbox_image_task_seconds", named: "task"},
	{metric: "modbox_build_seconds", operation: "build"},
	{metric: "modbox_database_commit_seconds", operation: "database"},
}

// times has the times of an operation, over all outcomes.
type times struct {
	count, failed uint64
	sum           float64
	buckets       map[float64]uint64 // cumulative counts by upper bound
}

// operations returns the operations that have ended at least once, the slowest first.
func (m measured) operations() []wire.HostOperation {
	type key struct{ operation, phase string }
	all := map[key]*times{}
	for _, t := range timed {
		for _, s := range m[t.metric].GetMetric() {
			k := key{cmp.Or(t.operation, label(s, t.named)), label(s, t.phase)}
			if all[k] == nil {
				all[k] = &times{buckets: map[float64]uint64{}}
			}
			all[k].add(s)
		}
	}
	out := []wire.HostOperation{}
	for k, t := range all {
		if t.count > 0 {
			out = append(out, wire.HostOperation{
				Operation: k.operation, Phase: k.phase, Count: int64(t.count), Failed: int64(t.failed),
				MeanSeconds: t.sum / float64(t.count), P50Seconds: t.quantile(0.5), P95Seconds: t.quantile(0.95),
			})
		}
	}
	slices.SortFunc(out, func(a, b wire.HostOperation) int {
		return cmp.Or(cmp.Compare(b.P95Seconds, a.P95Seconds), cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Phase, b.Phase))
	})
	return out
}

func (t *times) add(s *dto.Metric) {
	h := s.GetHistogram()
	t.count += h.GetSampleCount()
	t.sum += h.GetSampleSum()
	if label(s, "outcome") == "error" {
		t.failed += h.GetSampleCount()
	}
	for _, b := range h.GetBucket() {
		t.buckets[b.GetUpperBound()] += b.GetCumulativeCount()
	}
}

// quantile estimates the time within which the share q of the operations ended, as if the times in a
// bucket were spread evenly. Of times above all bounds it knows only the highest bound.
func (t *times) quantile(q float64) float64 {
	rank, below, lower := q*float64(t.count), 0.0, 0.0
	for _, upper := range slices.Sorted(maps.Keys(t.buckets)) {
		n := float64(t.buckets[upper])
		if n >= rank && n > below && !math.IsInf(upper, 1) {
			return lower + (upper-lower)*(rank-below)/(n-below)
		}
		if !math.IsInf(upper, 1) {
			below, lower = n, upper
		}
	}
	return lower
}
