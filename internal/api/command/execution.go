// Package command runs one command in a sandbox for one request: the command
// lives no longer than the request, its output is bounded, and how it ended is
// either known or an error, never made up.
package command

import (
	"context"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// slack is the time after a command's timeout in which the agent should report its end.
	slack = 10 * time.Second
	// killTime bounds telling the agent to kill a command nobody waits for.
	killTime = 5 * time.Second
	// defaultGrace is the agent's time between SIGTERM and SIGKILL.
	defaultGrace = 2 * time.Second
)

// Sandbox is where commands run.
type Sandbox struct {
	// Exec starts a command; the context holds for the command's whole life.
	Exec func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error)
	// Shell runs what [Script] and [Shell] made by /bin/sh in an image without bash.
	Shell bool
}

const bash, sh = "/bin/bash", "/bin/sh"

// Script returns the command that runs a script; see Sandbox.Shell.
func Script(script string) []string { return []string{bash, "-c", script} }

// Shell returns the command that is an interactive shell; see Sandbox.Shell.
func Shell() []string { return []string{bash} }

// exec starts the command, by the other shell when there is only that.
func (in Sandbox) exec(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
	running, err := in.Exec(ctx, cmd)
	if in.Shell && sandbox.CodeOf(err) == sandbox.ProgramNotFound && cmd.Argv[0] == bash {
		cmd.Argv = append([]string{sh}, cmd.Argv[1:]...)
		return in.Exec(codescan.Exempt(ctx), cmd) // its code was scanned before
	}
	return running, err
}

// Session is a running command that is killed when its request ends. Next and
// Close are for one goroutine; all other methods may be called at any time.
type Session struct {
	*guest.Command
	request context.Context // the caller's, with the command's own time limit
	release []func()
	exited  bool
}

// Start starts the command. It kills the command when ctx ends, and when the agent has not reported
// its end some seconds after cmd.Timeout. Errors are the errors of in.Exec; the caller closes the
// session.
func Start(ctx context.Context, in Sandbox, cmd agentapi.Command) (*Session, error) {
	s := &Session{request: ctx}
	if cmd.Timeout > 0 {
		grace := cmd.Grace
		if grace == 0 {
			grace = defaultGrace
		}
		var cancel context.CancelFunc
		s.request, cancel = context.WithTimeoutCause(ctx, cmd.Timeout+grace+slack,
			sandbox.Errorf(sandbox.AgentUnreachable, "the sandbox's agent did not report the end of the command in time"))
		s.release = append(s.release, cancel)
	}
	// The stream must outlive the request by the moment it takes to kill the command.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.release = append(s.release, cancel)
	// Nor is its start given up at once: a command that has started unseen would
	// live on. It is killed as soon as it is known.
	stop := context.AfterFunc(s.request, func() { time.AfterFunc(killTime, cancel) })
	running, err := in.exec(streamCtx, cmd)
	stop()
	if err != nil {
		s.cleanup()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	s.Command = running
	killed := make(chan struct{})
	unwatch := context.AfterFunc(s.request, func() {
		defer close(killed)
		s.kill()
		cancel()
	})
	s.release = append(s.release, func() {
		if !unwatch() {
			<-killed
		}
	})
	return s, nil
}

// kill ends the command, as far as the agent can be reached.
func (s *Session) kill() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.request), killTime)
	defer cancel()
	_ = s.Command.Signal(ctx, int(syscall.SIGKILL)) // without an agent the command is gone or about to be
	_ = s.Command.Close()
}

// Next returns the next frame, see [guest.Command.Next]. Once the request has ended, it returns
// the reason as its error.
func (s *Session) Next() (agentapi.Frame, error) {
	f, err := s.Command.Next()
	switch {
	case err == nil && f.Type == agentapi.FrameExit && s.request.Err() != nil && f.Exit.Signal == int(syscall.SIGKILL):
		s.exited = true
		return agentapi.Frame{}, context.Cause(s.request) // kill has ended it
	case err == nil:
		s.exited = s.exited || f.Type == agentapi.FrameExit
		return f, nil
	case err == io.EOF:
		return f, err
	case s.request.Err() != nil:
		return f, context.Cause(s.request)
	default:
		return f, err
	}
}

// Close kills the command unless its end was seen, and frees everything.
func (s *Session) Close() {
	if !s.exited && s.request.Err() == nil {
		s.kill()
	}
	_ = s.Command.Close()
	s.cleanup()
}

func (s *Session) cleanup() {
	for i := len(s.release) - 1; i >= 0; i-- {
		s.release[i]()
	}
	s.release = nil
}

// Result is the exit of a command and its output.
type Result struct {
	agentapi.Exit
	Stdout, Stderr                   []byte
	StdoutTruncated, StderrTruncated bool
}

// Run runs a command to its end, feeding it stdin when that is not nil, and
// keeps at most maxOutput bytes of each of its outputs, and no more than there is memory
// for; output beyond it is read and dropped, so the command goes on.
func Run(ctx context.Context, in Sandbox, cmd agentapi.Command, stdin *strings.Reader, maxOutput int) (Result, error) {
	Give(&cmd, stdin)
	s, err := Start(codescan.WithStdin(ctx, stdin), in, cmd)
	if err != nil {
		return Result{}, err
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		s.Feed(stdin)
	}()
	defer func() {
		s.Close()
		<-fed
	}()
	var out, errs kept
	var exit agentapi.Exit
	for {
		f, err := s.Next()
		if err != nil {
			if err == io.EOF {
				return Result{Exit: exit, Stdout: out.data, Stderr: errs.data, StdoutTruncated: out.truncated, StderrTruncated: errs.truncated}, nil
			}
			return Result{}, err
		}
		switch f.Type {
		case agentapi.FrameStdout:
			out.add(f.Data, maxOutput, s.Command.Reserve)
		case agentapi.FrameStderr:
			errs.add(f.Data, maxOutput, s.Command.Reserve)
		case agentapi.FrameExit:
			exit = *f.Exit
		}
	}
}

// Give notes in cmd, which is not started yet, that it will be fed stdin; nil is none.
func Give(cmd *agentapi.Command, stdin *strings.Reader) {
	cmd.Stdin = stdin != nil
	if stdin != nil {
		cmd.StdinReserved = stdin.Size()
	}
}

// Feed sends everything of stdin to the command and closes its stdin. It returns
// when that is done or the command does not read any more; nil sends nothing.
func (s *Session) Feed(stdin *strings.Reader) {
	if stdin == nil {
		return
	}
	// A command that ends without reading its stdin is no error.
	// Only as an io.Reader is it copied piece by piece.
	if _, err := io.Copy(s.Command, struct{ io.Reader }{stdin}); err == nil {
		_ = s.Command.CloseStdin()
	}
}

// freeOutput is the part of an output that is not counted.
const freeOutput = 32 << 10

// kept is the beginning of an output.
type kept struct {
	data      []byte
	truncated bool
}

// add keeps more of the output, up to most bytes and as long as hold lets it grow.
func (k *kept) add(more []byte, most int, reserve func(bytes int) error) {
	if k.truncated {
		return
	}
	if space := most - len(k.data); len(more) > space {
		more, k.truncated = more[:space], true
	}
	if need := len(k.data) + len(more); need > cap(k.data) {
		free := min(most, freeOutput)
		size := free
		if need > free {
			size = min(most, need*2)
		}
		if size > free && reserve(size-cap(k.data)) != nil {
			size = max(free, cap(k.data))
			more, k.truncated = more[:min(len(more), size-len(k.data))], true
		}
		k.data = append(make([]byte, 0, size), k.data...)
	}
	k.data = append(k.data, more...)
}
