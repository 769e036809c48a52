package lifecycle

import (
	"context"
	"net"
	"strings"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// use returns the box of a sandbox that runs, for a call into it; a paused one is
// resumed. Every call into a sandbox passes here or through awake. Errors:
// NotFound; NotRunning while it is provisioning; Ended, with the cause; those of Resume.
func (s *Service) use(ctx context.Context, c sandbox.Caller, ref string) (*entry, error) {
	b, sb, err := s.find(ctx, c, ref)
	return s.inUse(ctx, b, &sb, err)
}

// inUse is use for what find answered.
func (s *Service) inUse(ctx context.Context, b *entry, sb *sandbox.Sandbox, err error) (*entry, error) {
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, box.StateError(sb)
	}
	if err := s.awake(ctx, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Exec starts a command in a running sandbox. ctx holds for the command's whole
// life. Whoever reads it up to its exit thereby appends, soon after, the event
// that the command ended.
//
// Errors: as for every call into a sandbox: NotFound, NotRunning, Ended,
// AgentUnreachable, Timeout; further those of agentapi.Client.Exec.
func (s *Service) Exec(ctx context.Context, c sandbox.Caller, ref string, cmd agentapi.Command) (*Command, error) {
	size := 0
	for _, arg := range cmd.Argv {
		size += len(arg)
		if strings.ContainsRune(arg, 0) {
			return nil, sandbox.InvalidField("command", "must not hold NUL characters")
		}
	}
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, sandbox.InvalidField("command", "must name a program")
	}
	if size > sandbox.CommandMax {
		return nil, sandbox.InvalidField("command", "must be at most %d bytes; write longer scripts to a file", sandbox.CommandMax)
	}
	if err := sandbox.CheckEnv(cmd.Env); err != nil {
		return nil, err
	}
	if err := sandbox.CheckPlace(cmd.Cwd, cmd.User); err != nil {
		return nil, err
	}
	b, sb, err := s.find(ctx, c, ref)
	if err == nil {
		err = audit.FromContext(ctx).Command(ctx, cmd.Argv, sb.Env, cmd.Env)
	}
	if b, err = s.inUse(ctx, b, &sb, err); err != nil {
		return nil, err
	}
	sb = b.View().Sandbox
	if cmd.Timeout == 0 {
		cmd.Timeout = sb.Timeouts.Execution
	}
	return s.startCommand(ctx, b, cmd)
}

// Stats measures a running sandbox now. It neither resumes a paused one nor
// counts as activity. Errors: NotFound, NotRunning, Ended.
func (s *Service) Stats(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Stats, error) {
	b, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return sandbox.Stats{}, err
	}
	if b == nil || sb.State != sandbox.Running {
		return sandbox.Stats{}, box.StateError(&sb)
	}
	stats, err := s.driver.Stats(ctx, b.ID)
	return stats, b.Explain(ctx, err)
}

// Dial connects to a TCP port of a running sandbox, whoever asks: it is for the
// proxy, to whom knowing the host label is enough. The agent's port is not
// reached by it. The connection outlives ctx and breaks when the sandbox ends.
//
// One over the sandbox's interface is the fastest, but servers on its loopback
// are reached through the agent alone.
//
// Errors: NotFound, NotRunning, Ended, PortClosed, AgentUnreachable.
func (s *Service) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	if port == driver.AgentPort {
		return nil, sandbox.Errorf(sandbox.PortClosed, "port %d of a sandbox is not for visitors", port)
	}
	b, sb, err := s.findID(ctx, id)
	if b, err = s.inUse(ctx, b, &sb, err); err != nil {
		return nil, err
	}
	p := s.passage(ctx, b)
	if conn, ok := b.Link.Dial(ctx, port); ok {
		return p.hold(conn, false), nil
	}
	for {
		conn, err := s.driver.Dial(ctx, id, port)
		if err == nil {
			return p.hold(conn, true), nil
		}
		if sandbox.CodeOf(err) == sandbox.PortClosed {
			return nil, err
		}
		if err := p.again(err); err != nil {
			return nil, err
		}
	}
}
