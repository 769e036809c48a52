package imagearchive

import (
	"context"

	"github.com/modbox/modbox/internal/image/verify"
)

// Care returns the function that Run calls each minute.
func (s *Service) Care(files verify.Files) func(context.Context) {
	c := carer{s: s, files: files, known: manifests{files: files}}
	return c.care
}
