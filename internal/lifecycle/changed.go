package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// Changed returns a channel that is closed at the next change of the sandbox or of its executions.
// A caller that must not miss a change calls Changed before it reads the state. The channel is nil
// for a sandbox that has ended, which does not change any more. Errors: NotFound.
func (s *Service) Changed(ctx context.Context, c sandbox.Caller, ref string) (<-chan struct{}, error) {
	b, _, err := s.find(ctx, c, ref)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Changes.Wait(), nil
}
