package wire

// Quota is the limits of a workspace. A limit of 0 is none, except for the limits of a single
// sandbox, which the server limits in any case.
type Quota struct {
	Sandboxes        *int64 `json:"sandboxes,omitempty" minimum:"0" doc:"Sandboxes that may run at the same time; paused sandboxes do not count." example:"20"`
	Memory           string `json:"memory,omitempty" maxLength:"32" doc:"Sum of the memory limits of running sandboxes." example:"16Gi"`
	CPU              string `json:"cpu,omitempty" maxLength:"32" doc:"Sum of the CPU limits of running sandboxes." example:"8"`
	Disk             string `json:"disk,omitempty" maxLength:"32" doc:"Disk: the disk limits of running sandboxes, and the disk use of paused sandboxes, checkpoints, snapshots, output of executions and files of builds." example:"200Gi"`
	Archive          string `json:"archive,omitempty" maxLength:"32" doc:"Size of the states of archived sandboxes in the object store. The state of a sandbox that was resumed or has ended counts until it is removed." example:"1Ti"`
	CreatesPerMinute *int64 `json:"creates_per_minute,omitempty" minimum:"0" doc:"Sandboxes that may be made in a minute, forks included." example:"60"`
	SandboxMemory    string `json:"sandbox_memory,omitempty" maxLength:"32" doc:"The most memory that one sandbox may ask for." example:"4Gi"`
	SandboxCPU       string `json:"sandbox_cpu,omitempty" maxLength:"32" doc:"The most CPU that one sandbox may ask for." example:"2"`
	SandboxDisk      string `json:"sandbox_disk,omitempty" maxLength:"32" doc:"The most disk that one sandbox may ask for." example:"10Gi"`
}

// QuotaReport is the quota of a workspace and its use.
type QuotaReport struct {
	WorkspaceID string    `json:"workspace_id" format:"uuid" doc:"The workspace."`
	Limits      Quota     `json:"limits" doc:"The limits that count, all of them; 0 is none."`
	Set         Quota     `json:"set" doc:"Those of them that an administrator has set for this workspace; the others are the server's defaults."`
	Used        QuotaUsed `json:"used" doc:"What is used."`
}

// QuotaUsed is the part of a quota that a workspace uses.
type QuotaUsed struct {
	Sandboxes int64   `json:"sandboxes" doc:"Sandboxes that are being made, run, or are being paused or resumed."`
	Memory    string  `json:"memory" doc:"Memory of sandboxes and builds." example:"2Gi"`
	CPU       string  `json:"cpu" doc:"CPU of sandboxes and builds." example:"1500m"`
	Disk      string  `json:"disk" doc:"The sum of disk_by." example:"11Gi"`
	Archive   string  `json:"archive" doc:"States of archived sandboxes in the object store." example:"30Gi"`
	DiskBy    DiskUse `json:"disk_by" doc:"What the disk is used for, in bytes."`
}

// DiskUse is the bytes of a workspace on the server's disk.
type DiskUse struct {
	SandboxBytes    int64 `json:"sandbox_bytes" doc:"What sandboxes that are not paused may write: their limits."`
	PausedBytes     int64 `json:"paused_bytes" doc:"What paused sandboxes take, with their memory."`
	CheckpointBytes int64 `json:"checkpoint_bytes" doc:"What checkpoints take."`
	SnapshotBytes   int64 `json:"snapshot_bytes" doc:"What snapshots take: the sum of what each adds to its base. Pulled and imported images, deleted snapshots and snapshots of others that lie below them count too, each once."`
	StreamBytes     int64 `json:"stream_bytes" doc:"What output and input of executions took when it was last measured, which is every minute."`
	BuildBytes      int64 `json:"build_bytes" doc:"What the boxes of builds and installs that are under way may write: their limits."`
	UploadBytes     int64 `json:"upload_bytes" doc:"What the files of builds take that are not finished."`
	ImageBytes      int64 `json:"image_bytes" doc:"What the images take that the workspace has built: their root filesystems, and their layers as a registry gets them."`
	BuildCacheBytes int64 `json:"build_cache_bytes" doc:"Build cache: cached layers, images that lost their names, and installed packages that the workspace has used. It is removed when the space is needed, the oldest first, except images in use or used within ten minutes."`
}
