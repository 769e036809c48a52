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

// CodeOptions say where and how long code runs.
type CodeOptions struct {
	// Language names the default context of a language: python if it is empty, javascript,
	// typescript, bash, r or java.
	Language string
	// ContextID names a context in place of Language.
	ContextID string
	// Timeout interrupts the code; 0 is the server's default.
	Timeout time.Duration
	// Limits are limits of the context while the code runs, in place of the limits of the context.
	Limits Limits
}

func (o CodeOptions) body(code string) wire.RunCode {
	body := wire.RunCode{Code: code, Language: o.Language, ContextID: o.ContextID, TimeoutSeconds: int(seconds(o.Timeout))}
	if o.Limits != (Limits{}) {
		body.Limits = &o.Limits
	}
	return body
}

// ScanCode parses code by the interpreter in the sandbox, without running it, and returns the constructs
// that deserve a look. language is python, also if it is empty, javascript, typescript or bash. allowed
// are the packages that the code may import; nil allows all. Errors: as for RunCode; ProgramNotFound if the sandbox does not
// have the interpreter.
func (c *Sandboxes) ScanCode(ctx context.Context, ref, code, language string, allowed []string) (*CodeScan, error) {
	body := wire.ScanCode{Code: code, Language: language}
	if allowed != nil {
		body.AllowedImports = &allowed
	}
	return fetch[CodeScan](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "code", "scan"), body: body})
}

// RunCode runs code to its end. Code that fails is no error: look at Error of the result. When ctx ends
// the code is interrupted. Errors: NotFound, NotRunning, Ended; Unsupported if the sandbox does not
// have the interpreter.
func (c *Sandboxes) RunCode(ctx context.Context, ref, code string, o CodeOptions) (*CodeResult, error) {
	return fetch[CodeResult](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "code"), body: o.body(code)})
}

// RunCodeStream runs code and calls each with its events, but not with pings, until the code ends or each
// returns an error, which RunCodeStream returns. Errors: as for RunCode, and [ErrCut].
func (c *Sandboxes) RunCodeStream(ctx context.Context, ref, code string, o CodeOptions, each func(CodeEvent) error) error {
	resp, err := c.send(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "code", "stream"), body: o.body(code)})
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

// Contexts has the calls for the contexts of a sandbox. Errors of all calls: NotFound, NotRunning, Ended.
type Contexts struct{ *transport }

// Create makes a context. Errors: Invalid, naming the field; Unsupported if the sandbox does not have
// the interpreter; QuotaExceeded beyond 32 contexts.
func (c *Contexts) Create(ctx context.Context, ref string, o ContextOptions) (*Context, error) {
	return fetch[Context](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "contexts"), body: o})
}

// List lists the contexts of a sandbox, oldest first.
func (c *Contexts) List(ref string) *List[Context] {
	return newList[Context](c.transport, sandboxPath(ref, "contexts"), nil)
}

// Delete ends a context.
func (c *Contexts) Delete(ctx context.Context, ref, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: sandboxPath(ref, "contexts", id)}, nil)
}

// Interrupt interrupts the code that runs in a context.
func (c *Contexts) Interrupt(ctx context.Context, ref, id string) error {
	return c.call(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "contexts", id, "interrupt")}, nil)
}

// Restart starts the interpreter of a context again, without its state.
func (c *Contexts) Restart(ctx context.Context, ref, id string) (*Context, error) {
	return fetch[Context](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "contexts", id, "restart")})
}
