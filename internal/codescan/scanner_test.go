package codescan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

func result(stdout string) *Output { return &Output{Stdout: []byte(stdout)} }

func read(out *Output) (Result, error) {
	var r Result
	_, err := r.read(out, &nested{Line: 1, Column: 1})
	return r, err
}

func finding(line int, rule, reason string) string {
	data, err := json.Marshal(Finding{Line: line, Column: 1, Rule: rule, Severity: "low", Reason: reason})
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(data)
}

func TestReadTrustsNoScanner(t *testing.T) {
	many := strings.Repeat(finding(1, "eval", strings.Repeat("x", 2*reasonMax))+",", FindingsMax) + finding(1, "eval", "")
	scan, err := read(result(`{"findings":[` + many + `]}`))
	if err != nil || len(scan.Findings) != FindingsMax || !scan.Truncated || len(scan.Findings[0].Reason) > reasonMax || scan.Findings[0].Severity != "high" {
		t.Errorf("many findings: %d, truncated %v, %v; want %d that are cut, with our severity", len(scan.Findings), scan.Truncated, err, FindingsMax)
	}
	scan, err = read(result(`{"findings":[` + finding(5, "eval", "") + "," + finding(2, "network", "") + `]}`))
	if err != nil || len(scan.Findings) != 2 || scan.Findings[0].Line != 2 {
		t.Errorf("findings in another order: %+v, %v, want them by line", scan, err)
	}
	scan, err = read(result(`{"findings":[` + finding(3, "network", "a\nb\x1b[31m") + `]}`))
	if err != nil || len(scan.Findings) != 1 || strings.ContainsAny(scan.Findings[0].Reason, "\n\x1b") {
		t.Errorf("control characters: %+v, %v", scan, err)
	}
	for name, tc := range map[string]struct {
		result *Output
		want   sandbox.Code
	}{
		"rule":    {result(`{"findings":[` + finding(1, "none", "") + `]}`), sandbox.Unavailable},
		"line":    {result(`{"findings":[` + finding(-1, "eval", "") + `]}`), sandbox.Unavailable},
		"garbage": {result(`{"findings":`), sandbox.Unavailable},
		"nothing": {result(``), sandbox.Unavailable},
		"failed":  {&Output{Exit: agentapi.Exit{Code: 1}, Stdout: []byte(`{"findings":[]}`)}, sandbox.Unavailable},
		"cut":     {&Output{Stdout: []byte(`{"findings":[]}`), Truncated: true}, sandbox.Unavailable},
		"late":    {&Output{Exit: agentapi.Exit{TimedOut: true}}, sandbox.Timeout},
		"limit":   {&Output{Exit: agentapi.Exit{Limit: agentapi.LimitCPU}}, sandbox.Timeout},
	} {
		if scan, err := read(tc.result); sandbox.CodeOf(err) != tc.want {
			t.Errorf("%s: %+v, %v, want %s", name, scan, err, tc.want)
		}
	}
	if scan, err := read(result(`{"findings":[]}`)); err != nil || len(scan.Findings) != 0 {
		t.Errorf("no findings: %+v, %v", scan, err)
	}
}
