package lifecycle

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/sandbox"
)

// emptyPage is the page size of a list of a workspace's sandboxes.
const emptyPage = 100

// Empty prepares the deletion of a workspace: it destroys the sandboxes, deletes the snapshots, and
// removes the records of the images that the workspace has built. Ended sandboxes stay for their
// retention time. It is idempotent and is called again after an error.
func (s *Service) Empty(ctx context.Context, ws sandbox.WorkspaceID) error {
	c := sandbox.Caller{Workspace: ws}
	for {
		page, err := s.store.ListSandboxes(ctx, ws, Filter{Limit: emptyPage})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		if len(page.Items) == 0 {
			break
		}
		var g errgroup.Group
		g.SetLimit(sweepWorkers)
		for _, sb := range page.Items {
			g.Go(func() error {
				if _, err := s.Destroy(ctx, c, string(sb.ID), sandbox.CauseDestroyed); err != nil {
					return fmt.Errorf("destroy sandbox %s: %w", sb.ID, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	for {
		page, err := s.snapshots.List(ctx, c, sandbox.SnapshotFilter{Limit: emptyPage})
		if err != nil {
			return fmt.Errorf("list snapshots: %w", err)
		}
		if len(page.Snapshots) == 0 {
			break
		}
		for _, sn := range page.Snapshots {
			if err := s.snapshots.Delete(ctx, c, string(sn.ID)); err != nil {
				return fmt.Errorf("delete snapshot %s: %w", sn.ID, err)
			}
		}
	}
	if err := s.images.ForgetBuilt(ctx, ws); err != nil {
		return fmt.Errorf("forget built images: %w", err)
	}
	return nil
}
