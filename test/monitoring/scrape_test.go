package monitoring_test

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/turn"
	"github.com/modbox/modbox/test/testserver"
)

var update = flag.Bool("update", false, "write the table of metrics in docs/operate/metrics.md")

// serve starts a server whose metrics all have values, as far as a minute of work can give them.
func serve(t *testing.T) *testserver.Server {
	t.Helper()
	t.Setenv("MODBOX_BACKUP_EVERY", "1h")
	t.Setenv("MODBOX_BACKUP_IMAGES", "none")
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	t.Cleanup(receiver.Close) // after the server's, which sends until its end
	s := testserver.Start(t, "--pool-size", "1", "--archive-url", "file:///archive", "--traces-endpoint", receiver.URL, "--metrics-endpoint", receiver.URL, "--log-endpoint", receiver.URL)
	sb := s.MustCreate(client.CreateOptions{})
	if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "true"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// families returns the metrics of a server, by name.
func families(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics = %s", resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	list, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("parse the metrics: %v", err)
	}
	return list
}

// addWorkers adds the metrics of workers and standbys, which the server does not have.
func addWorkers(t *testing.T, list map[string]*dto.MetricFamily) {
	t.Helper()
	workers := metrics.New("")
	workers.MustRegister(fleet.NewCollector(apitest.Workers(t, "one")))
	workers.MustRegister(forward.New(forward.Config{Log: slog.New(slog.DiscardHandler)}).Collectors()...)
	workers.MustRegister(forward.Role(true), turn.Collector(sandbox.AllRanges))
	gathered, err := workers.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range gathered {
		if strings.HasPrefix(f.GetName(), "modbox_") && f.GetName() != "modbox_build_info" {
			list[f.GetName()] = f
		}
	}
}

// series returns the labels of each series that a scrape has, by its name: a histogram has three.
func series(list map[string]*dto.MetricFamily) map[string]map[string]bool {
	labels := map[string]map[string]bool{}
	for name, f := range list {
		names := map[string][]string{name: nil}
		if f.GetType() == dto.MetricType_HISTOGRAM {
			names = map[string][]string{name + "_count": nil, name + "_sum": nil, name + "_bucket": {"le"}}
		}
		for series, extra := range names {
			labels[series] = map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels[series][l.GetName()] = true
				}
			}
			for _, l := range extra {
				labels[series][l] = true
			}
		}
	}
	return labels
}

// TestMetricsAreDocumented compares the table of docs/operate/metrics.md with what a server answers.
// Metrics whose names do not begin with modbox_ come from Prometheus' library, and differ between
// versions of Go.
func TestMetricsAreDocumented(t *testing.T) {
	list := families(t, serve(t).URL)
	addWorkers(t, list)
	var table strings.Builder
	table.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !strings.HasPrefix(name, "modbox_") {
			continue
		}
		f := list[name]
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp())
	}
	path := filepath.Join("..", "..", "docs", "operate", "metrics.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin of the table -->\n", "<!-- end of the table -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between the marks", path)
	}
	want := before + begin + "\n" + table.String() + "\n" + end + after
	if want == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not have the metrics of the server; go test ./test/monitoring -run %s -update writes it:\n%s", path, t.Name(), table.String())
}

// TestLabelsAreBounded asks for what does not exist, with names that a caller chose, and finds
// none of them in a label.
func TestLabelsAreBounded(t *testing.T) {
	s := serve(t)
	const chosen = "chosen-by-a-caller"
	get := func(method, path, host string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.Token)
		if host != "" {
			req.Host = host
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	before := count(families(t, s.URL))
	for i := range 50 {
		name := fmt.Sprintf("%s-%d", chosen, i)
		get("GET", "/v1/sandboxes/"+name, "")
		get("DELETE", "/v1/images/"+name, "")
		get("GET", "/"+name, "")
		get("GET", "/s/"+name+"/"+name, "")
		get("GET", "/", name+".example.com")
		get(strings.ToUpper(name), "/v1/sandboxes", "")
	}
	list := families(t, s.URL)
	for name, f := range list {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(strings.ToLower(l.GetValue()), chosen) {
					t.Errorf("%s has the label %s=%q", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
	// Each of the six kinds of requests adds the series of a route and a status; requests from before
	// may still be counted.
	if after := count(list); after > before+12 {
		t.Errorf("%d series after 300 requests, %d before", after, before)
	}
}

// count returns the number of requests' series.
func count(list map[string]*dto.MetricFamily) int {
	return len(list["modbox_http_request_seconds"].GetMetric())
}
