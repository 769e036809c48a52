package audit

import (
	"context"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/sandbox"
)

// Operate runs do and records it as an operation of actor that came without an HTTP request, from
// remote, an address with a port, and by the client's program. The context of do carries the entry;
// do stores the intent of what it changes, as handlers of HTTP requests do. The end of ctx counts
// as the client going away.
//
// Errors: do's, and Unavailable when nothing can be recorded; do is not run then.
func (l *Log) Operate(ctx context.Context, op *Operation, actor Actor, remote, program string, do func(context.Context) error) error {
	if err := l.ready(op.Action); err != nil {
		return err
	}
	e := l.entry(op, uuid.Must(uuid.NewV7()).String(), remote, program)
	e.By(actor)
	l.enter(e)
	finished := false
	defer func() {
		defer l.leave(e)
		if !finished { // a panic
			e.Fail(sandbox.Internal)
		}
		if err := e.end(ctx, 0); err != nil {
			l.logger.ErrorContext(ctx, "audit record not written in time", "error", err)
		}
	}()
	err := do(WithEntry(ctx, e))
	e.Fail(sandbox.CodeOf(err))
	finished = true
	return err
}
