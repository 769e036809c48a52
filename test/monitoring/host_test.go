package monitoring_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/modbox/modbox/client/wire"
)

// TestHostMetricsExist compares the names of metrics from which GET /v1/host is made with what a
// server answers: of a metric that has another name, the page of the host would have no number.
func TestHostMetricsExist(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("..", "..", "internal", "api", "host", "measured.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"((?:modbox|process)_[a-z_]+)"`).FindAllSubmatch(source, -1)
	if len(names) < 15 {
		t.Fatalf("measured.go names %d metrics", len(names))
	}
	s := serve(t)
	list := families(t, s.URL)
	for _, name := range names {
		if list[string(name[1])] == nil {
			t.Errorf("GET /v1/host is made from %s, which the server does not have", name[1])
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/host", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var h wire.Host
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		t.Fatalf("GET /v1/host = %s: %v", resp.Status, err)
	}
	operations, running := map[string]int64{}, 0
	for _, o := range h.Operations {
		operations[o.Operation+o.Phase] = o.Count
	}
	for _, of := range h.Sandboxes {
		if of.State == "running" {
			running += int(of.Count)
		}
	}
	if operations["create"] == 0 || operations["exec"] == 0 || operations["database"] == 0 || operations["pause"] == 0 || running == 0 ||
		h.Pool == nil || h.Memory.PromisedBytes == 0 || h.Disk.PromisedBytes == 0 || h.DatabaseBytes == 0 || h.StartedAt.IsZero() || len(h.Images) == 0 {
		t.Errorf("GET /v1/host = %+v", h)
	}
}
