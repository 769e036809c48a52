package monitoring_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// collector is a receiver of metrics and logs.
type collector struct {
	t       *testing.T
	mu      sync.Mutex
	metrics []*metricspb.MetricsData // guarded by mu
	entries []*logspb.LogRecord      // guarded by mu
	raw     bytes.Buffer             // guarded by mu
	servers map[string]bool          // guarded by mu; the resources of all batches
}

// ServeHTTP implements http.Handler.
func (x *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		x.t.Error(err)
		return
	}
	data, err := io.ReadAll(body)
	x.raw.Write(data)
	metrics, logs := new(metricspb.MetricsData), new(logspb.LogsData)
	switch at := r.URL.Path + " " + r.Header.Get("X-Key"); at {
	case "/v1/metrics of-metrics":
		err = errors.Join(err, proto.Unmarshal(data, metrics))
		x.metrics = append(x.metrics, metrics)
		for _, resource := range metrics.GetResourceMetrics() {
			x.servers[fmt.Sprint(resource.GetResource().GetAttributes())] = true
		}
	case "/v1/logs of-logs":
		err = errors.Join(err, proto.Unmarshal(data, logs))
		for _, resource := range logs.GetResourceLogs() {
			x.servers[fmt.Sprint(resource.GetResource().GetAttributes())] = true
			x.entries = append(x.entries, resource.GetScopeLogs()[0].GetLogRecords()...)
		}
	default:
		x.t.Errorf("request to %s", at)
	}
	if err != nil {
		x.t.Error(err)
	}
}

// TestMetricsAndLogs: what /metrics and the log have also arrives at a receiver, with the last of it when the server
// ends, and without secrets.
func TestMetricsAndLogs(t *testing.T) {
	x := &collector{t: t, servers: map[string]bool{}}
	web := httptest.NewServer(x)
	t.Cleanup(web.Close) // after the server's, which sends until its end
	dir := t.TempDir()
	args := []string{"--pool-size", "0", "--metrics-interval", "1s"}
	for option, key := range map[string]string{"--metrics": "of-metrics", "--log": "of-logs"} {
		headers := filepath.Join(dir, key)
		if err := os.WriteFile(headers, []byte("X-Key: "+key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, option+"-endpoint", web.URL, option+"-headers-file", headers)
	}
	s := testserver.StartSmall(t, args...)
	sb := s.MustCreate(client.CreateOptions{Env: map[string]string{"PASSWORD": "hidden-value"}})
	if res := s.Bash(sb.ID, "echo hidden-output", time.Minute); res.ExitCode != 0 {
		t.Fatalf("exec ended with %d", res.ExitCode)
	}
	s.Stop() // sends what waits
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.metrics) == 0 {
		t.Fatal("no metrics have arrived")
	}
	sums, kinds := map[string]float64{}, map[string]string{}
	for _, m := range x.metrics[len(x.metrics)-1].GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics() {
		for _, p := range m.GetSum().GetDataPoints() {
			sums[m.GetName()] += p.GetAsDouble()
		}
		kinds[m.GetName()] = strings.TrimPrefix(fmt.Sprintf("%T", m.GetData()), "*v1.Metric_")
	}
	for name, want := range map[string]string{"modbox_build_info": "Gauge", "modbox_sandboxes": "Gauge", "modbox_http_request_seconds": "Histogram", "go_gc_duration_seconds": "Summary"} {
		if kinds[name] != want {
			t.Errorf("%s arrives as %q, want %s", name, kinds[name], want)
		}
	}
	if sums["modbox_log_batches_total"] == 0 || sums["modbox_metric_batches_total"] == 0 {
		t.Errorf("the export counts no batches: %v", sums)
	}
	if all := strings.Join(slices.Collect(maps.Keys(x.servers)), "\n"); len(x.servers) != 1 || !strings.Contains(all, "service.instance.id") || !strings.Contains(all, "host.name") {
		t.Errorf("resources, want one with the instance and the host:\n%s", all)
	}
	entries := map[string]int{}
	for _, e := range x.entries {
		entries[e.GetBody().GetStringValue()]++
	}
	for _, want := range []string{"listening", "request", "shutting down; sandboxes keep running"} {
		if n := strings.Count(s.Log(), `msg="`+want+`"`) + strings.Count(s.Log(), "msg="+want+" "); n == 0 || entries[want] != n {
			t.Errorf("%d entries %q, the log on standard error has %d", entries[want], want, n)
		}
	}
	for _, secret := range []string{"hidden-value", "hidden-output", "PASSWORD", s.Token} {
		if bytes.Contains(x.raw.Bytes(), []byte(secret)) {
			t.Errorf("what arrives has %q", secret)
		}
	}
}
