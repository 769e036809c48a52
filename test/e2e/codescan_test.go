package e2e_test

import (
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestScan scans code by the Go client, also in sandboxes that cannot scan it or give false answers.
func TestScan(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	scan, err := s.Sandboxes.ScanCode(t.Context(), sb.ID, "import socket, json", "", []string{"json"})
	want := []client.Finding{
		{Line: 1, Column: 1, Rule: "import", Severity: "high", Reason: "imports socket, which is not allowed"},
		{Line: 1, Column: 1, Rule: "network", Severity: "medium", Reason: "imports socket"},
	}
	if err != nil || len(scan.Findings) != 2 || scan.Findings[0] != want[0] || scan.Findings[1] != want[1] {
		t.Errorf("ScanCode() = %+v, %v, want %+v", scan, err, want)
	}
	_, err = s.Sandboxes.ScanCode(t.Context(), sb.ID, "", "cobol", nil)
	if !client.IsCode(err, client.Invalid) {
		t.Errorf("an unknown language: %v, want it refused", err)
	}
	replace := "printf '#!/bin/sh\\n%s\\n' \"$1\" >/usr/local/bin/python3 && chmod 755 /usr/local/bin/python3"
	for name, program := range map[string]string{
		"garbage": "echo nonsense", "flood": "yes", "fails": "exit 1", "lies": `echo '{"findings":[{"line":1,"column":1,"rule":"no such rule"}]}'`,
	} {
		res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"sh", "-c", replace, "sh", program}, User: "root"})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("replace the interpreter: %+v, %v", res, err)
		}
		if scan, err := s.Sandboxes.ScanCode(t.Context(), sb.ID, "1", "", nil); err == nil {
			t.Errorf("%s: ScanCode() = %+v, want an error", name, scan)
		}
	}
	bare := s.MustCreate(client.CreateOptions{Image: image})
	if _, err := s.Sandboxes.ScanCode(t.Context(), bare.ID, "1", "javascript", nil); !client.IsCode(err, client.ProgramNotFound) {
		t.Errorf("without an interpreter: %v, want %s", err, client.ProgramNotFound)
	}
}
