// Package diskuse knows what workspaces have on the disk that no row of the database says.
package diskuse

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Images knows the images that workspaces have built.
type Images interface {
	// Owned returns the bytes on disk of the images that a workspace has built, and of
	// its build cache.
	Owned(ws sandbox.WorkspaceID) (images, cache int64, err error)
	// EvictBuildCache removes as much of the build cache of a workspace as frees so many bytes, and
	// reports whether it could.
	EvictBuildCache(ctx context.Context, ws sandbox.WorkspaceID, add int64) (bool, error)
}

// Streams knows the outputs of executions.
type Streams interface {
	// StreamBytes returns the bytes of the outputs of a workspace.
	StreamBytes(ws sandbox.WorkspaceID) int64
}

// Uploads knows the files from which snapshots or templates are made.
type Uploads interface {
	// UploadedBytes returns the bytes of the uploads of a workspace.
	UploadedBytes(ws sandbox.WorkspaceID) int64
}

// Sum is several [Uploads]; it skips nil.
type Sum []Uploads

// UploadedBytes implements [Uploads].
func (s Sum) UploadedBytes(ws sandbox.WorkspaceID) (n int64) {
	for _, u := range s {
		if u != nil {
			n += u.UploadedBytes(ws)
		}
	}
	return n
}

// Disk is the disk of the saved states.
type Disk interface {
	// CheckFree returns an error when fewer than least bytes are free. Errors: Unavailable.
	CheckFree(least int64) error
}

// Meter implements quota.Disk. Its exported fields must be set before it is used; its methods are safe for
// concurrent use.
type Meter struct {
	Images  Images
	Streams Streams
	Uploads Uploads
	Disk    Disk
	Log     *slog.Logger

	evicting atomic.Int64 // boxes being destroyed to free the disk
}

// BeginEviction counts a box that is being destroyed to free the disk, until EndEviction.
func (d *Meter) BeginEviction() { d.evicting.Add(1) }

// EndEviction is the end of what BeginEviction began.
func (d *Meter) EndEviction() { d.evicting.Add(-1) }

// Unrecorded returns the bytes of a workspace that are in no row.
func (d *Meter) Unrecorded(ws sandbox.WorkspaceID) quota.UnrecordedDisk {
	images, cache, err := d.Images.Owned(ws)
	if err != nil { // nothing is built or started of a store that cannot be read
		d.Log.Error("disk use of a workspace's images not known", "workspace", ws, "error", err)
	}
	return quota.UnrecordedDisk{Streams: d.Streams.StreamBytes(ws), Uploads: d.Uploads.UploadedBytes(ws), Images: images, BuildCache: cache}
}

// FreeCache removes as much of the build cache of a workspace as frees so many bytes.
func (d *Meter) FreeCache(ctx context.Context, ws sandbox.WorkspaceID, bytes int64) (bool, error) {
	return d.Images.EvictBuildCache(ctx, ws, bytes)
}

// CheckFree returns why nothing may be added to the disk.
func (d *Meter) CheckFree(least int64) error { return d.Disk.CheckFree(least) }

// Evicting reports whether boxes are being destroyed to free the disk.
func (d *Meter) Evicting() bool { return d.evicting.Load() > 0 }
