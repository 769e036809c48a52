package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

var packaging = filepath.Join("..", "..", "packaging")

// rule is an alert.
type rule struct {
	Alert       string
	Expr        string
	Annotations map[string]string
}

// alerts returns the alerts in packaging/.
func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	text, err := os.ReadFile(filepath.Join(packaging, "prometheus", "modbox.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var list []rule
	for _, g := range file.Groups {
		list = append(list, g.Rules...)
	}
	if len(list) == 0 {
		t.Fatal("there are no alerts")
	}
	return list
}

// expressions returns the expressions of the panels of all dashboards, with values instead of
// Grafana's variables.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(packaging, "grafana", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("dashboards: %v, %v", paths, err)
	}
	list := map[string]string{}
	for _, path := range paths {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range dashboard.Panels {
			for i, target := range p.Targets {
				expr := strings.NewReplacer("$__rate_interval", "1m", `instance=~"$instance"`, `instance=~".+"`).Replace(target.Expr)
				if strings.Contains(expr, "$") {
					t.Errorf("%s, panel %q has an unknown variable: %s", path, p.Title, expr)
				}
				list[fmt.Sprintf("%s: %s: %d", filepath.Base(path), p.Title, i)] = expr
			}
		}
	}
	return list
}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	selector = regexp.MustCompile(`\b(?:modbox|process|go)_\w+(?:\{[^}]*\})?|\bup\b(?:\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// unknown returns the metrics and labels in an expression that the scrape does not have. Prometheus
// adds the labels job and instance, and the metric up.
func unknown(expr string, known map[string]map[string]bool) (list []string) {
	expr = quoted.ReplaceAllString(expr, `""`)
	found := map[string]bool{"job": true, "instance": true}
	for _, s := range selector.FindAllString(expr, -1) {
		name, matchers, _ := strings.Cut(s, "{")
		labels := known[name]
		if labels == nil && name != "up" {
			list = append(list, name)
			continue
		}
		for l := range labels {
			found[l] = true
		}
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			if !labels[m[1]] && m[1] != "job" && m[1] != "instance" {
				list = append(list, name+"{"+m[1]+"}")
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			if label = strings.TrimSpace(label); !found[label] {
				list = append(list, "by ("+label+")")
			}
		}
	}
	return list
}

func TestUnknown(t *testing.T) {
	known := map[string]map[string]bool{"modbox_a": {"x": true}, "modbox_b": {}}
	for expr, want := range map[string][]string{
		`sum by (x, instance) (rate(modbox_a{x=~"modbox_c|y{"}[5m])) / up{job="z"}`: nil,
		`modbox_c`:                      {"modbox_c"},
		`modbox_b{x="1"}`:               {"modbox_b{x}"},
		`sum by (y) (modbox_a{x!="}"})`: {"by (y)"},
	} {
		if got := unknown(expr, known); !slices.Equal(got, want) {
			t.Errorf("unknown(%s) = %v, want %v", expr, got, want)
		}
	}
}

// TestEachAlertHasARunbook: each alert links to a section of the runbooks, and each section belongs
// to an alert.
func TestEachAlertHasARunbook(t *testing.T) {
	const page = "https://github.com/modbox/modbox/blob/main/docs/operate/runbooks.md"
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, r := range alerts(t) {
		want = append(want, r.Alert)
		if link := page + "#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != link {
			t.Errorf("%s links to %q, want %q", r.Alert, r.Annotations["runbook_url"], link)
		}
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "## Modbox"); ok {
			got = append(got, "Modbox"+name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("sections of the runbooks:\n%v, want the alerts in their order:\n%v", got, want)
	}
}

// TestRules has Prometheus' own tool check the rules, and run their tests. Each alert has a test.
func TestRules(t *testing.T) {
	dir := filepath.Join(packaging, "prometheus")
	for _, args := range [][]string{{"check", "rules", "modbox.rules.yaml"}, {"test", "rules", "modbox.rules.test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (scripts/install-deps.sh --test installs it)\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile(filepath.Join(dir, "modbox.rules.test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range alerts(t) {
		if !strings.Contains(string(tests), `ALERTS{alertname="`+r.Alert+`", alertstate="firing"}`) {
			t.Errorf("%s has no test in modbox.rules.test.yaml", r.Alert)
		}
	}
}

// TestLiveScrape has a real Prometheus scrape a real server: it loads the alerts, evaluates each
// without an error, and answers the query of each panel of the dashboards. All metrics and labels
// that they name are in the scrape.
func TestLiveScrape(t *testing.T) {
	s := serve(t)
	list := families(t, s.URL)
	addWorkers(t, list)
	known := series(list)
	p := startPrometheus(t, strings.TrimPrefix(s.URL, "https://"))
	for name, expr := range expressions(t) {
		for _, what := range unknown(expr, known) {
			t.Errorf("%s: %s is not in the scrape: %s", name, what, expr)
		}
		p.query(expr) // fails the test unless it can be evaluated
	}
	for _, r := range alerts(t) {
		for _, what := range unknown(r.Expr, known) {
			t.Errorf("alert %s: %s is not in the scrape: %s", r.Alert, what, r.Expr)
		}
		p.query(r.Expr)
	}
	// Queries with an answer, so that an empty answer of all is noticed.
	for _, expr := range []string{"up == 1", "modbox_build_info == 1", `modbox_sandboxes{state="running"} == 1`, "modbox_exec_start_seconds_count > 0"} {
		if n := p.query(expr); n == 0 {
			t.Errorf("%s has no result", expr)
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus starts a Prometheus that scrapes a server, with our alerts, and returns when it
// has scraped it twice.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(filepath.Join(packaging, "prometheus", "modbox.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: modbox\n    scheme: https\n    tls_config: {ca_file: %q}\n    static_configs: [{targets: [%q]}]\n", rules, os.Getenv("MODBOX_TLS_CERT"), target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v (scripts/install-deps.sh --test installs it)", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("log of Prometheus:\n%s", text)
		}
	})
	p := &prometheus{t, "http://" + address}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err := p.ask(ctx, "/api/v1/query", "count_over_time(up[5m]) >= 2"); err == nil && len(r.Data.Result) == 1 && p.evaluated(ctx) {
			return p
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("Prometheus has not scraped the server within a minute")
		}
	}
}

// evaluated reports whether each alert was evaluated, and fails the test if one could not be.
func (p *prometheus) evaluated(ctx context.Context) bool {
	r, err := p.ask(ctx, "/api/v1/rules", "")
	if err != nil {
		return false
	}
	count := 0
	for _, g := range r.Data.Groups {
		for _, rule := range g.Rules {
			switch rule.Health {
			case "unknown":
				return false
			case "ok":
				count++
			default:
				p.t.Errorf("alert %s cannot be evaluated: %s", rule.Name, rule.LastError)
				count++
			}
		}
	}
	return count == len(alerts(p.t))
}

// answer is an answer of Prometheus' API.
type answer struct {
	Status, Error string
	Data          struct {
		Result []json.RawMessage
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
}

// query evaluates an expression and returns the number of its results.
func (p *prometheus) query(expr string) int {
	p.t.Helper()
	r, err := p.ask(p.t.Context(), "/api/v1/query", expr)
	if err != nil {
		p.t.Errorf("%s: %v", expr, err)
	}
	return len(r.Data.Result)
}

func (p *prometheus) ask(ctx context.Context, path, query string) (r answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?query="+url.QueryEscape(query), nil)
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return r, err
	}
	if r.Status != "success" {
		return r, fmt.Errorf("%s: %s", r.Status, r.Error)
	}
	return r, nil
}
