package lifecycle

import (
	"context"

	"github.com/modbox/modbox/internal/sandbox"
)

// Changed returns a channel that is closed when something happens to the sandbox
// or to one of its executions after the call. A caller that must miss nothing calls it
// before looking. Of a sandbox that has ended it is nil: nothing happens to it
// any more. Errors: NotFound.
func (s *Service) Changed(ctx context.Context, c sandbox.Caller, ref string) (<-chan struct{}, error) {
	b, _, err := s.find(ctx, c, ref)
	if err != nil || b == nil {
		return nil, err
	}
	return b.Changes.Wait(), nil
}
