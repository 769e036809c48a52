package image

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// Only the workspace that built an image can see and use it, and the names are the workspace's own,
// so that two workspaces may each have an app:latest. The root filesystem carries a mark of owner
// and configuration, so that its digest identifies this image and no other image with the same
// files.

// ForgetBuilt removes the names of all images that a workspace has built, its cached layers, and
// the images that only its credentials gave access to: the workspace is being deleted. Idempotent.
func (s *Store) ForgetBuilt(ctx context.Context, owner sandbox.WorkspaceID) error {
	ix, unlock, err := s.index.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	changed, lower := false, ix.Below(nil)
	for i := range ix.Images {
		rec := &ix.Images[i]
		if rec.Owner == "" && slices.Contains(rec.Readers(), owner) {
			changed = true
			rec.Pull.Forget(owner)
			rec.Current = rec.Current && len(rec.Pull.Proofs) > 0
		}
		if !rec.CountsFor(owner) || !rec.Current && rec.CacheKey == "" {
			continue
		}
		changed = true
		if rec.Owner == owner && rec.CacheKey != "" { // with its key, without which it might be taken for lost
			rec.FileTime, rec.UpdatedAt = rec.ModTime(), time.Unix(0, 0).UTC()
			continue
		}
		if delete(rec.Users, owner); len(rec.Users) == 0 {
			if rec.Current = false; !lower[rec.Digest] { // without a key it might be taken for lost later
				rec.CacheKey = ""
			}
		}
	}
	if !changed {
		return nil
	}
	return s.index.Write(ix)
}

// BuiltBy returns the images that a workspace has built, by name.
func (s *Store) BuiltBy(_ context.Context, owner sandbox.WorkspaceID) ([]spec.Image, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	var list []spec.Image
	for i := range ix.Images {
		if rec := &ix.Images[i]; rec.Current && owner != "" && rec.Owner == owner {
			list = append(list, ix.Image(rec))
		}
	}
	slices.SortFunc(list, func(a, b spec.Image) int { return strings.Compare(a.Ref(), b.Ref()) })
	return list, nil
}

// OCIConfig returns the OCI configuration of an image that [Store.Resolve] returned, even if its
// reference has come to name another image since. Errors: NotFound for a removed image.
func (s *Store) OCIConfig(of spec.Image) (*v1.ConfigFile, error) {
	ix, err := s.index.Load()
	if err != nil {
		return nil, err
	}
	rec := ix.Entry(of)
	if rec == nil {
		return nil, sandbox.Errorf(sandbox.NotFound, "the image %s was removed", of.Ref())
	}
	img, err := s.committer.ociImage(rec)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the configuration of image %s: %w", of.Ref(), err)
	}
	return config.DeepCopy(), nil
}

// FinishRequest describes a built image.
type FinishRequest struct {
	// Base is the digest of its root filesystem, in the store already.
	Base string
	// Config is its complete OCI configuration.
	Config v1.Config
	Author string
	// Owner is the workspace that has it, under the name and tag; an image without a name has only its
	// digest, and exists as long as something uses it.
	Owner     sandbox.WorkspaceID
	Name, Tag string
}

// Finish stages an image and publishes it at once: see [Store.StageBuilt].
func (s *Store) Finish(ctx context.Context, req FinishRequest) (spec.Image, error) {
	staged, err := s.committer.stageBuilt(ctx, req)
	if err != nil {
		return spec.Image{}, err
	}
	defer staged.Discard()
	done, err := staged.Publish(ctx, nil)
	return done.Image, err
}
