package sandbox

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
)

// CodeOptions say where and how code runs. The zero value is Python in its default context.
type CodeOptions struct {
	// Language is python, javascript, typescript, bash, r or java.
	Language string
	// Context is the id of a context, instead of Language; see [Sandbox.Contexts].
	Context string
	// Timeout interrupts the code; 0 is the server's default.
	Timeout time.Duration
	// Limits are limits of the context while the code runs, in place of the limits of the context.
	Limits client.Limits
	// OnStdout, OnStderr and OnResult get output and values as they come; nil functions are not called.
	OnStdout, OnStderr func(text string)
	OnResult           func(CodeOutput)
}

// CodeResult is the end of code, with its output and values.
type CodeResult struct {
	// Status is ok, error, interrupted, timed_out, or lost when the interpreter ended.
	Status         string
	LimitExceeded  string // the limit that it exceeded, such as [client.LimitMemory]; "" for none
	Stdout, Stderr string
	// Results are the value of the last expression, and the values that the code displayed, in
	// their order.
	Results []CodeOutput
	// Error is the code's error; nil without one.
	Error *CodeError
	// Context is the id of the context. Restarted says that the state of earlier code is lost.
	Context   string
	Restarted bool
	// ExecutionCount is the number of the run in its interpreter; 0 in Bash, which counts none.
	ExecutionCount int
	Duration       time.Duration
	Truncated      bool // output was dropped
	// Scan has the findings of the scan that the policy of the workspace demands; nil without a scan.
	Scan *client.CodeScan
}

// CodeError is an error of code.
type CodeError struct {
	Name, Value string // e.g. ZeroDivisionError and "division by zero"
	Traceback   []string
}

// Error returns name and value.
func (e *CodeError) Error() string { return strings.TrimSuffix(e.Name+": "+e.Value, ": ") }

// CodeOutput is a value in the formats that it has.
type CodeOutput struct {
	// Main says that it is the value of the last expression; the code displayed all others.
	Main bool
	// Data has each format by MIME type, as in [client.CodeOutput].
	Data map[string]any
	// Omitted are formats that were too large.
	Omitted   []string
	displayID string
}

// MIME types of values.
const (
	textPlain = "text/plain"
	imagePNG  = "image/png"
)

// Text returns the value as plain text; "" without it, as in the methods below.
func (o *CodeOutput) Text() string { return o.text(textPlain) }

// HTML returns the value as HTML.
func (o *CodeOutput) HTML() string { return o.text("text/html") }

// Markdown returns the value as Markdown.
func (o *CodeOutput) Markdown() string { return o.text("text/markdown") }

// LaTeX returns the value as LaTeX.
func (o *CodeOutput) LaTeX() string { return o.text("text/latex") }

// SVG returns the image as SVG.
func (o *CodeOutput) SVG() string { return o.text("image/svg+xml") }

// PNG returns the bytes of the image as PNG; nil without it.
func (o *CodeOutput) PNG() []byte { return o.bytes(imagePNG) }

// JPEG returns the bytes of the image as JPEG; nil without it.
func (o *CodeOutput) JPEG() []byte { return o.bytes("image/jpeg") }

// PDF returns the bytes of the document as PDF; nil without it.
func (o *CodeOutput) PDF() []byte { return o.bytes("application/pdf") }

// Chart returns a figure of Matplotlib as data, with the members that docs/run-code.md lists; nil
// without it.
func (o *CodeOutput) Chart() map[string]any { return o.object("application/vnd.modbox.chart+json") }

// Table returns a data frame as data: "schema", "data" (the first rows), "total_rows" and
// "total_columns"; nil without it.
func (o *CodeOutput) Table() map[string]any { return o.object("application/vnd.dataresource+json") }

// JSON decodes the value from JSON into v, and reports whether it has that format.
func (o *CodeOutput) JSON(v any) (bool, error) {
	value, ok := o.Data["application/json"]
	if !ok {
		return false, nil
	}
	b, err := json.Marshal(value)
	if err != nil {
		return true, err
	}
	return true, json.Unmarshal(b, v)
}

func (o *CodeOutput) text(mime string) string {
	s, _ := o.Data[mime].(string)
	return s
}

func (o *CodeOutput) object(mime string) map[string]any {
	m, _ := o.Data[mime].(map[string]any)
	return m
}

func (o *CodeOutput) bytes(mime string) []byte {
	s, ok := o.Data[mime].(string)
	if !ok {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil
	}
	return b
}

// Text returns the value of the last expression as plain text; "" if there is none.
func (r *CodeResult) Text() string {
	for i := range r.Results {
		if r.Results[i].Main {
			return r.Results[i].Text()
		}
	}
	return ""
}

// HTML returns the first value that has HTML; "" without any, as in the methods below.
func (r *CodeResult) HTML() string { return r.text((*CodeOutput).HTML) }

// Markdown returns the first value that has Markdown.
func (r *CodeResult) Markdown() string { return r.text((*CodeOutput).Markdown) }

// LaTeX returns the first value that has LaTeX.
func (r *CodeResult) LaTeX() string { return r.text((*CodeOutput).LaTeX) }

// SVG returns the first image in SVG.
func (r *CodeResult) SVG() string { return r.text((*CodeOutput).SVG) }

// PNG returns the bytes of the first image in PNG, such as a plot; nil without any, as in the
// methods below.
func (r *CodeResult) PNG() []byte { return r.bytes((*CodeOutput).PNG) }

// JPEG returns the bytes of the first image in JPEG.
func (r *CodeResult) JPEG() []byte { return r.bytes((*CodeOutput).JPEG) }

