package wire

import "time"

// CreateSandbox is the body of POST /v1/sandboxes.
type CreateSandbox struct {
	Name       string            `json:"name,omitempty" maxLength:"255" doc:"Your own identifier, unique among the live sandboxes of the workspace; made up when omitted. It has the characters A-Z, a-z, 0-9, dot, underscore and dash, and begins with a letter or digit. While a sandbox of that name lives, the same request answers it again and a different one is refused with code exists." example:"agent-42"`
	Image      string            `json:"image,omitempty" maxLength:"512" doc:"Image reference. When neither image nor image_id is given: the default image of the workspace, or of the server." example:"modbox/code-exec:latest"`
	ImageID    string            `json:"image_id,omitempty" maxLength:"64" doc:"ID of an image, or of one of the workspace's catalogue (/v1/sandbox-images), whose defaults count then; wins over image."`
	Snapshot   string            `json:"snapshot,omitempty" maxLength:"512" doc:"Make it from a snapshot instead of an image: its id, name, name:tag or @workspace/name:tag." example:"my-agent:v1"`
	Env        map[string]string `json:"env,omitempty" doc:"Environment variables of every process in the sandbox. They are never shown again."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Up to 64 labels to find it by."`
	TTLSeconds int               `json:"ttl_seconds,omitempty" minimum:"0" maximum:"86400" doc:"It is destroyed this long after the request: 60 to 86400 seconds. 0 or omitted: the image's default, or no limit."`
	Resources  *Resources        `json:"resources,omitempty" doc:"Limits; the image's or the server's defaults for what is omitted."`
	Timeouts   *Timeouts         `json:"timeouts,omitempty" doc:"Clocks beside the ttl; none when omitted."`
	Network    *Network          `json:"network,omitempty" doc:"Access to the internet, and ports to publish; neither when omitted."`

	CheckpointIntervalSeconds int `json:"checkpoint_interval_seconds,omitempty" doc:"Time between automatic checkpoints, from which it goes on when its processes are lost with the host: 60 to 86400. 0 or omitted: none."`

	Description string            `json:"description,omitempty" maxLength:"1024" doc:"Your own words about it."`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"Your own entries about it, up to 64; they mean nothing to the server."`
	URLAccess   URLAccess         `json:"url_access,omitempty" enum:"open,key" doc:"The credential for the management routes on its own URL (/modbox/api/…, /execute): with key, callers need its SANDBOX_API_KEY or an API token; with open, its SANDBOX_API_KEY if it has one, else the URL is enough. key when omitted."`
	Command     *ExecutionCommand `json:"command,omitempty" doc:"A command that starts as an execution as soon as it runs."`
	Mode        string            `json:"mode,omitempty" enum:"interactive,oneshot" doc:"oneshot: it ends with its command, with cause completed. interactive when omitted."`
	Replace     bool              `json:"replace,omitempty" doc:"End a live sandbox of the same name, whose place in the quota the new one may have."`
	WaitSeconds int               `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Answer when it is running or has ended, but after this many seconds at the latest. 0: answer at once."`

	WaitForQuotaSeconds int `json:"wait_for_quota_seconds,omitempty" minimum:"0" maximum:"600" doc:"If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. The sandbox is recorded only when it is admitted; after the time the answer is 429. 0: answer 429 at once."`

	AptPackages []string `json:"apt_packages,omitempty" nullable:"false" doc:"Debian packages to have installed in it, as name, name=version or name=version*, up to 64. They are installed before it runs and cached for the next sandbox with the same packages." example:"[\"ffmpeg\",\"curl=8.14*\"]"`
	PipPackages []string `json:"pip_packages,omitempty" nullable:"false" doc:"Python packages to have installed in it by pip, for every user, as name, name==version, name==1.2.* or with extras name[extra]; up to 64." example:"[\"requests==2.32.*\"]"`
	NpmPackages []string `json:"npm_packages,omitempty" nullable:"false" doc:"npm packages to have installed globally in it, by npm or, in an image without it, by bun; up to 64." example:"[\"typescript@5\"]"`
}

// Resources are limits in Kubernetes notation.
type Resources struct {
	Memory string `json:"memory,omitempty" maxLength:"32" doc:"Memory." example:"512Mi"`
	CPU    string `json:"cpu,omitempty" maxLength:"32" doc:"Cores, or thousandths of a core with the suffix m." example:"500m"`
	Disk   string `json:"disk,omitempty" maxLength:"32" doc:"What may be written to its file system." example:"2Gi"`
}

