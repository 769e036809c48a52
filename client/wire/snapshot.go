package wire

import "time"

// CreateSnapshot is the body of POST /v1/sandboxes/{sandbox}/snapshots.
type CreateSnapshot struct {
	Name        string            `json:"name,omitempty" maxLength:"128" doc:"Letters, digits, underscores and dashes; made up when omitted. Many snapshots may share a name." example:"my-agent"`
	Tag         string            `json:"tag,omitempty" maxLength:"128" doc:"Tag of the snapshot, unique among the snapshots of a name: a new snapshot takes it over. latest when omitted." example:"v1"`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"Your own words about it."`
	Message     string            `json:"message,omitempty" maxLength:"1024" doc:"Your own words about this version."`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"Your own entries about it, up to 64; they mean nothing to the server."`
	Public      bool              `json:"public,omitempty" doc:"Every workspace may read it and make sandboxes from it."`
}

// Snapshot is the saved filesystem of a sandbox or of a build.
type Snapshot struct {
	ID          string            `json:"id" format:"uuid" doc:"Its identifier."`
	Name        string            `json:"name" doc:"Its name."`
	Tag         string            `json:"tag,omitempty" doc:"Its tag; absent when another snapshot of the name has taken it."`
	FullName    string            `json:"full_name" doc:"How other workspaces name it when it is public." example:"@default/my-agent:v1"`
	Description string            `json:"description,omitempty" doc:"The caller's own words about it."`
	Message     string            `json:"message,omitempty" doc:"The caller's own words about this version."`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"The caller's own entries about it."`
	ParentID    string            `json:"parent_id,omitempty" doc:"The snapshot that came before it; absent without one."`
	SandboxID   string            `json:"sandbox_id,omitempty" doc:"The sandbox it was taken of; absent for a build."`
	Image       string            `json:"image" doc:"Reference of the image at the bottom."`
	BaseDigest  string            `json:"base_digest,omitempty" doc:"The root file system it was laid on."`
	Digest      string            `json:"digest,omitempty" doc:"Its root file system."`
	SizeBytes   int64             `json:"size_bytes" doc:"What its root file system takes on disk."`
	LayerBytes  int64             `json:"layer_bytes" doc:"What was written beyond its base, compressed."`
	FileCount   int64             `json:"file_count" doc:"Names in its root file system."`
	Public      bool              `json:"public" doc:"Every workspace may read it and make sandboxes from it."`
	ContentHash string            `json:"content_hash,omitempty" doc:"What a build was made of; absent for others."`
	CreatedBy   string            `json:"created_by,omitempty" doc:"The user who made it; absent for a snapshot of another workspace."`
	CreatedAt   time.Time         `json:"created_at" doc:"When it was made."`
	DeletedAt   *time.Time        `json:"deleted_at,omitempty" doc:"When it was deleted; only lineages include deleted snapshots."`
}

// TagSnapshot is the body of PATCH /v1/snapshots/{snapshot}.
type TagSnapshot struct {
	Tag *string `json:"tag" maxLength:"128" doc:"Its new tag, taken from the snapshot of the same name that has it; null takes its tag away."`
}

// BeginSnapshotBuild is the body of POST /v1/snapshot-builds.
type BeginSnapshotBuild struct {
	Runtime     string            `json:"runtime" minLength:"1" maxLength:"512" doc:"Reference of the image to build on." example:"python:3.13"`
	Name        string            `json:"name,omitempty" maxLength:"128" doc:"As for a snapshot of a sandbox."`
	Tag         string            `json:"tag,omitempty" maxLength:"128" doc:"As for a snapshot of a sandbox."`
	Description string            `json:"description,omitempty" maxLength:"1024" doc:"Your own words about it."`
	Message     string            `json:"message,omitempty" maxLength:"1024" doc:"Your own words about this version."`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"Your own entries about it, up to 64."`
	Public      bool              `json:"public,omitempty" doc:"Every workspace may read it and make sandboxes from it."`
	ContentHash string            `json:"content_hash,omitempty" maxLength:"128" doc:"Identifies everything it is made of. A snapshot of the workspace that has the same is answered instead of a build."`
	Force       bool              `json:"force,omitempty" doc:"Build although there is a snapshot of the same content."`
	Dir         string            `json:"dir,omitempty" maxLength:"4096" doc:"Where the files go; the image's working directory when omitted."`
}

// SnapshotBuild is a build that was begun, or the snapshot that makes it needless.
type SnapshotBuild struct {
	ID        string    `json:"id,omitempty" doc:"The id of the build, and later of the snapshot; absent when there is nothing to build."`
	Unchanged bool      `json:"unchanged" doc:"There is a snapshot of the same content."`
	Snapshot  *Snapshot `json:"snapshot,omitempty" doc:"That snapshot."`
}

// SnapshotBuildProgress is the progress of a build.
type SnapshotBuildProgress struct {
	ID     string `json:"id" doc:"The build."`
	Phase  string `json:"phase" doc:"begun, waiting, pulling, fetching, downloading, installing, setup, writing, done or failed." example:"installing"`
	Detail string `json:"detail,omitempty" doc:"What the phase is about, for people."`
	Done   int64  `json:"done,omitempty" doc:"How much is done. The phase determines its unit: bytes of layers while pulling, else packages or files."`
	Total  int64  `json:"total,omitempty" doc:"What done counts up to; absent when it is not known. It may grow."`
}

// SnapshotBuildLog is the log of a build.
type SnapshotBuildLog struct {
	Lines     []SnapshotBuildLine `json:"lines" nullable:"false" doc:"In their order."`
	Truncated bool                `json:"truncated" doc:"Earlier lines were dropped: the log has the last 1000 lines and 64 KiB."`
	Ended     bool                `json:"ended" doc:"It is done or has failed, as the last line says."`
}

// SnapshotBuildLine is something that happened in a build.
type SnapshotBuildLine struct {
	Time    time.Time `json:"time" doc:"When."`
	Phase   string    `json:"phase" doc:"As of watch-snapshot-build." example:"installing"`
	Message string    `json:"message" doc:"What happened, or a line that a tool wrote."`
}

// FinishSnapshotBuild is the body of POST /v1/snapshot-builds/{build}/finish.
type FinishSnapshotBuild struct {
	AptPackages []string          `json:"apt_packages,omitempty" maxItems:"256" nullable:"false" doc:"Debian packages to install."`
	NpmPackages []string          `json:"npm_packages,omitempty" maxItems:"256" nullable:"false" doc:"npm packages to install globally."`
	PipPackages []string          `json:"pip_packages,omitempty" maxItems:"256" nullable:"false" doc:"Python packages to install with pip, as for a create."`
	Env         map[string]string `json:"env,omitempty" doc:"Default environment variables of sandboxes made from it. They are never shown again."`

	WaitForQuotaSeconds int `json:"wait_for_quota_seconds,omitempty" minimum:"0" maximum:"600" doc:"If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. 0: refuse the build at once, with 429. The build reserves the resources of its boxes before it waits for a slot. While it waits, and if it is refused, it can be finished again."`
}
