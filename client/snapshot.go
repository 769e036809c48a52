package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Snapshots has the calls for snapshots; a snapshot is named by its id, name, name:tag or @workspace/name:tag.
type Snapshots struct{ *transport }

// Snapshot is the saved filesystem of a sandbox, or of a build, from which
// sandboxes are made.
type Snapshot = wire.Snapshot

// SnapshotOptions name a snapshot; the zero value has the server make a name up.
type SnapshotOptions = wire.CreateSnapshot

// SnapshotFilter selects snapshots; the zero value selects all snapshots of the workspace, newest
// first.
type SnapshotFilter struct {
	Public    bool // the public snapshots of all workspaces
	SandboxID string
	Name, Tag string
	Sort      string // created, name, size or files; created when empty
	Ascending bool
}

// Create saves the files of a running or paused sandbox, and returns when
// sandboxes can be made from them. Errors: Invalid, NotFound, Ended,
// QuotaExceeded, DiskFull.
func (c *Snapshots) Create(ctx context.Context, ref string, o SnapshotOptions) (*Snapshot, error) {
	return fetch[Snapshot](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "snapshots"), body: o})
}

// Get returns the snapshot with an id, name, name:tag or @workspace/name:tag. Errors:
// NotFound.
func (c *Snapshots) Get(ctx context.Context, ref string) (*Snapshot, error) {
	return fetch[Snapshot](ctx, c.transport, request{method: http.MethodGet, path: snapshotPath(ref), repeat: true})
}

// List lists snapshots.
func (c *Snapshots) List(f SnapshotFilter) *List[Snapshot] {
	query := map[string]string{"sandbox_id": f.SandboxID, "name": f.Name, "tag": f.Tag, "sort": f.Sort, "public": flag(f.Public)}
	if f.Ascending {
		query["order"] = "asc"
	}
	return newList[Snapshot](c.transport, "/v1/snapshots", query)
}

// Tag moves a tag to a snapshot from the other snapshot of the same name; "" removes its
// tag. Errors: NotFound, Invalid.
func (c *Snapshots) Tag(ctx context.Context, ref, tag string) (*Snapshot, error) {
	var body wire.TagSnapshot
	if tag != "" {
		body.Tag = &tag
	}
	return fetch[Snapshot](ctx, c.transport, request{method: http.MethodPatch, path: snapshotPath(ref), body: body})
}

// Delete deletes a snapshot; sandboxes made from it go on. Errors: NotFound.
func (c *Snapshots) Delete(ctx context.Context, ref string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: snapshotPath(ref)}, nil)
}

// Lineage lists a snapshot and its ancestors, newest first, including deleted snapshots. Errors:
// NotFound.
func (c *Snapshots) Lineage(ref string) *List[Snapshot] {
	return newList[Snapshot](c.transport, snapshotPath(ref)+"/lineage", nil)
}

func snapshotPath(ref string) string { return "/v1/snapshots/" + url.PathEscape(ref) }

// SnapshotBuildOptions describe a snapshot to build.
type SnapshotBuildOptions struct {
	SnapshotOptions
	// Runtime is the reference of the image to build on.
	Runtime string
	// ContentHash, unless empty, identifies its complete content: a snapshot with the same hash is
	// returned without any work, unless Force.
	ContentHash string
	Force       bool
	// Dir is the destination of the files; "" is the image's working directory.
	Dir string
	// Files, unless nil, returns a tar.gz with names relative to Dir. It is called only if the
	// snapshot has to be built.
	Files func() (io.ReadCloser, error)
	// AptPackages, NpmPackages and PipPackages are the Debian, npm and Python packages to install.
	AptPackages []string
	NpmPackages []string
	PipPackages []string
	// Env are default variables of sandboxes made from it.
	Env map[string]string
	// WaitForQuota bounds the time for which the server waits for the workspace's quota, for the boxes
	// of the build, in whole seconds up to 10 minutes; 0 does not wait.
	WaitForQuota time.Duration
	// Progress, unless nil, is called with the progress of the build, about once a second, from one
	// goroutine at a time. It should return soon.
	Progress func(SnapshotBuildProgress)
}

// SnapshotBuildProgress is the progress of a build.
type SnapshotBuildProgress = wire.SnapshotBuildProgress

// Build builds a snapshot from files and packages, and returns when sandboxes can be made
// from it; unchanged reports that there was nothing to do. Errors: Invalid, naming the field, which
// is archive for files that are no tar.gz and for a build of nothing; QuotaExceeded; TooLarge. They begin with the id of a build that had begun, whose log has the
// details.
func (c *Snapshots) Build(ctx context.Context, o SnapshotBuildOptions) (sn *Snapshot, unchanged bool, err error) {
	var begun wire.SnapshotBuild
	const builds = "/v1/snapshot-builds"
	begin := wire.BeginSnapshotBuild{
		Runtime: o.Runtime, Name: o.Name, Tag: o.Tag, Description: o.Description, Message: o.Message, Metadata: o.Metadata, Public: o.Public,
		ContentHash: o.ContentHash, Force: o.Force, Dir: o.Dir,
	}
	if err := c.call(ctx, request{method: http.MethodPost, path: builds, body: begin}, &begun); err != nil {
		return nil, false, err
	}
	if begun.Unchanged {
		return begun.Snapshot, true, nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("build %s: %w", begun.ID, err)
		}
	}()
	path := builds + "/" + url.PathEscape(begun.ID)
	if o.Files != nil {
		if o.Progress != nil {
			o.Progress(SnapshotBuildProgress{Phase: "uploading", Detail: "its files"})
		}
		files, err := o.Files()
		if err != nil {
			return nil, false, err
		}
		err = c.call(ctx, request{method: http.MethodPut, path: path + "/files", stream: files}, nil)
		if err = errors.Join(err, files.Close()); err != nil {
			return nil, false, err
		}
	}
	body := wire.FinishSnapshotBuild{
		AptPackages: o.AptPackages, NpmPackages: o.NpmPackages, PipPackages: o.PipPackages, Env: o.Env, WaitForQuotaSeconds: seconds(o.WaitForQuota),
	}
	if o.Progress != nil {
		watch, stop := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.watchBuild(watch, path, o.Progress)
		}()
		defer func() { stop(); <-over }()
	}
	sn, err = fetch[Snapshot](ctx, c.transport, request{method: http.MethodPost, path: path + "/finish", body: body})
	return sn, false, err
}

// SnapshotBuildLog is the log of a build.
type SnapshotBuildLog = wire.SnapshotBuildLog

// SnapshotBuildLine is a step of a build, or a line that a tool wrote.
type SnapshotBuildLine = wire.SnapshotBuildLine

// BuildLog returns the log of a build so far, or until its end. It is available for an hour
// after the beginning. Errors: NotFound.
func (c *Snapshots) BuildLog(ctx context.Context, id string) (*SnapshotBuildLog, error) {
	return fetch[SnapshotBuildLog](ctx, c.transport, request{method: http.MethodGet, path: "/v1/snapshot-builds/" + url.PathEscape(id) + "/log", repeat: true})
}

// buildPause is the interval of asking for the progress of a build.
const buildPause = time.Second

// watchBuild reports the progress of a build until ctx ends. It ignores errors: the caller, which
// waits for the build, gets the reason.
func (c *Snapshots) watchBuild(ctx context.Context, path string, report func(SnapshotBuildProgress)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(buildPause):
		}
		var at SnapshotBuildProgress
		if err := c.call(ctx, request{method: http.MethodGet, path: path + "/progress"}, &at); err == nil && at.Phase != "begun" {
			report(at)
		}
	}
}
