// Package teardown empties workspaces that are about to be deleted.
package teardown

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sync/errgroup"
)

// emptyPage is the page size of a list of a workspace's sandboxes.
const emptyPage = 100

// Sandboxes lists and ends sandboxes. [lifecycle.Service] implements it.
type Sandboxes interface {
	// List returns a page of the live sandboxes of the caller's workspace. Errors: Invalid.
	List(ctx context.Context, c sandbox.Caller, f sandbox.Filter) (page.Page[sandbox.Sandbox], error)
	// Destroy ends a sandbox and returns when it uses nothing any more. Idempotent.
	Destroy(ctx context.Context, c sandbox.Caller, ref string, cause sandbox.CauseCode) (sandbox.Sandbox, error)
}

// Snapshots lists and deletes snapshots.
type Snapshots interface {
	// List returns a page of the snapshots of the caller's workspace. Errors: Invalid.
	List(ctx context.Context, c sandbox.Caller, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error)
	// Delete deletes a snapshot. Errors: NotFound.
	Delete(ctx context.Context, c sandbox.Caller, ref string) error
}

// Images knows the images that workspaces have built.
type Images interface {
	// ForgetBuilt forgets the images that a workspace has built. Idempotent.
	ForgetBuilt(ctx context.Context, ws sandbox.WorkspaceID) error
}

// Emptier empties workspaces.
type Emptier struct {
	sandboxes Sandboxes
	snapshots Snapshots
	images    Images
}

// New returns an emptier.
func New(sandboxes Sandboxes, snapshots Snapshots, images Images) *Emptier {
	return &Emptier{sandboxes: sandboxes, snapshots: snapshots, images: images}
}

// destroyers is how many sandboxes are destroyed at the same time.
const destroyers = 4

// Empty prepares the deletion of a workspace: it destroys the sandboxes, deletes the snapshots, and
// removes the records of the images that the workspace has built. Ended sandboxes stay for their
// retention time. It is idempotent and is called again after an error.
func (e *Emptier) Empty(ctx context.Context, ws sandbox.WorkspaceID) error {
	c := sandbox.Caller{Workspace: ws}
	for {
		page, err := e.sandboxes.List(ctx, c, sandbox.Filter{Limit: emptyPage})
		if err != nil {
			return fmt.Errorf("list sandboxes: %w", err)
		}
		if len(page.Items) == 0 {
			break
		}
		var g errgroup.Group
		g.SetLimit(destroyers)
		for _, sb := range page.Items {
			g.Go(func() error {
				if _, err := e.sandboxes.Destroy(ctx, c, string(sb.ID), sandbox.CauseDestroyed); err != nil {
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
		page, err := e.snapshots.List(ctx, c, sandbox.SnapshotFilter{Limit: emptyPage})
		if err != nil {
			return fmt.Errorf("list snapshots: %w", err)
		}
		if len(page.Snapshots) == 0 {
			break
		}
		for _, sn := range page.Snapshots {
			if err := e.snapshots.Delete(ctx, c, string(sn.ID)); err != nil {
				return fmt.Errorf("delete snapshot %s: %w", sn.ID, err)
			}
		}
	}
	if err := e.images.ForgetBuilt(ctx, ws); err != nil {
		return fmt.Errorf("forget built images: %w", err)
	}
	return nil
}
