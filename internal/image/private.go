package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// The store has an image that was pulled with credentials once, for all workspaces, but a workspace
// may use it only after the registry has authorized it. The store records the authorizations by
// workspace and credential; an authorization ends when the credential gets another password, or
// when a tag has to be checked again.

// private returns the record of an image that not all workspaces may use, or nil.
func (s *Store) private(ix *index.Index, ref string, who registry.Puller) *index.Record {
	if who == (registry.Puller{}) {
		return nil
	}
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
	if err != nil {
		return nil
	}
	if parsed.Digest != "" && ix.IsOwn(parsed.Digest, who.Workspace) {
		return nil // the builder was authorized for the base image
	}
	var rec *index.Record
	if parsed.Digest != "" {
		rec = ix.PrivateOrigin(parsed.Digest, parsed.Names)
	}
	for i := 0; parsed.Digest == "" && rec == nil && i < len(parsed.Names); i++ {
		rec = ix.Current(parsed.Names[i])
	}
	if rec == nil || rec.Pull == nil || !rec.Pull.Private {
		return nil
	}
	return rec
}

// askFor checks that a workspace may use a private image. Known is true if the registry has
// authorized it before and need not be asked.
//
// Errors: the errors of [Store.Pull].
func (s *Store) askFor(ctx context.Context, rec *index.Record, who registry.Puller) (moved, known bool, err error) {
	parsed, err := reference.Parse(rec.Pull.Reference, s.defaultRegistry)
	if err != nil {
		return false, false, err
	}
	proof, err := s.registries.Proof(ctx, parsed.Remote.Context(), who)
	if err != nil {
		return false, false, err
	}
	at, proven := rec.Pull.Proofs[proof]
	if proven && (s.recheck == 0 || time.Since(at) < s.recheck) {
		return false, false, nil
	}
	moved, err = s.moved(ctx, rec.Pull.Reference, who)
	switch code := sandbox.CodeOf(err); {
	case err == nil:
		return moved, true, nil
	case proven && (code == sandbox.Unavailable || code == sandbox.Timeout || ctx.Err() != nil):
		return false, true, nil // as with other images, the present image is good enough
	default:
		return false, false, err
	}
}