// Timeouts are the clocks of a sandbox beside its ttl.
type Timeouts struct {
	IdleSeconds      int    `json:"idle_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"How long it may run without being used: by a call into it, an open connection or a running command. 10 seconds at least; 0: no limit."`
	OnIdle           string `json:"on_idle,omitempty" enum:"destroy,pause,pause_without_memory" doc:"What happens then; destroy when omitted. pause_without_memory ends its processes and saves its files alone."`
	PausedSeconds    int    `json:"paused_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"How long it may stay paused before it is destroyed, 10 seconds at least; 0: no limit."`
	ExecutionSeconds int    `json:"execution_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"The timeout of commands that name none; 0: the server's default."`
}

// Checkpoint is a saved state of a sandbox.
type Checkpoint struct {
	ID        string     `json:"id" format:"uuid" doc:"Its identifier."`
	Name      string     `json:"name" doc:"Its name, unique within the sandbox."`
	SandboxID string     `json:"sandbox_id" format:"uuid" doc:"The sandbox it is a state of."`
	ParentID  string     `json:"parent_id,omitempty" doc:"The checkpoint of the sandbox that was made or restored last before it; absent without one."`
	SizeBytes int64      `json:"size_bytes" doc:"What it takes on the server's disk."`
	CreatedBy string     `json:"created_by" doc:"The user who made it."`
	CreatedAt time.Time  `json:"created_at" doc:"When it was made."`
	CopiedAt  *time.Time `json:"copied_at,omitempty" doc:"When it was copied to the object store of the server; absent while it is on the server's disk alone."`
}

// CreateCheckpoint is the body of POST /v1/sandboxes/{sandbox}/checkpoints.
type CreateCheckpoint struct {
	Name string `json:"name,omitempty" maxLength:"128" doc:"A name; made up when omitted." example:"before-upgrade"`
}

// PauseSandbox is the body of POST /v1/sandboxes/{sandbox}/pause; it may be omitted.
type PauseSandbox struct {
	Memory *bool `json:"memory,omitempty" doc:"true, also when omitted: save memory and files. false: end the processes, with SIGTERM and 2 seconds later SIGKILL, and save the files alone; a resume starts the sandbox anew with them."`
}

// ResumeSandbox is the body of POST /v1/sandboxes/{sandbox}/resume; it may be omitted.
type ResumeSandbox struct {
	Memory string `json:"memory,omitempty" enum:"prefer,require,discard" doc:"prefer, also when omitted: bring the memory back, and where that cannot be done start anew with the files. require: stay paused then. discard: start anew with the files in any case."`

	WaitForQuotaSeconds int `json:"wait_for_quota_seconds,omitempty" minimum:"0" maximum:"600" doc:"If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue; the sandbox stays paused meanwhile. 0: answer 429 at once."`
}

// Fork is the body of POST /v1/sandboxes/{sandbox}/fork.
type Fork struct {
	Count      int               `json:"count,omitempty" minimum:"1" maximum:"100" doc:"How many; 1, or as many as there are names, when omitted."`
	Names      []string          `json:"names,omitempty" nullable:"false" maxItems:"100" doc:"Names of the first children, as for a create; the server makes up the others."`
	Env        map[string]string `json:"env,omitempty" doc:"Environment variables in addition to the parent's."`
	Labels     map[string]string `json:"labels,omitempty" doc:"Labels in addition to the parent's."`
	TTLSeconds int               `json:"ttl_seconds,omitempty" minimum:"0" maximum:"86400" doc:"Destroyed this long after the fork; the parent's ttl when omitted."`
	Timeouts   *Timeouts         `json:"timeouts,omitempty" doc:"Clocks beside the ttl; the parent's when omitted."`

	WaitForQuotaSeconds int `json:"wait_for_quota_seconds,omitempty" minimum:"0" maximum:"600" doc:"If the quota of the workspace, or the server, is full, wait up to this long until all children fit, in the workspace's queue. The parent goes on meanwhile, and no child is recorded. 0: answer 429 at once."`
}

// ForkList is the results of a fork, one for each child.
type ForkList struct {
	Forks []ForkItem `json:"forks" nullable:"false" doc:"One for each child, in the order of the names."`
}

// ForkItem is the result of a child. A child that was recorded and then failed has both fields.
type ForkItem struct {
	Sandbox *Sandbox   `json:"sandbox,omitempty" doc:"The child."`
	Error   *ForkError `json:"error,omitempty" doc:"Why it does not run; absent when it does."`
}

