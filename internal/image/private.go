package image

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// An image that was had by signing in is here for all workspaces, and must be used
// by those only whom the registry gives it, too. Who has shown that is recorded by
// workspace and credential; it counts until another password is set, and for as
// long as a tag is not asked for again.

// prove records that somebody has just had the image. When that was nobody, it is
// not private.
func (p *pullRecord) prove(proof string) {
	if proof == "" {
		p.Private, p.Proofs = false, nil
		return
	}
	if !p.Private {
		return
	}
	credential, _, _ := strings.Cut(proof, "@")
	for old := range p.Proofs {
		if strings.HasPrefix(old, credential+"@") {
			delete(p.Proofs, old) // with a password of the past
		}
	}
	if p.Proofs == nil {
		p.Proofs = map[string]time.Time{}
	}
	p.Proofs[proof] = time.Now().UTC()
}

// forget makes a workspace one that has never had a private image.
func (p *pullRecord) forget(ws sandbox.WorkspaceID) {
	maps.DeleteFunc(p.Proofs, func(proof string, _ time.Time) bool { return strings.HasPrefix(proof, string(ws)+"/") })
}

// readers returns the workspaces that had or have a private image; nil for others.
func (r *record) readers() []sandbox.WorkspaceID {
	if r.Owner != "" {
		return []sandbox.WorkspaceID{r.Owner}
	}
	if r.Pull == nil || !r.Pull.Private {
		return nil
	}
	list := []sandbox.WorkspaceID{}
	for proof := range r.Pull.Proofs {
		ws, _, _ := strings.Cut(proof, "/")
		list = append(list, sandbox.WorkspaceID(ws))
	}
	return list
}

// private returns the record of an image that not everybody may have, or nil.
func (s *Store) private(ix *index, ref string, who sandbox.Puller) *record {
	if who == (sandbox.Puller{}) {
		return nil
	}
	parsed, err := reference.Parse(s.orDefault(ref), s.defaultRegistry)
	if err != nil {
		return nil
	}
	if parsed.Digest != "" && ix.isOwn(parsed.Digest, who.Workspace) {
		return nil // who built it had what it is made of
	}
	var rec *record
	if parsed.Digest != "" {
		rec = ix.privateOrigin(parsed.Digest, parsed.Names)
	}
	for i := 0; parsed.Digest == "" && rec == nil && i < len(parsed.Names); i++ {
		rec = ix.current(parsed.Names[i])
	}
	if rec == nil || rec.Pull == nil || !rec.Pull.Private {
		return nil
	}
	return rec
}

// privateOrigin returns the private image that a digest names, or that what it
// names was made of by the server itself; nil for none. What has a name of its own
// was published by the operator.
func (ix *index) privateOrigin(digest string, names []string) *record {
	for range ix.Images { // no chain is longer
		for i := range ix.Images {
			r := &ix.Images[i]
			if r.has(digest) && (len(names) == 0 || slices.Contains(names, r.Name)) && r.Pull != nil && r.Pull.Private {
				return r
			}
		}
		rec := ix.byDigest(digest, names...)
		if rec == nil || rec.Name != "" || rec.Commit == nil || rec.Commit.Base == digest {
			return nil
		}
		digest, names = rec.Commit.Base, nil
	}
	return nil
}

// askFor makes sure that somebody may have a private image. Known is false when
// the registry has said so before and need not be asked for that.
//
// Errors: those of [Store.Pull].
func (s *Store) askFor(ctx context.Context, rec *record, who sandbox.Puller) (moved, known bool, err error) {
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
