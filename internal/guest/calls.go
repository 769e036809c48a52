// Package guest calls into running sandboxes: commands, files, connections to ports. A call
// resumes a paused sandbox, counts as activity, and continues when the sandbox is saved in the
// middle of it.
package guest

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// Sandboxes finds the sandboxes that calls go to. [lifecycle.Service] implements it.
type Sandboxes interface {
	// Find returns the sandbox that ref, an id or a name, means to the caller, and its box
	// unless it has ended. Errors: NotFound.
	Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error)
	// FindID is Find by id, in any workspace.
	FindID(ctx context.Context, id sandbox.ID) (*box.Box, sandbox.Sandbox, error)
	// Wake resumes a paused sandbox and returns when it runs. Errors: the errors of a resume.
	Wake(ctx context.Context, b *box.Box) error
	// Note queues an event to be recorded. It waits, until ctx ends, while the queue is full.
	Note(ctx context.Context, ev sandbox.Event)
}

// Calls calls into running sandboxes. It is safe for concurrent use.
//
// The embedded [Files] are the calls on files by absolute path, or by a path relative to the
// sandbox's working directory.
type Calls struct {
	Files

	sandboxes Sandboxes
	driver    driver.Driver
	// answerTimeout is how long the agent of a running sandbox may not answer before a command is given up.
	answerTimeout time.Duration
	scans         *codescan.Service // nil for none
	metrics       commandMetrics
}

// DefaultAnswerTimeout is how long an agent may not answer before a command is given up. The agent
// ends the command's process when that takes longer than agentapi.DetachGrace.
const DefaultAnswerTimeout = agentapi.DetachGrace

// New returns the calls into sandboxes whose boxes d made. An answerTimeout of 0 is DefaultAnswerTimeout.
// scans enforces the policies for code; nil enforces none.
func New(sandboxes Sandboxes, d driver.Driver, answerTimeout time.Duration, scans *codescan.Service) *Calls {
	g := &Calls{sandboxes: sandboxes, driver: d, answerTimeout: cmp.Or(answerTimeout, DefaultAnswerTimeout), scans: scans, metrics: newCommandMetrics()}
	g.Files.calls = g
	return g
}

// Use returns the box of a running sandbox for a call into it. It waits for a sandbox that is
// provisioning, and resumes a paused sandbox, unless the caller may only read: a resume takes
// memory and running time of the workspace. Errors: NotFound; Ended, with the cause; NotRunning; the
// errors of a resume.
func (g *Calls) Use(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, error) {
	b, sb, err := g.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, box.StateError(&sb)
	}
	wake := g.sandboxes.Wake
	if c.ReadOnly {
		wake = refuseResume
	}
	return b, g.awake(ctx, b, wake)
}

// refuseResume stands for a resume when the caller may only read. Errors: NotRunning.
func refuseResume(_ context.Context, b *box.Box) error {
	return sandbox.Errorf(sandbox.NotRunning,
		"sandbox %q is paused, and permission to read sandboxes does not resume it; resume it with a token that may write sandboxes", b.View().Sandbox.Name)
}

// Enter is Use for a sandbox that was found, by a caller that may write; b is nil if the sandbox has
// ended.
func (g *Calls) Enter(ctx context.Context, b *box.Box, sb *sandbox.Sandbox) (*box.Box, error) {
	if b == nil {
		return nil, box.StateError(sb)
	}
	return b, g.awake(ctx, b, g.sandboxes.Wake)
}

// Exec starts a command in a running sandbox. ctx bounds the command's whole life. Soon after the
// caller has read the exit, an event that the command ended is appended. Code in the command is
// scanned first if the policy of the workspace demands it.
//
// Errors of every call into a sandbox: NotFound, Ended, AgentUnreachable, Timeout. Further errors:
// as for agentapi.Client.Exec; CodeBlocked.
func (g *Calls) Exec(ctx context.Context, c sandbox.Caller, ref string, cmd agentapi.Command) (*Command, error) {
	begin := time.Now()
	ctx, span := tracing.Start(ctx, "exec")
	running, err := g.exec(ctx, c, ref, cmd)
	span.End(err)
	g.metrics.started(begin, err)
	return running, err
}

