package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/execution"
	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

type execInput struct {
	SandboxRef
	Body wire.Exec
}

func (s *Server) registerExec(a huma.API) {
	route(a, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/sandboxes/{ref}/exec", Tags: []string{"exec"}, MaxBodyBytes: execBodyMax,
		Summary:     "Run a command",
		Description: "Runs a command to its end and answers its exit code and output. A command that fails is a successful request. Nothing is sent until it ends, and much gives up on a connection that is silent for five minutes (fetch in Node among it): run longer commands by exec/stream. When the client goes away the command is killed.",
	}, s.exec)
}

func (s *Server) exec(ctx context.Context, in *execInput) (*body[wire.ExecResult], error) {
	cmd, err := s.command(ctx, in.Ref, in.Body)
	if err != nil {
		return nil, err
	}
	limit := in.Body.MaxOutputBytes
	if limit == 0 {
		limit = s.cfg.ExecOutput
	}
	limit = min(limit, s.cfg.ExecOutputMax)
	r, err := execution.Run(ctx, s.commands(ctx, in.Ref, in.Body.Shell != ""), cmd, stdinOf(in.Body), limit)
	if err != nil {
		return nil, err
	}
	encode := utf8Text
	if in.Body.Encoding == "base64" {
		encode = base64.StdEncoding.EncodeToString
	}
	return reply(wire.ExecResult{
		ExitCode: r.Code, Signal: r.Signal, TimedOut: r.TimedOut,
		Stdout: encode(r.Stdout), Stderr: encode(r.Stderr),
		StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated,
		DurationMS: r.Duration.Milliseconds(),
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
func (s *Server) command(ctx context.Context, ref string, e wire.Exec) (agentapi.Command, error) {
	cmd := agentapi.Command{Cwd: e.Cwd, User: e.User, Env: e.Env, Timeout: seconds(e.TimeoutSeconds)}
	if cmd.Timeout == 0 {
		sb, err := s.svc.Get(ctx, caller(ctx), ref)
		if err != nil {
			return cmd, err
		}
		cmd.Timeout = cmp.Or(min(sb.Timeouts.Execution, s.cfg.ExecTimeoutMax), s.cfg.ExecTimeout)
	}
	if cmd.Timeout > s.cfg.ExecTimeoutMax {
		return cmd, sandbox.InvalidField("timeout_seconds", "must be at most %d", int(s.cfg.ExecTimeoutMax/time.Second))
	}
	argv, err := argvOf(e.Command, e.Shell)
	cmd.Argv = argv
	return cmd, err
}

// argvOf returns what to run for a request's command or shell, of which exactly one is given.
func argvOf(command []string, shell string) ([]string, error) {
	switch {
	case len(command) > 0 && shell != "":
		return nil, sandbox.InvalidField("shell", "give either command or shell, not both")
	case shell != "":
		command = execution.Script(shell)
	case len(command) == 0:
		return nil, sandbox.InvalidField("command", "give command (program and arguments) or shell (a script)")
	case command[0] == "":
		return nil, sandbox.InvalidField("command", "the program must not be empty")
	}
	size := 0
	for _, arg := range command {
		if strings.ContainsRune(arg, 0) {
			return nil, sandbox.InvalidField("command", "must not hold NUL characters")
		}
		size += len(arg) + 1
	}
	if size > sandbox.CommandMax {
		return nil, sandbox.InvalidField("command", "has %d bytes, the maximum is %d; write it to a file or pass it as stdin", size, sandbox.CommandMax)
	}
	return command, nil
}

// commands is where commands of the caller run in the sandbox of ref.
func (s *Server) commands(ctx context.Context, ref string, shell bool) execution.Sandbox {
	c := caller(ctx)
	return execution.Sandbox{
		Shell: shell,
		Exec: func(ctx context.Context, cmd agentapi.Command) (*lifecycle.Command, error) {
			return s.svc.Exec(ctx, c, ref, cmd)
		},
	}
}