// PDF returns the bytes of the first document in PDF.
func (r *CodeResult) PDF() []byte { return r.bytes((*CodeOutput).PDF) }

// Chart returns the first figure of Matplotlib as data; see [CodeOutput.Chart].
func (r *CodeResult) Chart() map[string]any { return r.object((*CodeOutput).Chart) }

// Table returns the first data frame as data; see [CodeOutput.Table].
func (r *CodeResult) Table() map[string]any { return r.object((*CodeOutput).Table) }

// JSON decodes the first value that has JSON into v, and reports whether there is any.
func (r *CodeResult) JSON(v any) (bool, error) {
	for i := range r.Results {
		if ok, err := r.Results[i].JSON(v); ok {
			return ok, err
		}
	}
	return false, nil
}

func (r *CodeResult) text(format func(*CodeOutput) string) string {
	for i := range r.Results {
		if s := format(&r.Results[i]); s != "" {
			return s
		}
	}
	return ""
}

func (r *CodeResult) bytes(format func(*CodeOutput) []byte) []byte {
	for i := range r.Results {
		if b := format(&r.Results[i]); b != nil {
			return b
		}
	}
	return nil
}

func (r *CodeResult) object(format func(*CodeOutput) map[string]any) map[string]any {
	for i := range r.Results {
		if m := format(&r.Results[i]); m != nil {
			return m
		}
	}
	return nil
}

// Err returns nil if the code succeeded, its *[CodeError], or an error that names the status.
func (r *CodeResult) Err() error {
	switch {
	case r.Error != nil:
		return r.Error
	case r.Status != "ok":
		return fmt.Errorf("the code ended with status %s", r.Status)
	}
	return nil
}

// RunCode runs Python code in the sandbox's default context, which keeps variables, imports and
// files between calls. Code that fails is no error: look at Error of the result. When ctx ends, the
// code is interrupted. Errors: Ended; Unsupported if the image has no interpreter.
func (s *Sandbox) RunCode(ctx context.Context, code string) (*CodeResult, error) {
	return s.RunCodeWith(ctx, code, CodeOptions{})
}

// RunCodeWith is RunCode with options.
func (s *Sandbox) RunCodeWith(ctx context.Context, code string, o CodeOptions) (*CodeResult, error) {
	options := client.CodeOptions{Language: o.Language, ContextID: o.Context, Timeout: o.Timeout, Limits: o.Limits}
	if o.OnStdout != nil || o.OnStderr != nil || o.OnResult != nil {
		return s.streamCode(ctx, code, options, o)
	}
	r, err := s.client.Sandboxes.RunCode(ctx, s.ID, code, options)
	if err != nil {
		return nil, err
	}
	res := &CodeResult{
		Status: r.Status, LimitExceeded: r.LimitExceeded, Stdout: r.Stdout, Stderr: r.Stderr, Context: r.ContextID, Restarted: r.Restarted,
		ExecutionCount: r.ExecutionCount, Duration: time.Duration(r.DurationMS) * time.Millisecond, Truncated: r.Truncated,
		Error: codeError(r.Error), Scan: r.Scan,
	}
	for i := range r.Results {
		res.Results = append(res.Results, codeOutput(&r.Results[i]))
	}
	return res, nil
}

// streamCode runs code and collects its events.
func (s *Sandbox) streamCode(ctx context.Context, code string, options client.CodeOptions, o CodeOptions) (*CodeResult, error) {
	res := new(CodeResult)
	var stdout, stderr strings.Builder
	err := s.client.Sandboxes.RunCodeStream(ctx, s.ID, code, options, func(ev client.CodeEvent) error {
		switch ev.Type {
		case wire.CodeStarted:
			res.Context, res.Restarted, res.Scan = ev.ContextID, ev.Restarted, ev.Scan
		case wire.CodeStdout:
			stdout.WriteString(ev.Text)
			if o.OnStdout != nil {
				o.OnStdout(ev.Text)
			}
		case wire.CodeStderr:
			stderr.WriteString(ev.Text)
			if o.OnStderr != nil {
				o.OnStderr(ev.Text)
			}
		case wire.CodeValue:
			if ev.Result == nil {
				return nil
			}
			out := codeOutput(ev.Result)
			res.add(out, ev.Update)
			if o.OnResult != nil {
				o.OnResult(out)
			}
		case wire.CodeFailed:
			res.Error = codeError(ev.Error)
		case wire.CodeEnd:
			res.Status, res.LimitExceeded, res.ExecutionCount, res.Truncated = ev.Status, ev.LimitExceeded, ev.ExecutionCount, ev.Truncated
			if ev.DurationMS != nil {
				res.Duration = time.Duration(*ev.DurationMS) * time.Millisecond
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	res.Stdout, res.Stderr = stdout.String(), stderr.String()
	return res, nil
}

// add adds a value, or replaces the earlier value that it updates.
func (r *CodeResult) add(out CodeOutput, update bool) {
	if update {
		i := slices.IndexFunc(r.Results, func(old CodeOutput) bool { return old.displayID == out.displayID })
		if i >= 0 {
			r.Results[i] = out
		}
		return
	}
	r.Results = append(r.Results, out)
}

func codeOutput(o *client.CodeOutput) CodeOutput {
	return CodeOutput{Main: o.Main, Data: o.Data, Omitted: o.Omitted, displayID: o.DisplayID}
}

func codeError(e *client.CodeError) *CodeError {
	if e == nil {
		return nil
	}
	return &CodeError{Name: e.Name, Value: e.Value, Traceback: e.Traceback}
}