// ForkError is why a child does not run.
type ForkError struct {
	Code   string `json:"code" doc:"For programs, as in all errors."`
	Detail string `json:"detail" doc:"For people."`
}

// Sandbox is one sandbox.
type Sandbox struct {
	ID                        string            `json:"id" format:"uuid" doc:"Its identifier."`
	Name                      string            `json:"name" doc:"The caller's identifier."`
	State                     State             `json:"state" enum:"provisioning,running,pausing,paused,resuming,destroying,destroyed,failed" doc:"Where it is in its life."`
	URL                       string            `json:"url" doc:"The URL of its HTTP server, its management routes and all its ports that are not private. It is a secret; share the URLs of published ports. Empty for callers who may only read."`
	Image                     string            `json:"image" doc:"The image reference it was made from."`
	ImageDigest               string            `json:"image_digest" doc:"The content the reference resolved to; empty until resolved."`
	ImageID                   string            `json:"image_id,omitempty" doc:"The id of the image, or of the catalogue's entry that was asked for; absent when it was made from a snapshot."`
	AptPackages               []string          `json:"apt_packages,omitempty" nullable:"false" doc:"Debian packages that were installed in it."`
	NpmPackages               []string          `json:"npm_packages,omitempty" nullable:"false" doc:"npm packages that were installed in it."`
	PipPackages               []string          `json:"pip_packages,omitempty" nullable:"false" doc:"Python packages that were installed in it."`
	Labels                    map[string]string `json:"labels" doc:"Its labels."`
	Resources                 Resources         `json:"resources" doc:"Its limits."`
	ReadinessPort             int               `json:"readiness_port,omitempty" doc:"The port that had to answer before it counted as running. Its URL leads to the first published port, else to this one, else to 8080."`
	Network                   SandboxNetwork    `json:"network" doc:"Its network."`
	URLAccess                 URLAccess         `json:"url_access" enum:"open,key" doc:"The credential for the management routes on its own URL; the workspace and the server may demand more."`
	TTLSeconds                int64             `json:"ttl_seconds" doc:"How long it may live, counted from created_at or from the last change of the ttl; 0 means no limit. See deadline."`
	Deadline                  *time.Time        `json:"deadline,omitempty" doc:"When its ttl ends it; absent without one."`
	Timeouts                  Timeouts          `json:"timeouts" doc:"Its clocks beside the ttl."`
	CheckpointIntervalSeconds int64             `json:"checkpoint_interval_seconds" doc:"Time between its automatic checkpoints; 0: it has none."`
	LastCheckpointAt          *time.Time        `json:"last_checkpoint_at,omitempty" doc:"Time of its automatic checkpoint; absent without one."`
	LastActivity              *time.Time        `json:"last_activity_at,omitempty" doc:"When something last used it."`
	IdleDeadline              *time.Time        `json:"idle_deadline,omitempty" doc:"When its idle timeout is over if nothing uses it before; absent without one, and unless it runs."`
	PausedAt                  *time.Time        `json:"paused_at,omitempty" doc:"When it was paused; absent unless it is paused."`
	ArchivedAt                *time.Time        `json:"archived_at,omitempty" doc:"When its saved state was moved to the object store; absent while it is on the disk of the server. A resume fetches it, which takes longer."`
	PausedWithoutMemory       bool              `json:"paused_without_memory,omitempty" doc:"Its files are saved without its memory, so that a resume starts it anew; absent when its memory is saved, and unless it is paused."`
	PausedUntil               *time.Time        `json:"paused_deadline,omitempty" doc:"When its paused timeout ends it; absent without one, and unless it is paused."`
	MemoryLostReason          string            `json:"memory_lost_reason,omitempty" doc:"Why its last resume started it anew with its files; absent when its memory was brought back."`
	Parent                    string            `json:"parent_id,omitempty" doc:"The sandbox it was forked from; absent without one."`
	SnapshotID                string            `json:"snapshot_id,omitempty" doc:"The snapshot it was made from; absent without one."`
	Description               string            `json:"description,omitempty" doc:"The caller's own words about it."`
	Metadata                  map[string]string `json:"metadata,omitempty" doc:"The caller's own entries about it."`
	Worker                    string            `json:"worker,omitempty" doc:"The name of the worker that it is on; only for administrators of the installation. Absent while it is on none, and if sandboxes run on the server's machine."`
	Cause                     *Cause            `json:"cause,omitempty" doc:"Why it ended; absent while it lives."`
	CreatedBy                 string            `json:"created_by" doc:"The user who made it."`
	WorkspaceID               string            `json:"workspace_id" doc:"The workspace it belongs to."`
	CreatedAt                 time.Time         `json:"created_at" doc:"When it was asked for."`
	UpdatedAt                 time.Time         `json:"updated_at" doc:"When it last changed."`
	StartedAt                 *time.Time        `json:"started_at,omitempty" doc:"When it first ran; absent until then."`
	EndedAt                   *time.Time        `json:"ended_at,omitempty" doc:"When it ended; absent while it lives."`
}

