package e2e_test

import (
	"bufio"
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/test/testserver"
)

// proofRows are the rows of a proof, in order.
var proofRows = []string{
	"server", "create and exec", "memory limit", "process limit", "disk limit", "network off", "pause and resume", "fork",
	"killed server", "killed sandbox", "destroy", "nothing left",
}

// TestProof proves beside a running server that the promises hold on this host.
func TestProof(t *testing.T) {
	s := testserver.StartSmall(t)
	out, errOut, code := run(t, s, "", "doctor", "--prove", "--json", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	var all []doctor.Result
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("doctor --prove = %q, %q, %d: %v", out, errOut, code, err)
	}
	var rows []doctor.Result
	for i, r := range all {
		if r.Name == "server" {
			rows = all[i:]
		}
	}
	if len(rows) != len(proofRows) {
		t.Fatalf("doctor --prove has the rows %+v, want %q", rows, proofRows)
	}
	for i, r := range rows {
		if r.Name != proofRows[i] || r.Status != doctor.OK {
			t.Errorf("row %d is %+v, want %q, which holds", i, r, proofRows[i])
		}
	}
	wantNoProof(t, s)
}

// wantNoProof fails the test if directories of a proof remain.
func wantNoProof(t *testing.T, s *testserver.Server) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(s.StateDir, "prove-*"), filepath.Join(s.RunDir, "p[0-9]*")} {
		if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
			t.Errorf("left by the proof: %q, %v", left, err)
		}
	}
}

// TestInterruptedProof ends a proof with SIGINT while its first sandbox is tried.
func TestInterruptedProof(t *testing.T) {
	s := testserver.StartSmall(t)
	cmd := command(t, s, "doctor", "--prove", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var untried int
	var held bool
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		said = append(said, line)
		switch {
		case strings.Contains(line, "a server with a state of its own runs"):
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line, "untried") && strings.Contains(line, "interrupted"):
			untried++
		case strings.HasPrefix(line, "ok") && strings.Contains(line, "nothing left"):
			held = true
		}
	}
	_ = cmd.Wait() // interrupted
	if untried == 0 || !held {
		t.Errorf("an interrupted proof has %d rows that were not tried, and nothing is left: %t\n%s", untried, held, strings.Join(said, "\n"))
	}
	wantNoProof(t, s)
}
