package image

import (
	"context"
	"fmt"
	"io"

	"github.com/modbox/modbox/internal/image/archive"
)

// Export writes the image that ref names, written as for [Store.Resolve], as a tar of an OCI image
// layout, which other tools and [Store.Import] read. The same image gives the same bytes. Errors:
// Invalid, NotFound, and the errors of w.
func (s *Store) Export(ctx context.Context, ref string, w io.Writer) error {
	ix, err := s.index.Load()
	if err != nil {
		return err
	}
	rec, err := s.names.find(ctx, ix, ref)
	if err != nil {
		return err
	}
	if err := s.verifier.Blobs(ctx, rec); err != nil {
		return err
	}
	entry := archive.Entry{Ref: rec.Manifest}
	if rec.Name != "" {
		entry.Name = rec.Ref()
	}
	if err := s.layout.Export(ctx, entry, w); err != nil {
		return fmt.Errorf("export %s: %w", ref, err)
	}
	return nil
}
