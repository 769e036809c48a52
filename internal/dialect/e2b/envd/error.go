package envd

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// codes are the codes of Connect for ours; others are unavailable.
var codes = map[sandbox.Code]connect.Code{
	sandbox.Invalid:         connect.CodeInvalidArgument,
	sandbox.Unauthenticated: connect.CodeUnauthenticated,
	sandbox.Forbidden:       connect.CodePermissionDenied,
	sandbox.CodeBlocked:     connect.CodePermissionDenied,
	sandbox.NotFound:        connect.CodeNotFound,
	sandbox.FileNotFound:    connect.CodeNotFound,
	sandbox.ProgramNotFound: connect.CodeInvalidArgument,
	sandbox.Exists:          connect.CodeAlreadyExists,
	sandbox.Conflict:        connect.CodeFailedPrecondition,
	sandbox.TooLarge:        connect.CodeResourceExhausted,
	sandbox.QuotaExceeded:   connect.CodeResourceExhausted,
	sandbox.DiskFull:        connect.CodeResourceExhausted,
	sandbox.Unsupported:     connect.CodeUnimplemented,
	sandbox.Timeout:         connect.CodeDeadlineExceeded,
	sandbox.Internal:        connect.CodeInternal,
}

// describe returns the code and message of an error, and logs an error of ours.
func describe(ctx context.Context, err error) (connect.Code, string) {
	switch {
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return connect.CodeCanceled, "the client is gone"
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return connect.CodeDeadlineExceeded, "the time of the request is over"
	}
	p := edge.Problem(ctx, err)
	code, ok := codes[p.Code]
	if !ok {
		code = connect.CodeUnavailable
	}
	return code, p.Detail
}
