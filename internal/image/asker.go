package image

import (
	"context"
	"log/slog"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// asker asks registries about images that the store has: whether a tag has moved, and whether a workspace
// may use an image.
type asker struct {
	names      *names
	index      *index.Table
	registries *remote.Client
	recheck    time.Duration // see Options.RecheckInterval
	log        *slog.Logger
}

// stale is [Store.Stale].
func (a *asker) stale(ref string, who registry.Puller) bool {
	ix, err := a.index.Load()
	if err != nil {
		return false
	}
	return a.names.checkOwner(ix, ref, who) != nil || a.names.private(ix, ref, who) != nil || a.old(ix, ref)
}

// ask asks the registry of a stored image whether the reference means another image now, if it was
// not asked for long or must authorize the workspace.
func (a *asker) ask(ctx context.Context, ref string, who registry.Puller) (moved bool, err error) {
	ix, err := a.index.Load()
	if err != nil {
		return false, err
	}
	if err := a.names.checkOwner(ix, ref, who); err != nil {
		return false, err
	}
	checkCtx, cancel := context.WithTimeout(ctx, remote.AnswerTimeout)
	defer cancel()
	if rec := a.names.private(ix, ref, who); rec != nil {
		moved, known, err := a.askFor(checkCtx, rec, who)
		if known || err != nil {
			return moved, err
		}
	}
	if !a.old(ix, ref) {
		return false, nil
	}
	moved, err = a.moved(checkCtx, ref, who)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("a registry cannot be asked whether a tag has moved", "image", ref, "error", err)
	}
	return moved && err == nil, ctx.Err()
}

// old reports whether the registry was last asked about a tag too long ago.
func (a *asker) old(ix *index.Index, ref string) bool {
	if a.recheck == 0 {
		return false
	}
	parsed, err := reference.Parse(ref, a.names.defaultRegistry)
	if err != nil || parsed.Remote == nil || parsed.Digest != "" {
		return false
	}
	for _, n := range parsed.Names {
		if rec := ix.Current(n); rec != nil {
			return rec.Pull != nil && time.Since(rec.Pull.CheckedAt) > a.recheck
		}
	}
	return false
}

// moved asks the registry whether a tag means another image now, and records the attempt even if it
// fails: not every sandbox should wait for a registry that does not answer.
func (a *asker) moved(ctx context.Context, ref string, who registry.Puller) (bool, error) {
	parsed, err := reference.Parse(ref, a.names.defaultRegistry)
	if err != nil {
		return false, err
	}
	if err := a.noteCheck(ctx, parsed.Remote, nil); err != nil {
		return false, err
	}
	ix, err := a.index.Load()
	if err != nil {
		return false, err
	}
	repo, err := a.registries.Open(ctx, parsed.Remote.Context(), who, remote.Pull)
	if err != nil {
		return false, err
	}
	now, err := repo.Head(ctx, parsed.Remote)
	if err != nil {
		return false, err
	}
	if rec := ix.Pulled(parsed.Remote); rec == nil || rec.Pull.Asked != now {
		return true, nil
	}
	proof := repo.Proof()
	return false, a.noteCheck(ctx, parsed.Remote, &proof)
}

// noteCheck records that a registry is being asked about a reference, or, with a proof, that the
// reference still means the same and which workspace was authorized.
func (a *asker) noteCheck(ctx context.Context, ref ociname.Reference, proof *string) error {
	ix, unlock, err := a.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if rec := ix.Pulled(ref); rec != nil {
		rec.Pull.CheckedAt = time.Now().UTC()
		if proof != nil {
			rec.Pull.Prove(*proof)
		}
		return a.index.Write(ix)
	}
	return nil
}

// askFor checks that a workspace may use a private image. Known is true if the registry has
// authorized it before and need not be asked.
//
// Errors: the errors of [Store.Pull].
func (a *asker) askFor(ctx context.Context, rec *index.Record, who registry.Puller) (moved, known bool, err error) {
	parsed, err := reference.Parse(rec.Pull.Reference, a.names.defaultRegistry)
	if err != nil {
		return false, false, err
	}
	proof, err := a.registries.Proof(ctx, parsed.Remote.Context(), who)
	if err != nil {
		return false, false, err
	}
	at, proven := rec.Pull.Proofs[proof]
	if proven && (a.recheck == 0 || time.Since(at) < a.recheck) {
		return false, false, nil
	}
	moved, err = a.moved(ctx, rec.Pull.Reference, who)
	switch code := sandbox.CodeOf(err); {
	case err == nil:
		return moved, true, nil
	case proven && (code == sandbox.Unavailable || code == sandbox.Timeout || ctx.Err() != nil):
		return false, true, nil // as with other images, the present image is good enough
	default:
		return false, false, err
	}
}
