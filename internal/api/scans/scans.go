// Package scans has the route of /v1 that scans code without running it, and how answers show what a scan
// has found.
package scans

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/program"
	"github.com/modbox/modbox/internal/sandbox"
)

// bodyMax allows for the JSON of the largest code.
const bodyMax = 8 << 20

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
		Description: "Parses code in the sandbox, and answers the constructs that deserve a look: processes, network, deleted files, evaluated code, native code, environment variables, imports that are not allowed. The scan catches mistakes and is no boundary: code can hide what it does.",
	}, h.scan)
}

func (h *Routes) scan(ctx context.Context, in *scanInput) (*route.Body[wire.CodeScan], error) {
	language := codescan.Language(cmp.Or(in.Body.Language, program.Python))
	switch {
	case !slices.Contains(codescan.Languages, language):
		return nil, sandbox.InvalidField("language", "must be one of %s", strings.Join(codescan.Languages, ", "))
	case len(in.Body.Code) > codescan.CodeMax:
		return nil, sandbox.InvalidField("code", "must have at most %d bytes", codescan.CodeMax)
	case in.Body.AllowedImports != nil && language == program.Bash:
		return nil, sandbox.InvalidField("allowed_imports", "shell code has no imports; leave it out")
	}
	result, err := h.Guest.Scan(ctx, route.Caller(ctx), in.Ref, language, in.Body.Code, in.Body.AllowedImports)
	if err != nil {
		return nil, err
	}
	return route.Reply(*show(&result, "")), nil
}

// Scan is the findings of a scan in an answer.
type Scan = wire.CodeScan

// Shown returns the findings of the scan that the policy of a workspace demands, for the answer of
// a request; nil if there was no scan.
func Shown(report *codescan.Report) *Scan {
	result, notScanned, ok := report.Result()
	if !ok {
		return nil
	}
	return show(&result, notScanned)
}

func show(r *codescan.Result, notScanned string) *wire.CodeScan {
	scan := &wire.CodeScan{Findings: []wire.Finding{}, Truncated: r.Truncated, NotScanned: notScanned}
	for _, f := range r.Findings {
		scan.Findings = append(scan.Findings, wire.Finding{Line: f.Line, Column: f.Column, Rule: f.Rule, Severity: f.Severity, Reason: f.Reason})
	}
	return scan
}