// UpdateSandbox changes settings of a sandbox; omitted fields stay.
type UpdateSandbox struct {
	TTLSeconds *int `json:"ttl_seconds,omitempty" minimum:"0" maximum:"86400" doc:"It is destroyed this long after this request, in every state: 60 to 86400 seconds, longer or shorter than before. 0: no limit."`

	CheckpointIntervalSeconds *int `json:"checkpoint_interval_seconds,omitempty" doc:"Time between automatic checkpoints: 60 to 86400. 0: none; its automatic checkpoint is deleted."`
}

// Cause is the reason of a sandbox's end.
type Cause struct {
	Code    string `json:"code" enum:"destroyed,replaced,ttl,idle,paused_ttl,completed,image,start,not_ready,oom,exited,disk_full,host_restart,worker_lost,internal" doc:"For programs."`
	Message string `json:"message" doc:"For people."`
}

// Event is an event of a sandbox.
type Event struct {
	Seq         int64             `json:"seq" doc:"Grows with time; pass the last one as after_seq to list what happens afterwards."`
	SandboxID   string            `json:"sandbox_id" format:"uuid" doc:"The sandbox."`
	SandboxName string            `json:"sandbox_name" doc:"The sandbox's name."`
	Time        time.Time         `json:"time" doc:"When."`
	Type        string            `json:"type" doc:"What, for programs: created, running, image_building, pausing, paused, pause_failed, resuming, resumed, resumed_from_files, resume_failed, checkpoint_created, checkpoint_restored, checkpoint_deleted, checkpoint_failed, checkpoint_interval, rolled_back, forked, ttl, network, snapshot_created, snapshot_tagged, snapshot_deleted, destroying, destroyed, failed, recovered, exec." example:"running"`
	Message     string            `json:"message" doc:"What, for people."`
	Data        map[string]string `json:"data,omitempty" doc:"The facts."`
}

// Stats is a moment's use of a sandbox.
type Stats struct {
	Time          time.Time `json:"time" doc:"When it was measured."`
	MemoryBytes   int64     `json:"memory_bytes" doc:"Memory in use."`
	MemoryLimit   int64     `json:"memory_limit_bytes" doc:"Its memory limit."`
	CPUNanos      int64     `json:"cpu_nanoseconds" doc:"CPU time used since it started."`
	CPULimitMilli int64     `json:"cpu_limit_millicores" doc:"Its CPU limit in thousandths of a core."`
	DiskBytes     int64     `json:"disk_bytes" doc:"What it has written, as far as can be told."`
	DiskLimit     int64     `json:"disk_limit_bytes" doc:"Its disk limit."`
	Processes     int64     `json:"processes" doc:"Processes inside."`
	HostPSSBytes  int64     `json:"host_pss_bytes,omitempty" doc:"Proportional memory of its host processes; absent when unknown."`
	SentBytes     int64     `json:"sent_bytes" doc:"What it has sent to the internet since this server began to serve it."`
	ReceivedBytes int64     `json:"received_bytes" doc:"What it has received from the internet since this server began to serve it."`
}

// SandboxUse is the use of resources by a sandbox, in a message of the stream of events with stats.
type SandboxUse struct {
	SandboxID     string    `json:"sandbox_id" format:"uuid" doc:"The sandbox."`
	Time          time.Time `json:"time" doc:"When it was measured."`
	CPUNanos      int64     `json:"cpu_nanoseconds" doc:"CPU time used so far. The use between two messages is the difference."`
	MemoryBytes   int64     `json:"memory_bytes" doc:"Memory in use."`
	SentBytes     int64     `json:"sent_bytes" doc:"What it has sent to the internet so far."`
	ReceivedBytes int64     `json:"received_bytes" doc:"What it has received from the internet so far."`
	DiskBytes     *int64    `json:"disk_bytes,omitempty" doc:"What it has written; only in a stream of one sandbox."`
	Processes     *int64    `json:"processes,omitempty" doc:"Processes inside; only in a stream of one sandbox."`
}

