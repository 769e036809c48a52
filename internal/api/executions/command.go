package executions

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// bodyMax bounds the body of a command, which carries stdin.
const bodyMax = 16 << 20

// Sandboxes finds sandboxes.
type Sandboxes interface {
	// Get returns the sandbox that ref names, if the caller may see it. Errors: NotFound.
	Get(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Sandbox, error)
}

// Timeouts are the timeouts of commands, and of code.
type Timeouts struct {
	Sandboxes Sandboxes
	// Default is for requests without a timeout in sandboxes without a timeout; no request may have more than Max.
	Default, Max time.Duration
}

// Commands are the routes of commands that do not outlive their request.
type Commands struct {
	Guest    *guest.Calls
	Timeouts Timeouts
	// Output is the limit of each output in bytes for requests without a limit, and OutputMax
	// the highest limit.
	Output, OutputMax int
	// Ping is the longest silence of a stream.
	Ping time.Duration
}

type execInput struct {
	route.SandboxRef
	Body wire.Exec
}

// Register adds the routes.
func (h *Commands) Register(m *route.Mux) {
	route.JSON(m, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/exec", Tags: []string{"exec"}, MaxBodyBytes: bodyMax,
		Summary:     "Run a command",
		Description: "Runs a command to its end and answers its exit code and output. A command that fails is a successful request. Nothing is sent until it ends, and much gives up on a connection that is silent for five minutes (fetch in Node among it): run longer commands by exec/stream. When the client goes away the command is killed.",
	}, h.exec)
	m.Raw(huma.Operation{
		OperationID: "exec-stream", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/exec/stream", Tags: []string{"exec"},
		Summary:     "Run a command and stream its output",
		Description: "Takes the body of exec. Answers one JSON object a line as things happen: `started`, then `stdout` and `stderr` with data in base64, at last `exit`; or `error` when how the command ended is not known. After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. When the client goes away the command is killed.",
		Parameters:  []*huma.Param{route.SandboxParam()},
		RequestBody: &huma.RequestBody{Required: true, Content: route.JSONContent[wire.Exec](m)},
		Responses:   map[string]*huma.Response{"200": {Description: "The stream", Content: route.LinesContent[wire.StreamMessage](m)}},
	}, h.streamExec)
	m.Raw(huma.Operation{
		OperationID: "exec-attach", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/exec/attach", Tags: []string{"exec"},
		Summary:     "Run a command over a WebSocket",
		Description: attachDescription,
		Parameters:  []*huma.Param{route.SandboxParam()},
		Responses:   map[string]*huma.Response{"101": {Description: "The WebSocket"}},
	}, h.attach)
}

func (h *Commands) exec(ctx context.Context, in *execInput) (*route.Body[wire.ExecResult], error) {
	cmd, err := h.command(ctx, in.Ref, in.Body)
	if err != nil {
		return nil, err
	}
	limit := in.Body.MaxOutputBytes
	if limit == 0 {
		limit = h.Output
	}
	limit = min(limit, h.OutputMax)
	ctx, report := codescan.Collect(ctx)
	if ctx, err = h.prepare(ctx, in.Ref, &in.Body, cmd); err != nil {
		return nil, err
	}
	r, err := command.Run(ctx, h.commands(ctx, in.Ref, in.Body.Shell != ""), cmd, stdinOf(in.Body), limit)
	if err != nil {
		return nil, err
	}
	encode := utf8Text
	if in.Body.Encoding == "base64" {
		encode = base64.StdEncoding.EncodeToString
	}
	return route.Reply(wire.ExecResult{
		ExitCode: r.Code, Signal: r.Signal, TimedOut: r.TimedOut, LimitExceeded: string(r.Limit),
		Stdout: encode(r.Stdout), Stderr: encode(r.Stderr),
		StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated,
		DurationMS: r.Duration.Milliseconds(), Scan: scans.Shown(report),
	}), nil
}

func utf8Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// stdinOf returns nil when the request carries no stdin.
func stdinOf(e wire.Exec) *strings.Reader {
	if e.Stdin == "" {
		return nil
	}
	return strings.NewReader(e.Stdin)
}

// command translates a request; its timeout is always set.
func (h *Commands) command(ctx context.Context, ref string, e wire.Exec) (agentapi.Command, error) {
	cmd := agentapi.Command{Cwd: e.Cwd, User: e.User, Env: e.Env}
	var err error
	if cmd.Timeout, err = h.Timeouts.Of(ctx, ref, route.Seconds(e.TimeoutSeconds)); err != nil {
		return cmd, err
	}
	if cmd.Limits, err = command.Limits(e.Limits); err != nil {
		return cmd, err
	}
	if e.Program != nil {
		cmd.Argv, err = programArgv(&e)
		return cmd, err
	}
	cmd.Argv, err = argvOf(e.Command, e.Shell)
	return cmd, err
}

// Of returns the timeout of a command or code in a sandbox; requested is 0 if the request has none.
func (t Timeouts) Of(ctx context.Context, ref string, requested time.Duration) (time.Duration, error) {
	if requested == 0 {
		sb, err := t.Sandboxes.Get(ctx, route.Caller(ctx), ref)
		return cmp.Or(min(sb.Timeouts.Execution, t.Max), t.Default), err
	}
	if requested > t.Max {
		return 0, sandbox.InvalidField("timeout_seconds", "must be at most %d", int(t.Max/time.Second))
	}
	return requested, nil
}

// argvOf returns the program and arguments for a request's command or shell. Exactly one is given.
func argvOf(argv []string, shell string) ([]string, error) {
	switch {
	case len(argv) > 0 && shell != "":
		return nil, sandbox.InvalidField("shell", "give either command or shell, not both")
	case shell != "":
		return command.Script(shell), sandbox.CheckScript(shell)
	case len(argv) == 0:
		return nil, sandbox.InvalidField("command", "give command (program and arguments), shell (a script) or program")
	}
	return argv, sandbox.CheckArgv(argv)
}

// commands runs commands of the caller in the sandbox of ref.
func (h *Commands) commands(ctx context.Context, ref string, shell bool) command.Sandbox {
	c := route.Caller(ctx)
	return command.Sandbox{
		Shell: shell,
		Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
			return h.Guest.Exec(ctx, c, ref, cmd)
		},
	}
}
