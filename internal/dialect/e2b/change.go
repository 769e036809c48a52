package e2b

import (
	"net/http"

	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// forked is the result of one child of a fork.
type forked struct {
	Sandbox *opened  `json:"sandbox,omitempty"`
	Error   *Failure `json:"error,omitempty"`
}

func (s *sandboxes) fork(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[struct {
		Timeout *int64 `json:"timeout"`
		Count   *int   `json:"count"`
	}](w, r)
	if err != nil {
		return err
	}
	n, count := int64(defaultTimeoutV1), 1
	if in.Timeout != nil {
		n = *in.Timeout
	}
	if in.Count != nil {
		count = *in.Count
	}
	if count < 1 || count > sandbox.ForkMax {
		return sandbox.InvalidField("count", "must be 1 to %d", sandbox.ForkMax)
	}
	ttl, err := seconds("timeout", n)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	req := lifecycle.ForkRequest{Count: count, TTL: ttl, Timeouts: &sandbox.Timeouts{}, Labels: map[string]string{
		labelTemplate: TemplateOf(&sb), labelTimeout: timeoutLabel(ttl),
	}}
	if req.WaitForQuota, err = edge.WaitForQuota(r); err != nil {
		return err
	}
	results, err := s.svc.Fork(r.Context(), caller(r.Context()), string(sb.ID), req)
	if err != nil {
		return err
	}
	out := make([]forked, len(results))
	for i := range results {
		if out[i], err = s.forked(r, &results[i]); err != nil {
			return err
		}
	}
	return answer(w, http.StatusCreated, out)
}

func (s *sandboxes) forked(r *http.Request, result *lifecycle.ForkResult) (forked, error) {
	if result.Err == nil {
		out, err := s.opened(&result.Sandbox)
		return forked{Sandbox: &out}, err
	}
	p := apierror.New(result.Err, edge.RequestID(r.Context()))
	if p.Code == sandbox.Internal {
		edge.Log(r.Context(), result.Err)
	}
	f := failureOf(p)
	return forked{Error: &f}, nil
}
