package wire

// Quota is the limits of a workspace. A limit of 0 is none, except for those of one
// sandbox, which the server limits in any case.
type Quota struct {
	Sandboxes        *int64 `json:"sandboxes,omitempty" minimum:"0" doc:"Sandboxes that may run at the same time; paused ones do not count." example:"20"`
	Memory           string `json:"memory,omitempty" maxLength:"32" doc:"Memory that the running ones may be limited to, together." example:"16Gi"`
	CPU              string `json:"cpu,omitempty" maxLength:"32" doc:"CPU that the running ones may be limited to, together." example:"8"`
	Disk             string `json:"disk,omitempty" maxLength:"32" doc:"Disk: what the running ones may write, and what paused ones, checkpoints, snapshots, output of executions and files of builds take." example:"200Gi"`
	CreatesPerMinute *int64 `json:"creates_per_minute,omitempty" minimum:"0" doc:"Sandboxes that may be made in a minute, forks included." example:"60"`
	SandboxMemory    string `json:"sandbox_memory,omitempty" maxLength:"32" doc:"The most memory that one sandbox may ask for." example:"4Gi"`
	SandboxCPU       string `json:"sandbox_cpu,omitempty" maxLength:"32" doc:"The most CPU that one sandbox may ask for." example:"2"`
	SandboxDisk      string `json:"sandbox_disk,omitempty" maxLength:"32" doc:"The most disk that one sandbox may ask for." example:"10Gi"`
}

// QuotaReport is what a workspace may have and what it has of it.
type QuotaReport struct {
	WorkspaceID string    `json:"workspace_id" format:"uuid" doc:"The workspace."`
	Limits      Quota     `json:"limits" doc:"The limits that count, all of them; 0 is none."`
	Set         Quota     `json:"set" doc:"Those of them that an administrator has set for this workspace; the others are the server's defaults."`
	Used        QuotaUsed `json:"used" doc:"What is used."`
}

// QuotaUsed is what a workspace has of what its quota limits.
type QuotaUsed struct {
	Sandboxes int64   `json:"sandboxes" doc:"Sandboxes that are being made, run, or are being paused or resumed."`
	Memory    string  `json:"memory" doc:"Their memory, and that of builds." example:"2Gi"`
	CPU       string  `json:"cpu" doc:"Their CPU, and that of builds." example:"1500m"`
	Disk      string  `json:"disk" doc:"The sum of disk_by." example:"11Gi"`
	DiskBy    DiskUse `json:"disk_by" doc:"What the disk is used for, in bytes."`
}

// DiskUse is the bytes of a workspace on the server's disk.
type DiskUse struct {
	Sandboxes   int64 `json:"sandboxes" doc:"What sandboxes that are not paused may write: their limits."`
	Paused      int64 `json:"paused" doc:"What paused sandboxes take, with their memory."`
	Checkpoints int64 `json:"checkpoints" doc:"What checkpoints take."`
	Snapshots   int64 `json:"snapshots" doc:"What snapshots take, each with its whole root filesystem."`
	Streams     int64 `json:"streams" doc:"What output and input of executions took when it was last measured, which is every minute."`
	Builds      int64 `json:"builds" doc:"What the boxes of builds and installs that are under way may write: their limits."`
	Uploads     int64 `json:"uploads" doc:"What the files of builds take that are not finished."`
	Images      int64 `json:"images" doc:"What the images take that the workspace has built: their root filesystems, and their layers as a registry gets them."`
	BuildCache  int64 `json:"build_cache" doc:"What builds have left beside them: cached layers, images that lost their names, and installed packages that it has used. What needs the room has it removed, the oldest first, except what is in use or was used within ten minutes."`
}
