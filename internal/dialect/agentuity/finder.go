package agentuity

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// finder finds the sandboxes that a request means, with their executions.
type finder struct {
	svc        *lifecycle.Service
	executions *execution.Service
}

// found returns the sandbox in the request's path, unless it was deleted.
func (h *finder) found(r *http.Request) (sandbox.Sandbox, error) {
	sb, err := h.any(r)
	if err == nil && deleted(&sb) {
		return sandbox.Sandbox{}, noSandbox()
	}
	return sb, err
}

// any is like found, and also returns deleted sandboxes.
func (h *finder) any(r *http.Request) (sandbox.Sandbox, error) {
	id, ok := internal[sandbox.ID](prefixSandbox, r.PathValue("id"))
	if !ok {
		return sandbox.Sandbox{}, noSandbox()
	}
	sb, err := h.svc.Get(r.Context(), caller(r.Context()), string(id))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Sandbox{}, noSandbox()
	}
	return sb, err
}

// usable is like found, for calls into a sandbox: it waits for a sandbox that is being created.
func (h *finder) usable(r *http.Request) (sandbox.Sandbox, error) {
	sb, err := h.found(r)
	if err != nil || sb.State != sandbox.Provisioning {
		return sb, err
	}
	return h.started(r.Context(), &sb)
}

// started waits until a sandbox runs.
func (h *finder) started(ctx context.Context, sb *sandbox.Sandbox) (sandbox.Sandbox, error) {
	return h.svc.Wait(ctx, caller(ctx), string(sb.ID), sandbox.Running, maxWait)
}
