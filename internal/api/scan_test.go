package api_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestCodeScanPolicy sets the policy of a workspace and runs code under it. Sandboxes of the fake driver
// have the host's Python, and no parser for shell code.
func TestCodeScanPolicy(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("python3 is needed: ", err)
	}
	s := apitest.New(t)
	running(t, s, "x")
	var list wire.Page[wire.Workspace]
	s.Want(200, "GET", "/v1/workspaces", nil).Into(t, &list)
	workspace := "/v1/workspaces/" + list.Items[0].ID
	if w := list.Items[0]; w.CodeScan != "off" || w.CodeScanRules == nil || len(w.CodeScanRules) != 0 {
		t.Errorf("a new workspace has the policy %q %v", w.CodeScan, w.CodeScanRules)
	}
	for _, body := range []map[string]any{{"code_scan": "maybe"}, {"code_scan_rules": []string{"network", "none"}}} {
		if p := problem(t, s.Want(422, "PATCH", workspace, body)); len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Location, "code_scan") {
			t.Errorf("%v: %+v", body, p)
		}
	}
	set := func(mode string, rules ...string) {
		t.Helper()
		var w wire.Workspace
		s.Want(200, "PATCH", workspace, map[string]any{"code_scan": mode, "code_scan_rules": append([]string{}, rules...)}).Into(t, &w)
		if string(w.CodeScan) != mode || strings.Join(w.CodeScanRules, " ") != strings.Join(rules, " ") {
			t.Fatalf("the policy is %q %v, want %q %v", w.CodeScan, w.CodeScanRules, mode, rules)
		}
	}
	python := map[string]any{"command": []string{"env", "python3", "-c", "x = 1\nimport socket\nprint(6 * 7)"}}
	run := func(body map[string]any) (res wire.ExecResult) {
		t.Helper()
		s.Want(200, "POST", "/v1/sandboxes/x/exec", body).Into(t, &res)
		return res
	}
	if res := run(python); res.Scan != nil || res.Stdout != "42\n" {
		t.Errorf("without a policy: %+v", res)
	}
	set("warn")
	res := run(python)
	if res.Stdout != "42\n" || res.Scan == nil || len(res.Scan.Findings) != 1 || res.Scan.Findings[0].Line != 2 || res.Scan.Findings[0].Rule != "network" {
		t.Errorf("with warn: %+v, %+v", res, res.Scan)
	}
	if res := run(map[string]any{"shell": "echo hi"}); res.Stdout != "hi\n" || res.Scan == nil || res.Scan.NotScanned == "" {
		t.Errorf("a script that cannot be scanned, with warn: %+v", res)
	}
	set("block")
	for name, body := range map[string]map[string]any{
		"code":      python,
		"stdin":     {"command": []string{"python3", "-"}, "stdin": "\nimport socket"},
		"no parser": {"shell": "echo hi"},
		"ruby":      {"command": []string{"ruby", "-e", "1"}},
	} {
		p := problem(t, s.Want(403, "POST", "/v1/sandboxes/x/exec", body))
		if p.Code != sandbox.CodeBlocked || !strings.Contains(p.Detail, "nothing ran") || name == "code" && !strings.Contains(p.Detail, "line 2: network") {
			t.Errorf("%s: %+v", name, p)
		}
	}
	answer := s.Want(403, "POST", "/v1/sandboxes/x/executions", map[string]any{
		"command": []string{"python3", "main"}, "files": []map[string]any{{"path": "main", "content": []byte("import socket")}},
	})
	if p := problem(t, answer); p.Code != sandbox.CodeBlocked {
		t.Errorf("an execution: %+v", p)
	}
	for _, r := range recordsOf(s, answer.Header.Get("X-Request-Id")) {
		if r.Outcome == audit.Started {
			continue // it took long
		}
		if r.Outcome != string(sandbox.CodeBlocked) || !strings.HasPrefix(r.Details["code_scan"], "blocked") || !strings.Contains(r.Details["code_findings"], "line 1: network") {
			t.Errorf("the audit record: %+v", r)
		}
	}
	if res := run(map[string]any{"command": []string{"printf", "x"}}); res.Stdout != "x" || res.Scan != nil {
		t.Errorf("a command without code: %+v", res)
	}
	set("block", "process")
	if res := run(python); res.Stdout != "42\n" {
		t.Errorf("findings of other rules: %+v", res)
	}
	set("off")
}

// TestBlockedProgramIsNotWritten runs a program that the policy blocks, and another program with a policy that warns:
// only the second has a file in the sandbox. The audit log has the blocked program.
func TestBlockedProgramIsNotWritten(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("python3 is needed: ", err)
	}
	s := apitest.New(t)
	running(t, s, "x")
	var list wire.Page[wire.Workspace]
	s.Want(200, "GET", "/v1/workspaces", nil).Into(t, &list)
	workspace := "/v1/workspaces/" + list.Items[0].ID
	s.Want(200, "PATCH", workspace, map[string]any{"code_scan": "block"})
	body := func(path, code string) map[string]any {
		return map[string]any{"program": map[string]any{"code": code, "path": path}}
	}
	for _, route := range []string{"/exec", "/exec/stream"} {
		answer := s.Do("POST", "/v1/sandboxes/x"+route, body("/program/bad.py", "import socket"))
		ends := 0
		for _, r := range recordsOf(s, answer.Header.Get("X-Request-Id")) {
			if r.Outcome == audit.Started {
				continue // it took long
			}
			ends++
			if len(r.Command) == 0 || r.Command[len(r.Command)-1] != "import socket" || !strings.HasPrefix(r.Details["code_scan"], "blocked") {
				t.Errorf("the audit record of %s: %+v", route, r)
			}
		}
		if ends != 1 {
			t.Errorf("%s: %d audit records, want 1", route, ends)
		}
		if p := problem(t, answer); p.Code != sandbox.CodeBlocked || !strings.Contains(p.Detail, "line 1: network") {
			t.Errorf("%s of a program with findings: %+v", route, p)
		}
		s.Want(404, "GET", "/v1/sandboxes/x/files/stat?path=/program", nil)
	}
	s.Want(200, "PATCH", workspace, map[string]any{"code_scan": "warn"})
	var res wire.ExecResult
	s.Want(200, "POST", "/v1/sandboxes/x/exec", body("/program/warned.py", "import socket")).Into(t, &res)
	if res.Scan == nil || len(res.Scan.Findings) != 1 {
		t.Errorf("the answer has no findings: %+v", res)
	}
	s.Want(200, "GET", "/v1/sandboxes/x/files/stat?path=/program/warned.py", nil)
}
