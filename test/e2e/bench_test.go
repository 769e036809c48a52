package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// shortly are the options of the shortest measurement.
var shortly = []string{"--rounds", "1", "--burst", "2", "--idle", "1", "--idle-time", "1s", "--time-limit", "1h"}

// wantNoBench fails the test if directories of a measurement remain.
func wantNoBench(t *testing.T, s *testserver.Server) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(s.StateDir, "bench-*"), filepath.Join(s.RunDir, "p[0-9]*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left by the measurement: %q, %v", left, err)
		}
	}
}

// TestBench measures the running server and leaves nothing there. A server of its own is measured by TestInterruptedBench, and ends as in TestProof.
func TestBench(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "2") // a row needs a pool
	page := filepath.Join(t.TempDir(), "bench.html")
	args := append([]string{"bench", "--json", "--html", page, "--running"}, shortly...)
	out, errOut, code := run(t, s, "", args...)
	var report struct {
		Version string
		Rows    []struct {
			What string
			Ours struct {
				P50 float64 `json:"p50_ms"`
			}
		}
		Facts []struct{ What, Ours string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("modbox %s = %q, %q, %d: %v", strings.Join(args, " "), out, errOut, code, err)
	}
	if len(report.Rows) < 20 || len(report.Facts) < 6 {
		t.Errorf("%d rows and %d values, want the whole table: %+v", len(report.Rows), len(report.Facts), report)
	}
	for _, row := range report.Rows {
		if row.Ours.P50 <= 0 {
			t.Errorf("row %q has no time", row.What)
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), report.Rows[0].What[:20]) {
		t.Errorf("the page does not have the rows: %v", err)
	}
	wantNoBench(t, s)
	live, err := s.Sandboxes.List(client.ListOptions{}).Collect(t.Context())
	if err != nil || len(live) > 0 {
		t.Errorf("sandboxes on the running server: %+v, %v, want none", live, err)
	}
	snapshots, err := s.Snapshots.List(client.SnapshotFilter{}).Collect(t.Context())
	if err != nil || len(snapshots) > 0 {
		t.Errorf("snapshots on the running server: %+v, %v, want none", snapshots, err)
	}
}

// TestInterruptedBench ends a measurement with SIGINT after its first row.
func TestInterruptedBench(t *testing.T) {
	s := testserver.Start(t)
	cmd := command(t, s, append([]string{"bench", "--state-dir", s.StateDir, "--run-dir", s.RunDir}, shortly...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen, interrupted := "", false
	for buffer := make([]byte, 4096); ; {
		n, err := out.Read(buffer)
		seen += string(buffer[:n])
		if !interrupted && strings.Contains(seen, " ms\n") {
			interrupted = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err == nil || !interrupted {
		t.Errorf("an interrupted measurement ends with %v:\n%s", err, seen)
	}
	wantNoBench(t, s)
}
