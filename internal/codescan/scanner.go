package codescan

import (
	"cmp"
	"context"
	_ "embed" // for the scanners
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/program"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// CodeMax bounds the code of a scan.
	CodeMax = 1 << 20
	// FindingsMax bounds the findings of a scan, and reasonMax the bytes of a reason.
	FindingsMax, reasonMax = 200, 300
	// positionMax bounds lines and columns.
	positionMax = 1 << 24
	// outputMax bounds the output of a scanner.
	outputMax = 1 << 20
	// timeout bounds a scanner.
	timeout = 20 * time.Second
	// programsMax bounds the scanners of a scan: the programs in shell code need one each.
	programsMax = 16
)

//go:embed scan.py
var pythonScanner string

//go:embed scan.js
var nodeScanner string

// node has no NODE_OPTIONS of the sandbox, which could change what it runs.
var node = agentapi.Command{
	Argv: []string{"node", "--expose-internals", "--no-warnings", "-e", nodeScanner}, Env: map[string]string{"NODE_OPTIONS": ""}, Timeout: timeout, Stdin: true,
}

// scanners are the commands that scan code of a language. They read a request on stdin.
var scanners = map[string]agentapi.Command{
	program.Python:     {Argv: []string{"python3", "-I", "-c", pythonScanner}, Timeout: timeout, Stdin: true},
	program.JavaScript: node,
	program.TypeScript: node,
	// An older agent does not know the option, and ends.
	program.Bash: {Argv: []string{"/.modbox/agent", "-scan-shell"}, Timeout: timeout, Stdin: true},
}

// Languages are the languages that can be scanned.
var Languages = []string{program.Python, program.JavaScript, program.TypeScript, program.Bash}

// aliases are other names of languages.
var aliases = map[string]string{
	"python3": program.Python, "py": program.Python, "js": program.JavaScript, "node": program.JavaScript, "ts": program.TypeScript,
	"sh": program.Bash, "shell": program.Bash,
}

// Language returns the name of a language that may be given by another name.
func Language(name string) string {
	name = strings.ToLower(name)
	if known, ok := aliases[name]; ok {
		return known
	}
	return name
}

// severities are the rules with their severities.
var severities = map[string]string{
	"process": "high", "eval": "high", "native": "high", "import": "high",
	"network": "medium", "file_delete": "medium", "environment": "low", "syntax": "low",
}

// Rule reports whether there is a rule of that name.
func Rule(name string) bool { return severities[name] != "" }

// Finding is a construct in code that deserves a look.
type Finding struct {
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Reason   string `json:"reason"`
}

// Result are the findings of a scan.
type Result struct {
	Findings []Finding
	// Truncated means that there are more findings.
	Truncated bool
}

// Output is how a scanner ended, and what it printed.
type Output struct {
	Exit           agentapi.Exit
	Stdout, Stderr []byte
	// Truncated means that it printed more than allowed.
	Truncated bool
}

// Run runs a command in a sandbox to its end, with an input, and keeps at most a number of bytes of each of its outputs.
type Run func(ctx context.Context, cmd agentapi.Command, stdin string, most int) (Output, error)

// errScanner is wrapped by errors which say that code could not be scanned.
var errScanner = errors.New("the code was not scanned")

// Scan scans code in a language, with the programs inside it, by commands that run runs. Imports other
// than the allowed are findings, unless allowed is nil. Errors: Unsupported if there is no scanner for the language;
// TooLarge; Timeout and Unavailable if the scanner did not answer properly; the errors of run.
func Scan(ctx context.Context, run Run, language, code string, allowed *[]string) (Result, error) {
	var r Result
	queue := []nested{{Language: Language(language), Code: code, Line: 1, Column: 1}}
	for scanned := 0; len(queue) > 0 && !r.Truncated; scanned++ {
		next := queue[0]
		queue = queue[1:]
		if scanned > programsMax {
			r.add(Finding{Line: next.Line, Column: next.Column, Rule: "syntax", Severity: severities["syntax"], Reason: "the code contains more programs than are scanned"})
			return r, nil
		}
		inner, err := scanOne(ctx, run, &next, allowed, &r)
		if err != nil && scanned > 0 && sandbox.CodeOf(err) == sandbox.Unsupported {
			r.add(Finding{Line: next.Line, Column: next.Column, Rule: "syntax", Severity: severities["syntax"], Reason: "contains " + next.Language + " code, which cannot be scanned"})
			continue
		}
		if err != nil {
			return r, err
		}
		queue = append(queue, inner...)
	}
	return r, nil
}

