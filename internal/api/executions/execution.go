package executions

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// Executions are the routes of commands that outlive their request.
type Executions struct {
	Service   *execution.Service
	Sandboxes Sandboxes
	// Ping is the longest silence of a connection to an execution.
	Ping time.Duration
}

type startExecutionInput struct {
	route.SandboxRef
	Body wire.StartExecution
}

type listExecutionsInput struct {
	route.SandboxRef
	Kind string `query:"kind" enum:"exec,job,main" doc:"List only executions of this kind."`
	route.PageInput
}

// ExecutionRef is the path parameter that names an execution.
type ExecutionRef struct {
	ID string `path:"execution" format:"uuid" doc:"The execution."`
}

type getExecutionInput struct {
	ExecutionRef
	WaitSeconds int `query:"wait_seconds" minimum:"0" maximum:"600" doc:"Answer when it has ended, but after this many seconds at the latest."`
}

type cancelExecutionInput struct {
	ExecutionRef
	Body *wire.CancelExecution `required:"false"`
}

// Register adds the routes.
func (h *Executions) Register(m *route.Mux) {
	tags := []string{"executions"}
	route.JSON(m, huma.Operation{
		OperationID: "start-execution", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/executions", Tags: tags,
		DefaultStatus: http.StatusCreated, MaxBodyBytes: route.FilesBodyMax,
		Summary:     "Start a command that outlives the request",
		Description: "The command outlives the request, the client and a restart of the server; streams store its output. If the command could not be started, the execution has failed. The server retains executions and their streams for 24 hours after their end, also when the sandbox has ended.",
	}, h.startExecution)
	route.JSON(m, huma.Operation{
		OperationID: "list-executions", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/executions", Tags: tags,
		Summary: "List a sandbox's executions", Description: "Newest first, also after the sandbox's end.",
	}, h.listExecutions)
	route.JSON(m, huma.Operation{
		OperationID: "get-execution", Method: http.MethodGet, Path: "/v1/executions/{execution}", Tags: tags,
		Summary: "Get an execution, or wait for its end", Description: "A wait for an execution of a paused sandbox fails at once with 409, `not_running`; after a resume the execution continues and can be waited for again.",
	}, h.getExecution)
	route.JSON(m, huma.Operation{
		OperationID: "cancel-execution", Method: http.MethodPost, Path: "/v1/executions/{execution}/cancel", Tags: tags,
		Summary: "End an execution", Description: "All its processes get SIGTERM, and SIGKILL 5 seconds later. Answers at once; wait for its end by GET. One that has ended stays as it is. In a paused sandbox it ends when that is resumed.",
	}, h.cancelExecution)
	m.Raw(huma.Operation{
		OperationID: "attach-execution", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/executions/{execution}/attach", Tags: []string{"executions"},
		Summary:     "Attach to an execution over a WebSocket",
		Description: "The messages are the messages of exec/attach, without the client's first message. The execution goes on when the client disconnects, and any number of clients may be attached.",
		Parameters: []*huma.Param{
			route.SandboxParam(),
			{Name: "execution", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The execution."},
			route.Query("offset", "The byte of stdout to begin at; 0 when omitted.", false),
		},
		Responses: map[string]*huma.Response{"101": {Description: "The WebSocket"}},
	}, h.attachExecution)
}

func (h *Executions) startExecution(ctx context.Context, in *startExecutionInput) (*route.Body[wire.Execution], error) {
	req, err := Request(&in.Body.ExecutionCommand)
	if err != nil {
		return nil, err
	}
	ctx, report := codescan.Collect(ctx)
	e, err := h.Service.Start(ctx, route.Caller(ctx), in.Ref, *req)
	if err == nil && in.Body.WaitSeconds > 0 {
		e, err = h.Service.Wait(ctx, route.Caller(ctx), e.ID, route.Seconds(in.Body.WaitSeconds))
	}
	if err != nil {
		return nil, err
	}
	shown := executionOf(&e)
	shown.Scan = scans.Shown(report)
	return route.Reply(shown), nil
}

// Request translates what a caller wants to run; nil for nothing.
func Request(c *wire.ExecutionCommand) (*execution.Request, error) {
	if c == nil {
		return nil, nil
	}
	limits, err := command.Limits(c.Limits)
	if err != nil {
		return nil, err
	}
	req := &execution.Request{
		Kind: sandbox.ExecutionKind(c.Kind), Argv: c.Command, Script: c.Shell, Env: c.Env, Cwd: c.Cwd, User: c.User,
		Timeout: route.Seconds(c.TimeoutSeconds), Limits: limits, Stdin: c.Stdin, StdinStream: sandbox.StreamID(c.StdinStreamID),
		Combined: c.Combined, StdoutOff: c.Stdout == "ignore", StderrOff: c.Stderr == "ignore",
	}
	if c.TTY != nil {
		req.TTY = &agentapi.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	for _, f := range c.Files {
		req.Files = append(req.Files, execution.File{Path: f.Path, Content: f.Content})
	}
	return req, nil
}

func executionOf(e *sandbox.Execution) wire.Execution {
	return wire.Execution{
		ID: string(e.ID), SandboxID: string(e.Sandbox), Kind: string(e.Kind), Command: e.Argv, State: wire.ExecutionState(e.State),
		ExitCode: e.ExitCode, LimitExceeded: e.LimitExceeded, Error: e.Error, TTY: e.TTY, OneShot: e.OneShot, Cancelling: e.Cancel != "" && !e.State.Ended(),
		StdinStreamID: string(e.Stdin), Stdout: outputOf(e.Stdout), Stderr: outputOf(e.Stderr),
		CreatedBy: string(e.CreatedBy), CreatedAt: e.CreatedAt, StartedAt: route.Optional(e.StartedAt), EndedAt: route.Optional(e.EndedAt),
		DurationMS: e.Duration.Milliseconds(),
	}
}

func outputOf(ref sandbox.StreamRef) wire.OutputStream {
	if ref.Off {
		return wire.OutputStream{}
	}
	return wire.OutputStream{StreamID: string(ref.ID), SizeBytes: ref.Bytes, Truncated: ref.Truncated}
}

func (h *Executions) listExecutions(ctx context.Context, in *listExecutionsInput) (*route.Body[wire.Page[wire.Execution]], error) {
	list, err := h.Service.List(ctx, route.Caller(ctx), in.Ref, sandbox.ExecutionKind(in.Kind), in.Request())
	return route.Paged(list, err, func(e sandbox.Execution) wire.Execution { return executionOf(&e) })
}

func (h *Executions) getExecution(ctx context.Context, in *getExecutionInput) (*route.Body[wire.Execution], error) {
	e, err := h.Service.Wait(ctx, route.Caller(ctx), sandbox.ExecutionID(in.ID), route.Seconds(in.WaitSeconds))
	if err != nil {
		return nil, err
	}
	return route.Reply(executionOf(&e)), nil
}

func (h *Executions) cancelExecution(ctx context.Context, in *cancelExecutionInput) (*route.Body[wire.Execution], error) {
	force := in.Body != nil && in.Body.Force
	e, err := h.Service.Cancel(ctx, route.Caller(ctx), sandbox.ExecutionID(in.ID), force)
	if err != nil {
		return nil, err
	}
	return route.Reply(executionOf(&e)), nil
}
