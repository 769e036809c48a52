package e2e_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestScanPolicy has a workspace that blocks code with findings, and runs code in the ways that there are.
func TestScanPolicy(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	data := s.MustCreate(client.CreateOptions{Image: "modbox/data"}) // has IPython
	me, err := s.Client.WhoAmI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := func(mode client.CodeScanMode, rules ...string) {
		t.Helper()
		if _, err := s.Workspaces.Update(t.Context(), me.WorkspaceID, client.WorkspaceOptions{CodeScan: mode, CodeScanRules: &rules}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ language, code, want string }{
		{"python", "x = 1\nimport socket", "2:network"},
		{"javascript", "require('fs').rmSync('/x')", "1:file_delete"},
		{"typescript", "const a: number = 1;\nfetch('u' as string)", "2:network"},
		{"typescript", "enum E { A }\neval('1')", "2:eval"},
		{"bash", "set -e\ncurl example.com | sh", "2:network 2:eval"},
		{"bash", "python3 - <<'END'\nimport ctypes\nEND", "2:native"},
	} {
		scan, err := s.Sandboxes.ScanCode(t.Context(), sb.ID, tc.code, tc.language, nil)
		if err != nil {
			t.Errorf("scan %q: %v", tc.code, err)
			continue
		}
		var got []string
		for _, f := range scan.Findings {
			got = append(got, string(rune('0'+f.Line))+":"+f.Rule)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("scan of %s %q = %q, want %q", tc.language, tc.code, got, tc.want)
		}
	}

	if scan, err := s.Sandboxes.ScanCode(t.Context(), data.ID, "x = 1\n!kill 1", "", nil); err != nil || len(scan.Findings) != 1 || scan.Findings[0].Line != 2 || scan.Findings[0].Rule != "process" {
		t.Errorf("scan of a cell of IPython: %+v, %v", scan, err)
	}

	set(client.CodeScanWarn)
	res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "rm -f /tmp/none; echo done"})
	if err != nil || string(res.Stdout) != "done\n" || res.Scan == nil || len(res.Scan.Findings) != 1 || res.Scan.Findings[0].Rule != "file_delete" {
		t.Errorf("with warn: %+v, %v", res, err)
	}
	run, err := s.Sandboxes.RunCode(t.Context(), data.ID, "import socket\n6 * 7", client.CodeOptions{})
	if err != nil || run.Scan == nil || len(run.Scan.Findings) != 1 || run.Status != "ok" {
		t.Errorf("code with warn: %+v, %v", run, err)
	}

	set(client.CodeScanBlock, "network", "eval")
	blocked := func(name string, err error) {
		t.Helper()
		if !client.IsCode(err, client.CodeBlocked) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v, want %s", name, err, client.CodeBlocked)
		}
	}
	mark := "; touch /tmp/ran"
	for name, cmd := range map[string]client.Program{
		"a program in Python":     {Code: "import socket; open('/tmp/ran', 'w')"},
		"a program in JavaScript": {Code: "fetch('u'); require('fs').writeFileSync('/tmp/ran', '')", Language: "javascript"},
		"a program in Bash":       {Code: "eval true" + mark, Language: "bash"},
	} {
		cmd.Path = "/tmp/program/main"
		_, err = s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Program: &cmd})
		blocked(name, err)
		if _, err := s.Sandboxes.Files.Stat(t.Context(), sb.ID, cmd.Path); !client.IsCode(err, client.FileNotFound) {
			t.Errorf("the file of %s: %v, want %s", name, err, client.FileNotFound)
		}
	}
	fine := client.Program{Code: "import math, sys; print(math.floor(2.5), __file__, sys.argv)", Path: "/tmp/program/main.py", AllowedImports: &[]string{"math", "sys"}}
	if res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Program: &fine}); err != nil || string(res.Stdout) != "2 /tmp/program/main.py ['/tmp/program/main.py']\n" || res.Scan == nil {
		t.Errorf("a program without findings: %+v, %v", res, err)
	}
	_, err = s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "eval true" + mark})
	blocked("a script", err)
	_, err = s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"timeout", "9", "python3", "-c", "import socket; open('/tmp/ran', 'w')"}})
	blocked("a command", err)
	_, err = s.Sandboxes.RunCode(t.Context(), data.ID, "import socket; open('/tmp/ran', 'w')", client.CodeOptions{})
	blocked("code", err)
	_, err = s.Sandboxes.RunCode(t.Context(), sb.ID, "fetch('u'); require('fs').writeFileSync('/tmp/ran', '')", client.CodeOptions{Language: "javascript"})
	blocked("JavaScript", err)
	res, err = s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"ls", "/tmp/ran"}})
	if err != nil || res.ExitCode == 0 {
		t.Errorf("blocked code ran: %+v, %v", res, err)
	}
	if res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo fine"}); err != nil || string(res.Stdout) != "fine\n" {
		t.Errorf("code without findings: %+v, %v", res, err)
	}
	// A sandbox without an interpreter cannot scan its code; it has the parser for shell code all the same.
	bare := s.MustCreate(client.CreateOptions{Image: image})
	if res, err := s.Sandboxes.Exec(t.Context(), bare.ID, client.Command{Shell: "echo fine"}); err != nil || string(res.Stdout) != "fine\n" {
		t.Errorf("a shell without an interpreter: %+v, %v", res, err)
	}
	_, err = s.Sandboxes.Exec(t.Context(), bare.ID, client.Command{Argv: []string{"sh", "-c", "node -e 1"}})
	if !client.IsCode(err, client.CodeBlocked) || !strings.Contains(err.Error(), "could not be scanned") {
		t.Errorf("code without a parser: %v", err)
	}
	set(client.CodeScanOff)
}
