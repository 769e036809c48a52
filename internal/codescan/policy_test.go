package codescan_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

// policies are policies by workspace.
type policies map[sandbox.WorkspaceID]codescan.Policy

func (p policies) CodeScan(_ context.Context, ws sandbox.WorkspaceID) (codescan.Policy, error) {
	policy, ok := p[ws]
	if !ok {
		return policy, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	return policy, nil
}

// answers is a sandbox whose scanners answer by the code.
func answers(byCode map[string]string) codescan.Run {
	return func(_ context.Context, _ agentapi.Command, stdin string, _ int) (codescan.Output, error) {
		var request struct {
			Code string `json:"code"`
		}
		if err := json.Unmarshal([]byte(stdin), &request); err != nil {
			return codescan.Output{}, err
		}
		answer, ok := byCode[request.Code]
		if !ok {
			return codescan.Output{}, sandbox.Errorf(sandbox.ProgramNotFound, "there is no python3")
		}
		return codescan.Output{Stdout: []byte(answer)}, nil
	}
}

const (
	network = `{"findings":[{"line":3,"column":1,"rule":"network","reason":"imports socket"}]}`
	broken  = `{"findings":[{"line":1,"column":2,"rule":"syntax","reason":"invalid syntax"}]}`
	none    = `{"findings":[]}`
	shell   = `{"findings":[],"programs":[{"language":"python","code":"bad","line":7,"column":1}]}`
	deep    = `{"findings":[],"programs":[{"language":"bash","code":"deep","line":1,"column":1}]}`
	foreign = `{"findings":[],"programs":[{"language":"perl","code":"x","line":2,"column":1}]}`
)

func TestReview(t *testing.T) {
	s := codescan.New(policies{
		"off": {Mode: account.CodeScanOff}, "warn": {Mode: account.CodeScanWarn}, "block": {Mode: account.CodeScanBlock},
		"rules": {Mode: account.CodeScanBlock, Rules: account.ScanRules{"process"}},
	})
	run := answers(map[string]string{
		"good": none, "bad": network, "broken": broken, "shell": shell, "deep": deep, "foreign": foreign,
		"lies": `{"findings":[{"line":0,"column":1,"rule":"network"}]}`,
	})
	large := strings.Repeat("x", codescan.CodeMax+1)
	for _, tc := range []struct {
		workspace      sandbox.WorkspaceID
		language, code string
		want           string // the error, "" for none
		findings       int
		notScanned     string
	}{
		{"off", "python", "bad", "", 0, ""},
		{"warn", "python", "bad", "", 1, ""},
		{"warn", "python", "good", "", 0, ""},
		{"warn", "python", "unknown", "", 0, "there is no python3"},
		{"warn", "perl", "good", "", 0, "cannot be scanned"},
		{"warn", "python", large, "", 0, "at most"},
		{"block", "python", "good", "", 0, ""},
		{"block", "py", "bad", "line 3: network: imports socket", 1, ""},
		{"block", "python", "broken", "line 1: syntax", 1, ""},
		{"block", "bash", "shell", "line 9: network", 1, ""},
		{"block", "bash", "deep", "more programs than are scanned", 1, ""},
		{"block", "bash", "foreign", "perl code, which cannot be scanned", 1, ""},
		{"block", "python", "unknown", "could not be scanned: there is no python3", 0, "there is no python3"},
		{"block", "python", "lies", "no proper answer", 0, "no proper answer"},
		{"block", "r", "good", "could not be scanned", 0, "cannot be scanned"},
		{"block", "python", large, "could not be scanned", 0, "at most"},
		{"rules", "python", "bad", "", 0, ""},
		{"rules", "python", "broken", "syntax", 1, ""},
	} {
		ctx, report := codescan.Collect(t.Context())
		err := s.Review(ctx, tc.workspace, []codescan.Code{codescan.Source(tc.language, tc.code)}, run)
		if (err == nil) != (tc.want == "") || err != nil && (sandbox.CodeOf(err) != sandbox.CodeBlocked || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s, %s %.20q: %v, want %q", tc.workspace, tc.language, tc.code, err, tc.want)
		}
		result, notScanned, ok := report.Result()
		if ok != (tc.workspace != "off") || len(result.Findings) != tc.findings || !strings.Contains(notScanned, tc.notScanned) || (notScanned == "") != (tc.notScanned == "") {
			t.Errorf("%s, %s %.20q: report %+v, %q, %v", tc.workspace, tc.language, tc.code, result, notScanned, ok)
		}
	}
	if err := s.Review(t.Context(), "deleted", []codescan.Code{codescan.Source("python", "good")}, run); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("without a policy: %v, want %s", err, sandbox.NotFound)
	}
	if err := s.Review(codescan.Exempt(t.Context()), "block", []codescan.Code{codescan.Source("python", "bad")}, run); err != nil {
		t.Errorf("code of the server: %v", err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if err := s.Review(ended, "warn", []codescan.Code{codescan.Source("python", "unknown")}, run); !errors.Is(err, gone) {
		t.Errorf("after the end of the request: %v", err)
	}
}

func TestOfCommand(t *testing.T) {
	stdin := strings.NewReader("from stdin")
	ctx := codescan.WithStdin(t.Context(), stdin)
	for _, tc := range []struct {
		name string
		ctx  context.Context
		argv []string
		want int
	}{
		{"argument", t.Context(), []string{"python3", "-c", "x"}, 1},
		{"file", ctx, []string{"python3", "x.py"}, 0},
		{"stdin", ctx, []string{"python3", "-"}, 1},
		{"no-stdin", t.Context(), []string{"python3", "-"}, 0},
		{"program", ctx, []string{"cat"}, 0},
		{"of-the-server", codescan.WithArgv(ctx, nil), []string{"sh", "-c", "x"}, 0},
		{"within", codescan.WithArgv(ctx, []string{"python3", "-c", "x"}), []string{"sh", "-c", "x"}, 1},
		{"source", codescan.WithSource(ctx, "go", stdin), []string{"sh", "-c", "x"}, 1},
	} {
		if got := codescan.OfCommand(tc.ctx, tc.argv); len(got) != tc.want {
			t.Errorf("%s: %+v, want %d programs", tc.name, got, tc.want)
		}
	}
	for _, tc := range []struct {
		argv     []string
		path     string
		language string
	}{
		{nil, "a.py", "python"}, {nil, "a.txt", ""}, {[]string{"bash", "run"}, "run", "bash"}, {[]string{"cat", "run"}, "run", ""}, {nil, "b.TS", "typescript"},
	} {
		if got, ok := codescan.File(tc.argv, tc.path, "x"); ok != (tc.language != "") || got.Language != tc.language {
			t.Errorf("File(%q, %q) = %+v, %v, want %q", tc.argv, tc.path, got, ok, tc.language)
		}
	}
}
