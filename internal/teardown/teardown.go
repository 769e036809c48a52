// Package teardown empties workspaces that are about to be deleted.
package teardown

import (
	"context"
	"fmt"
	"slices"

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
	owner     *sandbox.Ownership
	sandboxes Sandboxes
	snapshots Snapshots
	images    Images
}

// New returns an emptier of a server that owns these shards.
func New(owner *sandbox.Ownership, sandboxes Sandboxes, snapshots Snapshots, images Images) *Emptier {
	return &Emptier{owner: owner, sandboxes: sandboxes, snapshots: snapshots, images: images}
}

// destroyers is how many sandboxes are destroyed at the same time.
const destroyers = 4

// Empty prepares the deletion of a workspace: it destroys the sandboxes, deletes the snapshots, and
// removes the records of the images that the workspace has built. Ended sandboxes stay for their
// retention time. It is idempotent and is called again after an error.
//
// Of several servers each destroys the sandboxes of its own shards. The primary does the rest when no sandbox is live any more, and reports that
// the workspace is empty; others never report it.
func (e *Emptier) Empty(ctx context.Context, ws sandbox.WorkspaceID) (empty bool, err error) {
	c := sandbox.Caller{Workspace: ws}
	left, err := e.destroyAll(ctx, c)
	if err != nil || left || !e.owner.Primary() {
		return false, err
	}
	for {
		page, err := e.snapshots.List(ctx, c, sandbox.SnapshotFilter{Limit: emptyPage})
		if err != nil {
			return false, fmt.Errorf("list snapshots: %w", err)
		}
		if len(page.Snapshots) == 0 {
			break
		}
		for _, sn := range page.Snapshots {
			if err := e.snapshots.Delete(ctx, c, string(sn.ID)); err != nil {
				return false, fmt.Errorf("delete snapshot %s: %w", sn.ID, err)
			}
		}
	}
	if err := e.images.ForgetBuilt(ctx, ws); err != nil {
		return false, fmt.Errorf("forget built images: %w", err)
	}
	return true, nil
}

// destroyAll destroys the sandboxes of a workspace that are in the shards of the server, and reports whether there are others that are live.
func (e *Emptier) destroyAll(ctx context.Context, c sandbox.Caller) (left bool, err error) {
	for found := true; found; { // until a pass over all pages finds none
		found, left = false, false
		for f, more := (sandbox.Filter{Limit: emptyPage}), true; more; more = f.Cursor != "" {
			page, err := e.sandboxes.List(ctx, c, f)
			if err != nil {
				return false, fmt.Errorf("list sandboxes: %w", err)
			}
			own := slices.DeleteFunc(slices.Clone(page.Items), func(sb sandbox.Sandbox) bool { return !e.owner.Ranges().Has(sb.ID) })
			if err := e.destroy(ctx, c, own); err != nil {
				return false, err
			}
			found, left, f.Cursor = found || len(own) > 0, left || len(own) < len(page.Items), page.Next
		}
	}
	return left, nil
}

// destroy destroys sandboxes, a few at a time.
func (e *Emptier) destroy(ctx context.Context, c sandbox.Caller, list []sandbox.Sandbox) error {
	var g errgroup.Group
	g.SetLimit(destroyers)
	for _, sb := range list {
		g.Go(func() error {
			if _, err := e.sandboxes.Destroy(ctx, c, string(sb.ID), sandbox.CauseDestroyed); err != nil {
				return fmt.Errorf("destroy sandbox %s: %w", sb.ID, err)
			}
			return nil
		})
	}
	return g.Wait()
}