// nested is a program inside code, or the code itself.
type nested struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
}

// answer is the output of a scanner.
type answer struct {
	Findings []Finding `json:"findings"`
	Programs []nested  `json:"programs"`
}

// scanOne runs a scanner for one program, adds its findings to r, and returns the programs inside it.
func scanOne(ctx context.Context, run Run, p *nested, allowed *[]string, r *Result) ([]nested, error) {
	cmd, ok := scanners[p.Language]
	if !ok {
		return nil, sandbox.Wrap(sandbox.Unsupported, errScanner, "code in %q cannot be scanned, only %s", p.Language, strings.Join(Languages, ", "))
	}
	if len(p.Code) > CodeMax {
		return nil, sandbox.Wrap(sandbox.TooLarge, errScanner, "the code has %d bytes, and at most %d can be scanned", len(p.Code), CodeMax)
	}
	request, err := json.Marshal(struct {
		Code     string    `json:"code"`
		Language string    `json:"language"`
		Allowed  *[]string `json:"allowed"`
	}{p.Code, p.Language, allowed})
	if err != nil {
		return nil, err
	}
	out, err := run(ctx, cmd, string(request), outputMax)
	if err != nil {
		return nil, err
	}
	return r.read(&out, p)
}

// read adds the findings of a scanner, whose output is not trusted, and returns the programs inside the code.
func (r *Result) read(out *Output, p *nested) ([]nested, error) {
	var a answer
	switch {
	case out.Exit.TimedOut || out.Exit.Limit != "":
		return nil, sandbox.Wrap(sandbox.Timeout, errScanner, "the scan of the code took too long")
	case out.Exit.Code != 0 || out.Truncated || json.Unmarshal(out.Stdout, &a) != nil:
		return nil, sandbox.Wrap(sandbox.Unavailable, errScanner, "the scanner in the sandbox did not scan the code: exit code %d, %s", out.Exit.Code, sandbox.OneLine(tail(out.Stderr)))
	}
	slices.SortStableFunc(a.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	for _, f := range a.Findings {
		severity, known := severities[f.Rule]
		if !known || !position(f.Line, f.Column) {
			return nil, errAnswer()
		}
		f.Severity, f.Reason = severity, sandbox.OneLine(strings.ToValidUTF8(f.Reason[:min(len(f.Reason), reasonMax)], ""))
		f.Line, f.Column = p.place(f.Line, f.Column)
		r.add(f)
	}
	for i := range a.Programs {
		in := &a.Programs[i]
		if !position(in.Line, in.Column) {
			return nil, errAnswer()
		}
		in.Language = sandbox.OneLine(strings.ToValidUTF8(in.Language[:min(len(in.Language), 32)], ""))
		in.Line, in.Column = p.place(in.Line, in.Column)
	}
	return a.Programs, nil
}

func errAnswer() error {
	return sandbox.Wrap(sandbox.Unavailable, errScanner, "the scanner in the sandbox gave no proper answer about the code")
}

// position reports whether a line and a column can be of code.
func position(line, column int) bool {
	return line >= 1 && line <= positionMax && column >= 1 && column <= positionMax
}

// place returns a place in the outermost code from one in p.
func (p *nested) place(line, column int) (int, int) {
	if line == 1 {
		column += p.Column - 1
	}
	return min(p.Line+line-1, positionMax), min(column, positionMax)
}

// add adds a finding, up to the most that there may be.
func (r *Result) add(f Finding) {
	if len(r.Findings) == FindingsMax {
		r.Truncated = true
		return
	}
	r.Findings = append(r.Findings, f)
}

// tail returns the end of some output.
func tail(b []byte) string { return strings.ToValidUTF8(string(b[max(0, len(b)-reasonMax):]), "") }
