package lifecycle

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// quotaDisk tells the admission control what is on the disk and in no row. It implements
// quota.Disk.
type quotaDisk struct {
	images     Images
	saved      *checkpoint.Store
	executions *execution.Service
	snapshots  *snapshot.Service
	log        *slog.Logger
	evicting   atomic.Int64 // boxes being destroyed to free the disk
}

// Unrecorded returns the bytes of a workspace that are in no row.
func (d *quotaDisk) Unrecorded(ws sandbox.WorkspaceID) quota.UnrecordedDisk {
	images, cache, err := d.images.Owned(ws)
	if err != nil { // nothing is built or started of a store that cannot be read
		d.log.Error("disk use of a workspace's images not known", "workspace", ws, "error", err)
	}
	return quota.UnrecordedDisk{Streams: d.executions.StreamBytes(ws), Uploads: d.snapshots.UploadedBytes(ws), Images: images, BuildCache: cache}
}

// FreeCache removes as much of the build cache of a workspace as frees so many bytes.
func (d *quotaDisk) FreeCache(ctx context.Context, ws sandbox.WorkspaceID, bytes int64) (bool, error) {
	return d.images.EvictBuildCache(ctx, ws, bytes)
}

// CheckFree returns why nothing may be added to the disk.
func (d *quotaDisk) CheckFree(least int64) error { return d.saved.CheckFree(least) }

// Evicting reports whether boxes are being destroyed to free the disk.
func (d *quotaDisk) Evicting() bool { return d.evicting.Load() > 0 }
