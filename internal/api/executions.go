package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

type startExecutionInput struct {
	SandboxRef
	Body wire.StartExecution
}

type listExecutionsInput struct {
	SandboxRef
	Kind string `query:"kind" enum:"exec,job,main" doc:"List only executions of this kind."`
	PageInput
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

type updateEnvInput struct {
	SandboxRef
	Body wire.UpdateEnv
}

func (s *Server) registerExecutions(a huma.API) {
	tags := []string{"executions"}
	route(a, huma.Operation{
		OperationID: "start-execution", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/executions", Tags: tags,
		DefaultStatus: http.StatusCreated, MaxBodyBytes: filesBodyMax,
		Summary:     "Start a command that outlives the request",
		Description: "The command outlives the request, the client and a restart of the server; streams store its output. If the command could not be started, the execution has failed. The server retains executions and their streams for 24 hours after their end, also when the sandbox has ended.",
	}, s.startExecution)
	route(a, huma.Operation{
		OperationID: "list-executions", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/executions", Tags: tags,
		Summary: "List a sandbox's executions", Description: "Newest first, also after the sandbox's end.",
	}, s.listExecutions)
	route(a, huma.Operation{
		OperationID: "get-execution", Method: http.MethodGet, Path: "/v1/executions/{execution}", Tags: tags,
		Summary: "Get an execution, or wait for its end", Description: "A wait for an execution of a paused sandbox fails at once with 409, `not_running`; after a resume the execution continues and can be waited for again.",
	}, s.getExecution)
	route(a, huma.Operation{
		OperationID: "cancel-execution", Method: http.MethodPost, Path: "/v1/executions/{execution}/cancel", Tags: tags,
		Summary: "End an execution", Description: "All its processes get SIGTERM, and SIGKILL 5 seconds later. Answers at once; wait for its end by GET. One that has ended stays as it is. In a paused sandbox it ends when that is resumed.",
	}, s.cancelExecution)
	route(a, huma.Operation{
		OperationID: "create-stream", Method: http.MethodPost, Path: "/v1/streams", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make an input stream", Description: "For the standard input of a command that is to come. It can be written to at once.",
	}, s.createStream)
	route(a, huma.Operation{
		OperationID: "update-env", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}/env", Tags: tags,
		Summary: "Set and delete environment variables", Description: "For the commands that start afterwards. The body is an object of names and values; null deletes. Answers all variables that callers have set: this is the only call that shows their values.",
	}, s.updateEnv)
}

func (s *Server) startExecution(ctx context.Context, in *startExecutionInput) (*body[wire.Execution], error) {
	req := executionRequest(&in.Body.ExecutionCommand)
	e, err := s.executions.Start(ctx, caller(ctx), in.Ref, *req)
	if err == nil && in.Body.WaitSeconds > 0 {
		e, err = s.executions.Wait(ctx, caller(ctx), e.ID, seconds(in.Body.WaitSeconds))
	}
	if err != nil {
		return nil, err
	}
	return reply(executionOf(&e)), nil
}

// executionRequest translates what a caller wants to run; nil for nothing.
func executionRequest(c *wire.ExecutionCommand) *execution.Request {
	if c == nil {
		return nil
	}
	req := &execution.Request{
		Kind: sandbox.ExecutionKind(c.Kind), Argv: c.Command, Script: c.Shell, Env: c.Env, Cwd: c.Cwd, User: c.User,
		Timeout: seconds(c.TimeoutSeconds), Stdin: c.Stdin, StdinStream: sandbox.StreamID(c.StdinStreamID),
		Combined: c.Combined, StdoutOff: c.Stdout == "ignore", StderrOff: c.Stderr == "ignore",
	}
	if c.TTY != nil {
		req.TTY = &agentapi.Size{Rows: c.TTY.Rows, Cols: c.TTY.Cols}
	}
	for _, f := range c.Files {
		req.Files = append(req.Files, execution.File{Path: f.Path, Content: f.Content})
	}
	return req
}

func executionOf(e *sandbox.Execution) wire.Execution {
	return wire.Execution{
		ID: string(e.ID), SandboxID: string(e.Sandbox), Kind: string(e.Kind), Command: e.Argv, State: wire.ExecutionState(e.State),
		ExitCode: e.ExitCode, Error: e.Error, TTY: e.TTY, OneShot: e.OneShot, Cancelling: e.Cancel != "" && !e.State.Ended(),
		StdinStreamID: string(e.Stdin), Stdout: outputOf(e.Stdout), Stderr: outputOf(e.Stderr),
		CreatedBy: string(e.CreatedBy), CreatedAt: e.CreatedAt, StartedAt: optional(e.StartedAt), EndedAt: optional(e.EndedAt),
		DurationMS: e.Duration.Milliseconds(),
	}
}

func outputOf(ref sandbox.StreamRef) wire.OutputStream {
	if ref.Off {
		return wire.OutputStream{}
	}
	return wire.OutputStream{StreamID: string(ref.ID), SizeBytes: ref.Bytes, Truncated: ref.Truncated}
}

func (s *Server) listExecutions(ctx context.Context, in *listExecutionsInput) (*body[wire.Page[wire.Execution]], error) {
	list, err := s.executions.List(ctx, caller(ctx), in.Ref, sandbox.ExecutionKind(in.Kind), in.request())
	return paged(list, err, func(e sandbox.Execution) wire.Execution { return executionOf(&e) })
}

func (s *Server) getExecution(ctx context.Context, in *getExecutionInput) (*body[wire.Execution], error) {
	e, err := s.executions.Wait(ctx, caller(ctx), sandbox.ExecutionID(in.ID), seconds(in.WaitSeconds))
	if err != nil {
		return nil, err
	}
	return reply(executionOf(&e)), nil
}

func (s *Server) cancelExecution(ctx context.Context, in *cancelExecutionInput) (*body[wire.Execution], error) {
	force := in.Body != nil && in.Body.Force
	e, err := s.executions.Cancel(ctx, caller(ctx), sandbox.ExecutionID(in.ID), force)
	if err != nil {
		return nil, err
	}
	return reply(executionOf(&e)), nil
}

func (s *Server) createStream(ctx context.Context, _ *struct{}) (*body[wire.Stream], error) {
	id, err := s.executions.CreateStream(ctx, caller(ctx))
	if err != nil {
		return nil, err
	}
	return reply(wire.Stream{ID: string(id)}), nil
}

func (s *Server) updateEnv(ctx context.Context, in *updateEnvInput) (*body[wire.Env], error) {
	env, err := s.svc.Environments().Update(ctx, caller(ctx), in.Ref, in.Body)
	if err != nil {
		return nil, err
	}
	return reply(wire.Env{Env: env}), nil
}
