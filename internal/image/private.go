package image

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// An image that was had by signing in is here for all workspaces, and must be used
// by those only whom the registry gives it, too. Who has shown that is recorded by
// workspace and credential; it counts until another password is set, and for as
// long as a tag is not asked for again.

// private returns the record of an image that not everybody may have, or nil.
func (s *Store) private(ix *index.Index, ref string, who registry.Puller) *index.Record {
	if who == (registry.Puller{}) {
		return nil
	}
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
	if err != nil {
		return nil
	}
	if parsed.Digest != "" && ix.IsOwn(parsed.Digest, who.Workspace) {
		return nil // who built it had what it is made of
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

// askFor makes sure that somebody may have a private image. Known is false when
// the registry has said so before and need not be asked for that.
//
// Errors: those of [Store.Pull].
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
		return false, true, nil // as with other images: what is here is good enough
	default:
		return false, false, err
	}
}