// exec is [Calls.Exec], not measured.
func (g *Calls) exec(ctx context.Context, c sandbox.Caller, ref string, cmd agentapi.Command) (*Command, error) {
	b, err := g.CheckCommand(ctx, c, ref, cmd)
	if err != nil {
		return nil, err
	}
	if cmd.Timeout == 0 {
		cmd.Timeout = b.View().Sandbox.Timeouts.Execution
	}
	return g.startCommand(ctx, b, cmd)
}

// CheckCommand does all that precedes the start of a command: it checks the command, records it, and scans its code. It returns
// the running box of the sandbox. Callers that change something before [Calls.Exec] call it first, and exempt the code
// from another scan. Errors: as for Exec.
func (g *Calls) CheckCommand(ctx context.Context, c sandbox.Caller, ref string, cmd agentapi.Command) (*box.Box, error) {
	if err := sandbox.CheckArgv(cmd.Argv); err != nil {
		return nil, err
	}
	if err := sandbox.CheckEnv(cmd.Env); err != nil {
		return nil, err
	}
	if err := sandbox.CheckPlace(cmd.Cwd, cmd.User); err != nil {
		return nil, err
	}
	b, sb, err := g.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	if err := CheckLimits(cmd.Limits, sb.Resources); err != nil {
		return nil, err
	}
	if err := audit.FromContext(ctx).Command(ctx, cmd.Argv, sb.Env, cmd.Env); err != nil {
		return nil, err
	}
	if b, err = g.Enter(ctx, b, &sb); err != nil {
		return nil, err
	}
	return b, g.Review(ctx, b, codescan.OfCommand(ctx, cmd.Argv))
}

// Stats measures a running sandbox now. It neither resumes a paused sandbox nor
// counts as activity. Errors: NotFound, NotRunning, Ended.
func (g *Calls) Stats(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Stats, error) {
	b, sb, err := g.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Stats{}, err
	}
	if b == nil || sb.State != sandbox.Running {
		return sandbox.Stats{}, box.StateError(&sb)
	}
	stats, err := g.driver.Stats(ctx, b.ID)
	stats.SentBytes, stats.ReceivedBytes = b.Link.Traffic()
	return stats, b.Explain(ctx, err)
}

// Dial connects to a TCP port of a running sandbox, for any caller: the proxy has checked
// access. It refuses the agent's port. The connection outlives ctx and breaks when the sandbox
// ends.
//
// A connection over the sandbox's interface is the fastest, but servers on the sandbox's
// loopback are reached only through the agent.
//
// Errors: NotFound, Ended, PortClosed, AgentUnreachable.
func (g *Calls) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	if port == driver.AgentPort {
		return nil, sandbox.Errorf(sandbox.PortClosed, "port %d of a sandbox is reserved for its agent", port)
	}
	b, sb, err := g.sandboxes.FindID(ctx, id)
	if err != nil {
		return nil, err
	}
	if b, err = g.Enter(ctx, b, &sb); err != nil {
		return nil, err
	}
	p := newCall(ctx, b)
	if conn, ok := b.Link.Dial(ctx, port); ok {
		return p.conn(conn, false), nil
	}
	for {
		conn, err := g.driver.Dial(ctx, id, port)
		if err == nil {
			return p.conn(conn, true), nil
		}
		if sandbox.CodeOf(err) == sandbox.PortClosed {
			return nil, err
		}
		if err := p.again(err); err != nil {
			return nil, err
		}
	}
}

// commandEnded appends the event that a command ended. The event has only the program's name:
// arguments and environment may hold secrets.
func (g *Calls) commandEnded(ctx context.Context, id sandbox.ID, program string, exit agentapi.Exit) {
	data := map[string]string{
		"program":     sandbox.OneLine(program),
		"exit_code":   strconv.Itoa(exit.Code),
		"duration_ms": strconv.FormatInt(exit.Duration.Milliseconds(), 10),
	}
	message := "a command ended"
	if exit.TimedOut {
		message = "a command ran out of time"
		data["timed_out"] = "true"
	}
	if exit.Limit != "" {
		message = "a command exceeded its limit"
		data["limit_exceeded"] = string(exit.Limit)
	}
	g.sandboxes.Note(ctx, sandbox.Event{Sandbox: id, Time: time.Now().UTC(), Type: sandbox.EventExec, Message: message, Data: data})
}