// Image is an image that sandboxes can be made from.
type Image struct {
	ID            string    `json:"id" doc:"Its identifier."`
	Name          string    `json:"name" doc:"Its name." example:"modbox/code-exec"`
	Tag           string    `json:"tag" doc:"Its tag." example:"latest"`
	Ref           string    `json:"ref" doc:"Name and tag, as passed to create." example:"modbox/code-exec:latest"`
	Digest        string    `json:"digest" doc:"Content address of its root file system; empty when it is not built yet."`
	Description   string    `json:"description" doc:"What is in it."`
	Builtin       bool      `json:"builtin" doc:"Comes with Modbox; in every workspace."`
	IsDefault     bool      `json:"is_default" doc:"Used when a request names no image."`
	SizeBytes     int64     `json:"size_bytes" doc:"Size of its root file system."`
	Memory        string    `json:"memory" doc:"Default memory limit." example:"512Mi"`
	ReadinessPort int       `json:"readiness_port,omitempty" doc:"Default readiness port; absent without one."`
	TTLSeconds    int64     `json:"ttl_seconds" doc:"Default ttl; 0 means no limit."`
	CreatedAt     time.Time `json:"created_at" doc:"When it was registered."`
	UpdatedAt     time.Time `json:"updated_at" doc:"When it last changed."`

	Base   string       `json:"base,omitempty" doc:"The image of the workspace whose layers are the first of its layers; absent in lists, and if there is none."`
	Layers []ImageLayer `json:"layers,omitempty" nullable:"false" doc:"What it was made of, the lowest first; absent in lists, and until it is built. Its root file system is a single file: its size is not the sum of theirs."`
}

// ImageLayer is a step in the making of an image.
type ImageLayer struct {
	Digest    string     `json:"digest,omitempty" doc:"Of the compressed layer; absent for a step that changed no file."`
	SizeBytes int64      `json:"size_bytes" doc:"Size of the compressed layer."`
	CreatedBy string     `json:"created_by,omitempty" doc:"The instruction that made it, at most 1000 characters of it; absent when the image does not say." example:"RUN apt-get update"`
	CreatedAt *time.Time `json:"created_at,omitempty" doc:"When, as the image says."`
	Base      bool       `json:"base" doc:"It belongs to base."`
}

// ImagePull names an image to pull.
type ImagePull struct {
	Image string `json:"image" minLength:"1" doc:"REGISTRY/REPOSITORY:TAG or @DIGEST; the registry may be left out when the server has a default one." example:"ghcr.io/org/app:v1"`
}

// The types of messages about a pull, beside StreamError and ping.
const (
	PullProgress = "progress"
	PullDone     = "done"
)

// ImageProgress is a message about a pull.
type ImageProgress struct {
	Type    string `json:"type" enum:"progress,done,error,ping" doc:"What it is."`
	Phase   string `json:"phase,omitempty" doc:"Of progress: waiting, pulling or writing, among others."`
	Done    int64  `json:"done,omitempty" doc:"Of progress: how much is done. The phase determines its unit: bytes of layers while pulling and pushing, else packages or files."`
	Total   int64  `json:"total,omitempty" doc:"Of progress: what done counts up to; absent when it is not known. It may grow."`
	Message string `json:"message,omitempty" doc:"Of progress and error: what happens."`
	Code    string `json:"code,omitempty" doc:"Of error: the error's code."`
	Image   *Image `json:"image,omitempty" doc:"Of done: the image."`
}

// PruneImages says which images to prune.
type PruneImages struct {
	All    bool `json:"all,omitempty" doc:"Images of all workspaces, and unused pulled images; for administrators of the installation."`
	DryRun bool `json:"dry_run,omitempty" doc:"Remove nothing, and say what would be."`
}

// PrunedImages are images that were removed, or would be.
type PrunedImages struct {
	Images     []PrunedImage `json:"images" nullable:"false" doc:"What was removed."`
	FreedBytes int64         `json:"freed_bytes" doc:"How much less is on the disk. With all, remains of interrupted pulls and builds count, which a dry run does not see."`
	DryRun     bool          `json:"dry_run" doc:"Whether it only would be."`
}

// PrunedImage is an image that was removed.
type PrunedImage struct {
	Ref         string `json:"ref,omitempty" doc:"The name that it had; absent without one, and for one of another workspace."`
	Digest      string `json:"digest" doc:"Content address of its root file system."`
	SizeBytes   int64  `json:"size_bytes" doc:"Size of its root file system. If another image shares the file system, it stays."`
	WorkspaceID string `json:"workspace_id,omitempty" doc:"The workspace that built it; absent for a pulled or built-in image."`
}
