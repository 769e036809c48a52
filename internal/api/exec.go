package api

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
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

type execInput struct {
	SandboxRef
	Body wire.Exec
}

func (s *Server) registerExec(a huma.API) {
	route(a, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/exec", Tags: []string{"exec"}, MaxBodyBytes: execBodyMax,
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
	r, err := command.Run(ctx, s.commands(ctx, in.Ref, in.Body.Shell != ""), cmd, stdinOf(in.Body), limit)
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
	cmd := agentapi.Command{Cwd: e.Cwd, User: e.User, Env: e.Env}
	var err error
	if cmd.Timeout, err = timeout(ctx, s, ref, seconds(e.TimeoutSeconds)); err != nil {
		return cmd, err
	}
	cmd.Argv, err = argvOf(e.Command, e.Shell)
	return cmd, err
}

// timeout returns the timeout of a command or code in a sandbox; requested is 0 if the request has none.
func timeout(ctx context.Context, s *Server, ref string, requested time.Duration) (time.Duration, error) {
	if requested == 0 {
		sb, err := s.svc.Get(ctx, caller(ctx), ref)
		return cmp.Or(min(sb.Timeouts.Execution, s.cfg.ExecTimeoutMax), s.cfg.ExecTimeout), err
	}
	if requested > s.cfg.ExecTimeoutMax {
		return 0, sandbox.InvalidField("timeout_seconds", "must be at most %d", int(s.cfg.ExecTimeoutMax/time.Second))
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
		return nil, sandbox.InvalidField("command", "give command (program and arguments) or shell (a script)")
	}
	return argv, sandbox.CheckArgv(argv)
}

// commands runs commands of the caller in the sandbox of ref.
func (s *Server) commands(ctx context.Context, ref string, shell bool) command.Sandbox {
	c := caller(ctx)
	return command.Sandbox{
		Shell: shell,
		Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
			return s.guest.Exec(ctx, c, ref, cmd)
		},
	}
}
