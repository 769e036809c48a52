package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Types of code that runs in contexts.
type (
	// Context is an interpreter that keeps its state between runs of code.
	Context = wire.Context
	// CodeResult is the result of a run: its status, output, values and error.
	CodeResult = wire.CodeResult
	// CodeOutput is a value in one or more formats.
	CodeOutput = wire.CodeOutput
	// CodeError is an error of code.
	CodeError = wire.CodeError
	// CodeEvent is an event of code under way.
	CodeEvent = wire.CodeEvent
	// CodeScan is the result of a scan of code.
	CodeScan = wire.CodeScan
	// Finding is a construct in code that deserves a look.
	Finding = wire.Finding
	// ContextOptions describe a context to make.
	ContextOptions = wire.CreateContext
)

// Interpreter runs code in the contexts of one sandbox.
type Interpreter struct {
	client *Client
	ref    string
}

// NewInterpreter returns the interpreter of a sandbox.
func NewInterpreter(c *Client, ref string) *Interpreter { return &Interpreter{c, ref} }

// CodeOptions say where and how long code runs.
type CodeOptions struct {
	// Language names the default context of a language: python if it is empty, javascript,
	// typescript, bash or r.
	Language string
	// ContextID names a context in place of Language.
	ContextID string
	// Timeout interrupts the code; 0 is the server's default.
	Timeout time.Duration
}

func (o CodeOptions) body(code string) wire.RunCode {
	return wire.RunCode{Code: code, Language: o.Language, ContextID: o.ContextID, TimeoutSeconds: int(seconds(o.Timeout))}
}

// Scan parses code by the interpreter in the sandbox, without running it, and returns the constructs
// that deserve a look. language is python, also if it is empty, or javascript. allowed are the packages
// that the code may import; nil allows all. Errors: as for Run; ProgramNotFound if the sandbox does not
// have the interpreter.
func (i *Interpreter) Scan(ctx context.Context, code, language string, allowed []string) (*CodeScan, error) {
	body := wire.ScanCode{Code: code, Language: language}
	if allowed != nil {
		body.AllowedImports = &allowed
	}
	res := new(CodeScan)
	return result(res, i.client.call(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "code", "scan"), body: body}, res))
}

// Run runs code to its end. Code that fails is no error: look at Error of the result. When ctx ends
// the code is interrupted. Errors: NotFound, NotRunning, Ended; Unsupported if the sandbox does not
// have the interpreter.
func (i *Interpreter) Run(ctx context.Context, code string, o CodeOptions) (*CodeResult, error) {
	res := new(CodeResult)
	return result(res, i.client.call(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "code"), body: o.body(code)}, res))
}

// Stream runs code and calls each with its events, but not with pings, until the code ends or each
// returns an error, which Stream returns. Errors: as for Run, and [ErrCut].
func (i *Interpreter) Stream(ctx context.Context, code string, o CodeOptions, each func(CodeEvent) error) error {
	resp, err := i.client.send(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "code", "stream"), body: o.body(code)})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := bufio.NewReaderSize(resp.Body, 128<<10); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		var ev CodeEvent
		if err := json.Unmarshal(line, &ev); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		switch ev.Type {
		case wire.StreamPing:
			continue
		case wire.CodeFailure:
			return &Error{Code: Code(ev.Code), Message: ev.Message}
		}
		if err := each(ev); err != nil {
			return err
		}
		if ev.Type == wire.CodeEnd {
			_, err := io.Copy(io.Discard, lines)
			return err
		}
	}
}

// CreateContext makes a context.
func (i *Interpreter) CreateContext(ctx context.Context, o ContextOptions) (*Context, error) {
	v := new(Context)
	return result(v, i.client.call(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "contexts"), body: o}, v))
}

// Contexts returns the sandbox's contexts, the oldest first.
func (i *Interpreter) Contexts(ctx context.Context) ([]Context, error) {
	var page wire.Page[Context]
	err := i.client.call(ctx, request{method: http.MethodGet, path: sandboxPath(i.ref, "contexts"), repeat: true}, &page)
	return page.Items, err // a page has more items than a sandbox contexts
}

// DeleteContext ends a context.
func (i *Interpreter) DeleteContext(ctx context.Context, id string) error {
	return i.client.call(ctx, request{method: http.MethodDelete, path: sandboxPath(i.ref, "contexts", id)}, nil)
}

// InterruptContext interrupts the code that runs in a context.
func (i *Interpreter) InterruptContext(ctx context.Context, id string) error {
	return i.client.call(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "contexts", id, "interrupt")}, nil)
}

// RestartContext starts the interpreter of a context again, without its state.
func (i *Interpreter) RestartContext(ctx context.Context, id string) (*Context, error) {
	v := new(Context)
	return result(v, i.client.call(ctx, request{method: http.MethodPost, path: sandboxPath(i.ref, "contexts", id, "restart")}, v))
}
