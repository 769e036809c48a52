package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// Create records a sandbox and returns it at once in state provisioning; provisioning continues in
// the background after the end of ctx. With created false it returns the sandbox of an earlier
// equal request, or of the same idempotency key. With Replace, the transaction that records the new
// sandbox also ends the live sandbox of the same name, whose share of the quota the new sandbox may
// use. Create returns after the old sandbox, and any other sandbox of the name that is being
// destroyed, has ended completely; if ctx ends first, at once.
//
// Errors: Invalid, naming the field; Exists if a different request created the live sandbox of that
// name; Conflict if a different request used the idempotency key; QuotaExceeded; Unsupported for a
// capability that this server lacks; Unavailable; the context's error.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, req CreateRequest) (sb sandbox.Sandbox, created bool, err error) {
	defer func() {
		if err == nil {
			audit.FromContext(ctx).Made("sandbox", string(sb.ID), sb.Name)
		}
	}()
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	creation, kind, err := s.planner.Plan(ctx, c, &req)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	b, rec, err := s.registrar.recordIn(ctx, c, creation, &req, kind)
	switch old := rec.Sandbox; {
	case err != nil:
		return sandbox.Sandbox{}, false, err
	case rec.By == sandbox.MatchNone:
		s.pool.Created(c.Workspace, kind)
		s.templates.Created(c.Workspace, kind)
		s.metrics.FromPool(b.warm != nil, 1)
		if req.Command != nil {
			if err := s.executions.StartFirst(ctx, c, b.Box, req.Command, req.OneShot); err != nil {
				return sandbox.Sandbox{}, false, err
			}
		}
		_, b.made = tracing.Start(ctx, "create")
		b.made.Set("modbox.sandbox", string(b.ID))
		sb = s.provisioner.launch(b, s.provisioner.makeRunning)
		s.ender.awaitEnd(ctx, rec.Dying)
		return sb, true, nil
	case rec.By == sandbox.MatchKey && rec.RequestHash == creation.RequestHash:
		return old, false, nil
	case rec.By == sandbox.MatchKey:
		return sandbox.Sandbox{}, false, sandbox.Errorf(sandbox.Conflict,
			"this idempotency key was used for another request, which made sandbox %q (%s)", old.Name, old.ID)
	case rec.RequestHash == creation.RequestHash:
		return old, false, nil
	default:
		return sandbox.Sandbox{}, false, sandbox.Errorf(sandbox.Exists,
			"sandbox %q (%s) is %s and was made by a different request; destroy it first, or ask to replace it", old.Name, old.ID, old.State)
	}
}
