package wire

import "time"

// Host is the answer to GET /v1/host.
type Host struct {
	Version string `json:"version" doc:"Version of the server."`
	Driver  string `json:"driver" doc:"What runs its sandboxes." example:"gvisor"`
	// Platform is empty for drivers that have no platforms.
	Platform       string          `json:"platform,omitempty" doc:"What runs the programs of new sandboxes: gVisor's platform, systrap or kvm." example:"systrap"`
	PlatformReason string          `json:"platform_reason,omitempty" doc:"Why this platform was chosen." example:"sandbox.platform is systrap"`
	StartedAt      time.Time       `json:"started_at" doc:"When the server was started; operations are counted since then."`
	Cores          int             `json:"cores" doc:"Processor cores of the machine."`
	Memory         HostResource    `json:"memory" doc:"Its memory."`
	Disk           HostResource    `json:"disk" doc:"The disk of the state directory."`
	DiskPressure   bool            `json:"disk_pressure" doc:"The server frees disk, because less than disk.evict_below is free."`
	Sandboxes      []HostSandboxes `json:"sandboxes" nullable:"false" doc:"Sandboxes of all workspaces that have not ended, by state."`
	Images         []HostImages    `json:"images" nullable:"false" doc:"Root filesystems on the disk, by kind."`
	Pool           *HostPool       `json:"pool,omitempty" doc:"Boxes that are started before they are asked for; absent when pool.size is 0."`
	Templates      *HostTemplates  `json:"templates,omitempty" doc:"Memory templates, from which new sandboxes are restored; absent when template.max_bytes is 0."`
	Waiting        HostWaiting     `json:"waiting" doc:"What is under way or waits."`
	DatabaseBytes  int64           `json:"database_bytes" doc:"Size of the database with its log."`
	Operations     []HostOperation `json:"operations" nullable:"false" doc:"How long operations took, the slowest first."`
}

// HostResource says how much of a resource there is, and how much of it is promised and used.
type HostResource struct {
	TotalBytes       int64 `json:"total_bytes" doc:"What the machine has."`
	FreeBytes        int64 `json:"free_bytes,omitempty" doc:"What is free; absent for memory."`
	PromisedBytes    int64 `json:"promised_bytes" doc:"Sum of the limits of all running sandboxes and builds."`
	PromisedMaxBytes int64 `json:"promised_max_bytes" doc:"How much may be promised; 0 for no limit."`
	UsedBytes        int64 `json:"used_bytes" doc:"What boxes use of it: memory as last measured."`
}

// HostSandboxes is the number of sandboxes in a state.
type HostSandboxes struct {
	State string `json:"state" doc:"The state."`
	Count int64  `json:"count" doc:"How many there are."`
}

// HostImages is the number and size of the root filesystems of a kind.
type HostImages struct {
	Kind      string `json:"kind" doc:"built_in, pulled, built, or cache without a name."`
	Count     int64  `json:"count" doc:"How many there are."`
	SizeBytes int64  `json:"size_bytes" doc:"Their size."`
}

// HostPool says how the pool of started boxes does.
type HostPool struct {
	Boxes      int64 `json:"boxes" doc:"Started boxes that wait for a sandbox."`
	BlankBoxes int64 `json:"blank_boxes" doc:"How many of them fit any image; the others are each of one image."`
	Hits       int64 `json:"hits" doc:"New sandboxes that got one of them."`
	Misses     int64 `json:"misses" doc:"New sandboxes for which none was there."`
}

// HostTemplates says how the memory templates do.
type HostTemplates struct {
	Count     int64 `json:"count" doc:"Memory templates that are ready."`
	SizeBytes int64 `json:"size_bytes" doc:"Their size."`
	Hits      int64 `json:"hits" doc:"Sandboxes, and boxes of the pool, that were restored from one."`
	Misses    int64 `json:"misses" doc:"Those of such images that none was there for."`
	Failed    int64 `json:"failed" doc:"Restores that failed; the box was made without."`
}

// HostWaiting counts what is under way or waits.
type HostWaiting struct {
	Requests   int64 `json:"requests" doc:"Requests that wait for a quota or for capacity."`
	Builds     int64 `json:"builds" doc:"Builds of Dockerfiles and pushes."`
	ImageTasks int64 `json:"image_tasks" doc:"Pulls of images and installs of packages."`
	Executions int64 `json:"executions" doc:"Commands that outlive their request."`
}

// HostOperation says how long an operation took since the start of the server.
type HostOperation struct {
	Operation   string  `json:"operation" doc:"What it is, such as create, pause or exec."`
	Phase       string  `json:"phase,omitempty" doc:"The part of it; absent for the whole."`
	Count       int64   `json:"count" doc:"How often it ended."`
	Failed      int64   `json:"failed" doc:"How often an error of the server ended it."`
	MeanSeconds float64 `json:"mean_seconds" doc:"Mean time."`
	P50Seconds  float64 `json:"p50_seconds" doc:"Half of them took no longer; estimated from the buckets of the metric."`
	P95Seconds  float64 `json:"p95_seconds" doc:"19 of 20 took no longer; estimated likewise."`
}
