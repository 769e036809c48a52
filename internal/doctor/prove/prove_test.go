package prove

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/doctor"
)

// TestNoServer: without a server no row holds, each says why, and no directory remains.
func TestNoServer(t *testing.T) {
	state, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
	var seen []doctor.Result
	results := Run(t.Context(), Options{
		Program: "/nonexistent/modbox", StateDir: state, RunDir: run, Images: filepath.Join(state, "none"), Image: "none:latest",
	}, func(r doctor.Result) { seen = append(seen, r) })
	if len(results) != len(rows)+2 || len(seen) != len(results) {
		t.Fatalf("%d results, %d seen, want %d", len(results), len(seen), len(rows)+2)
	}
	for i, r := range results {
		want, text := doctor.Untried, "did not start"
		switch i {
		case 0:
			want, text = doctor.Fail, "none:latest"
		case len(results) - 1:
			want, text = doctor.OK, "remains"
		}
		if r.Status != want || !strings.Contains(r.Detail, text) {
			t.Errorf("%+v, want %s with %q", r, want, text)
		}
	}
	if !doctor.Failed(results) {
		t.Error("a proof without a server counts as held")
	}
	for _, dir := range []string{state, run} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v, want nothing", dir, left, err)
		}
	}
}
