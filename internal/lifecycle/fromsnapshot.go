package lifecycle

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// fromSnapshot returns the record of a sandbox that is made from a snapshot. The record has the
// root filesystem from the beginning, so that it counts as in use.
func (s *Service) fromSnapshot(ctx context.Context, c sandbox.Caller, req *CreateRequest) (sandbox.Creation, error) {
	if req.Image != "" || req.ImageID != "" {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "give either a snapshot or an image, not both")
	}
	sn, err := s.snapshots.Get(ctx, c, req.Snapshot)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "%s", snapshot.Missing(req.Snapshot))
	}
	if err != nil {
		return sandbox.Creation{}, err
	}
	img, _, err := s.images.Resolve(ctx, sn.Digest)
	if err != nil {
		return sandbox.Creation{}, fmt.Errorf("root filesystem of snapshot %s: %w", sn.ID, err)
	}
	env := merged(sn.Env, req.Env)
	if err := sandbox.CheckEnv(env); err != nil {
		return sandbox.Creation{}, err
	}
	creation := s.creation(c, req, &img)
	sb := &creation.Sandbox
	sb.Snapshot, sb.Image, sb.ImageDigest, sb.Env = sn.ID, sn.Image, sn.Digest, env
	creation.Event.Data = map[string]string{"image": sn.Image, "snapshot": string(sn.ID), "user": string(c.User)}
	return creation, nil
}
