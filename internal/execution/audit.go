package execution

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

// outputRecorder records the beginnings of outputs in the audit log.
type outputRecorder struct {
	audit   *audit.Log    // nil for none
	streams *stream.Store // nil for none
	log     *slog.Logger
}

// ended records the output of an execution that has ended, if its workspace asks for that. The request that started it
// has its record already. After a crash just then it is recorded again.
func (r outputRecorder) ended(ctx context.Context, x *execution) {
	if r.audit == nil || ctx.Err() != nil {
		return
	}
	e, sb := x.view().Execution, x.box.View().Sandbox
	wanted, err := r.audit.RecordsOutputs(ctx, sb.Workspace)
	if err == nil && wanted {
		ended := audit.Execution{Workspace: sb.Workspace, User: e.CreatedBy, Sandbox: sb.ID, ID: e.ID, Command: e.Argv}
		if x.env != nil {
			ended.Envs = []map[string]string{sb.Env, x.env}
			if ended.Stdout, err = r.beginning(ctx, e.Stdout.ID); err == nil && e.Stderr.ID != e.Stdout.ID {
				ended.Stderr, err = r.beginning(ctx, e.Stderr.ID)
			}
		}
		if err == nil {
			err = r.audit.ExecutionEnded(&ended)
		}
	}
	if err != nil {
		r.log.Error("output of an execution not recorded in the audit log", "execution", e.ID, "error", err)
	}
}

// beginning returns a byte more than the audit log keeps of a stream, or all of a shorter stream.
func (r outputRecorder) beginning(ctx context.Context, id sandbox.StreamID) ([]byte, error) {
	if id == "" || r.streams == nil {
		return nil, nil
	}
	in, _, err := r.streams.Reader(ctx, id, 0, false)
	if sandbox.CodeOf(err) == sandbox.NotFound || os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(io.LimitReader(in, audit.OutputMax+1))
}
