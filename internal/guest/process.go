package guest

import (
	"context"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Processes lists the processes that calls have started in a running sandbox: all that run and the
// last that ended, oldest first.
func (g *Calls) Processes(ctx context.Context, c sandbox.Caller, ref string) ([]agentapi.ProcessInfo, error) {
	b, err := g.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	list, err := b.Agent.Processes(ctx)
	return list, b.Explain(ctx, err)
}

// Attach connects to a process of a running sandbox by the id that its [agentapi.ProcessInfo] has,
// for the output that follows and for further input. ctx bounds the connection; the process goes on
// after it if it was started so. Errors: NotFound if there is no such process.
func (g *Calls) Attach(ctx context.Context, c sandbox.Caller, ref string, p agentapi.ProcessInfo) (*Command, error) {
	b, err := g.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	cmd := &Command{calls: g, box: b, ctx: ctx, command: agentapi.Command{ID: p.ID, Argv: p.Argv, Stdin: true}, handle: b.View().Sandbox.Handle}
	if len(p.Argv) == 0 { // as a hostile agent may list it
		cmd.command.Argv = []string{""}
	}
	if cmd.input, err = NewInput(b.Agent, 0); err != nil {
		return nil, box.AgentError(err)
	}
	cmd.begin()
	saves := b.Saves()
	stream, err := b.Agent.Attach(ctx, p.ID, agentapi.FromEnd)
	if err != nil {
		cmd.release()
		return nil, b.Explain(ctx, err)
	}
	cmd.use(stream, saves)
	return cmd, nil
}
