// Package codescan has the route of /v1 that scans code before it runs. The code is hostile, and so no
// parser reads it on the host: the interpreter in the sandbox that would run it does. A sandbox that
// lies about its code deceives its own caller only.
package codescan

import (
	"cmp"
	"context"
	_ "embed" // for the scanners
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// bodyMax allows for the JSON of the largest code.
	bodyMax = 8 << 20
	// codeMax bounds the code.
	codeMax = 1 << 20
	// findingsMax bounds the findings of an answer, and reasonMax the bytes of a reason.
	findingsMax, reasonMax = 200, 300
	// positionMax bounds lines and columns.
	positionMax = 1 << 24
	// outputMax bounds the output of a scanner.
	outputMax = 1 << 20
	// timeout bounds a scan, and processorTime its use of the sandbox's processor.
	timeout, processorTime = 20 * time.Second, 10 * time.Second
)

//go:embed scan.py
var pythonScanner string

//go:embed scan.js
var nodeScanner string

// scanners are the commands that scan code of a language. They read a request on stdin.
var scanners = map[string][]string{
	"python":     {"python3", "-I", "-c", pythonScanner},
	"javascript": {"node", "--expose-internals", "--no-warnings", "-e", nodeScanner},
}

// severities are the rules with their severities.
var severities = map[string]string{
	"process": "high", "eval": "high", "native": "high", "import": "high",
	"network": "medium", "file_delete": "medium", "environment": "low", "syntax": "low",
}

// Routes are the routes that scan code.
type Routes struct{ Guest *guest.Calls }

type scanInput struct {
	route.SandboxRef
	Body wire.ScanCode
}

// Register adds the routes.
func (h *Routes) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "scan-code", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/code/scan", Tags: []string{"code"}, MaxBodyBytes: bodyMax,
		Summary:     "Scan code without running it",
		Description: "Parses code by the interpreter in the sandbox, and answers the constructs that deserve a look: processes, network, deleted files, evaluated code, native code, environment variables, imports that are not allowed. The scan catches mistakes and is no boundary: code can hide what it does.",
	}, h.scan)
}

func (h *Routes) scan(ctx context.Context, in *scanInput) (*route.Body[wire.CodeScan], error) {
	language := cmp.Or(in.Body.Language, "python")
	argv, ok := scanners[language]
	if !ok {
		return nil, sandbox.InvalidField("language", "must be python or javascript")
	}
	if len(in.Body.Code) > codeMax {
		return nil, sandbox.InvalidField("code", "must have at most %d bytes", codeMax)
	}
	request, err := json.Marshal(struct {
		Code    string    `json:"code"`
		Allowed *[]string `json:"allowed"`
	}{in.Body.Code, in.Body.AllowedImports})
	if err != nil {
		return nil, err
	}
	caller := route.Caller(ctx)
	box := command.Sandbox{Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
		return h.Guest.Exec(audit.WithEntry(ctx, nil), caller, in.Ref, cmd)
	}}
	cmd := agentapi.Command{Argv: argv, Timeout: timeout, Limits: agentapi.Limits{CPU: processorTime}}
	result, err := command.Run(ctx, box, cmd, strings.NewReader(string(request)), outputMax)
	if err != nil {
		return nil, err
	}
	answer, err := read(&result)
	if err != nil {
		return nil, err
	}
	return route.Reply(answer), nil
}

// read returns the findings of a scanner, whose output is not trusted.
func read(r *command.Result) (wire.CodeScan, error) {
	scan := wire.CodeScan{Findings: []wire.Finding{}}
	var out struct {
		Findings []wire.Finding `json:"findings"`
	}
	switch {
	case r.TimedOut || r.Limit != "":
		return scan, sandbox.Errorf(sandbox.Timeout, "the scan of the code took too long")
	case r.Code != 0 || r.StdoutTruncated || json.Unmarshal(r.Stdout, &out) != nil:
		return scan, sandbox.Errorf(sandbox.Unavailable, "the interpreter in the sandbox did not scan the code: exit code %d, %s", r.Code, sandbox.OneLine(tail(r.Stderr)))
	}
	for _, f := range out.Findings {
		severity, known := severities[f.Rule]
		if !known || f.Line < 1 || f.Line > positionMax || f.Column < 1 || f.Column > positionMax {
			return scan, sandbox.Errorf(sandbox.Unavailable, "the interpreter in the sandbox gave no proper answer about the code")
		}
		if scan.Truncated = len(scan.Findings) == findingsMax; scan.Truncated {
			break
		}
		f.Severity, f.Reason = severity, sandbox.OneLine(strings.ToValidUTF8(f.Reason[:min(len(f.Reason), reasonMax)], ""))
		scan.Findings = append(scan.Findings, f)
	}
	return scan, nil
}

// tail returns the end of some output.
func tail(b []byte) string { return strings.ToValidUTF8(string(b[max(0, len(b)-reasonMax):]), "") }
