package guest

import (
	"context"
	"io"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

// Review scans code that is about to run in a box, if the policy of its workspace demands it. An error
// means that the code must not run. Errors: as for [codescan.Service.Review].
func (g *Calls) Review(ctx context.Context, b *box.Box, codes []codescan.Code) error {
	return g.scans.Review(ctx, b.View().Sandbox.Workspace, codes, scannerOf(b))
}

// Review is [Calls.Review] for code that the dialogue is about to run.
func (d *Dialogue) Review(ctx context.Context, codes []codescan.Code) error {
	b := d.call.box
	return d.calls.scans.Review(ctx, b.View().Sandbox.Workspace, codes, scannerOf(b))
}

// Scan scans code in a running sandbox, for a caller that asks for the findings. Errors: as for
// [Calls.Use] and [codescan.Scan].
func (g *Calls) Scan(ctx context.Context, c sandbox.Caller, ref, language, code string, allowed *[]string) (codescan.Result, error) {
	b, err := g.Use(ctx, c, ref)
	if err != nil {
		return codescan.Result{}, err
	}
	return codescan.Scan(ctx, scannerOf(b), language, code, allowed)
}

// scannerOf returns the runner of scanners in a box. A scanner that a save of the box interrupts is started again.
func scannerOf(b *box.Box) codescan.Run {
	return func(ctx context.Context, cmd agentapi.Command, stdin string, most int) (codescan.Output, error) {
		reserved := int64(len(stdin) + 2*most)
		if err := b.Agent.Reserve(reserved, true); err != nil {
			return codescan.Output{}, box.AgentError(err)
		}
		defer b.Agent.Release(reserved)
		defer b.Activity.Begin()()
		call := newCall(audit.WithEntry(ctx, nil), b)
		for {
			out, err := runScanner(ctx, b, cmd, stdin, most)
			if err == nil {
				return out, nil
			}
			if err := call.again(err); err != nil {
				return out, err
			}
		}
	}
}

// runScanner runs a command once. When ctx ends, the agent ends the command soon after.
func runScanner(ctx context.Context, b *box.Box, cmd agentapi.Command, stdin string, most int) (codescan.Output, error) {
	var out codescan.Output
	stream, err := b.Agent.Exec(ctx, cmd)
	if err != nil {
		return out, err
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if _, err := io.WriteString(stream, stdin); err == nil { // otherwise the command has ended
			_ = stream.CloseStdin()
		}
	}()
	defer func() {
		_ = stream.Close() // ends the writer; nothing is lost
		<-fed
	}()
	keep := func(kept, data []byte) []byte {
		space := most - len(kept)
		out.Truncated = out.Truncated || len(data) > space
		return append(kept, data[:min(len(data), space)]...)
	}
	for {
		f, err := stream.Next()
		switch {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return out, err
		case f.Type == agentapi.FrameStdout:
			out.Stdout = keep(out.Stdout, f.Data)
		case f.Type == agentapi.FrameStderr:
			out.Stderr = keep(out.Stderr, f.Data)
		case f.Type == agentapi.FrameExit:
			out.Exit = *f.Exit
		}
		if out.Truncated {
			return out, nil // it would print without end
		}
	}
}
