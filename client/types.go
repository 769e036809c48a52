package client

import "time"

// State says where a sandbox is in its life.
type State string

// The states, in the order of a life.
const (
	Provisioning State = "provisioning"
	Running      State = "running"
	Pausing      State = "pausing"
	Paused       State = "paused"
	Resuming     State = "resuming"
	Destroying   State = "destroying"
	Destroyed    State = "destroyed"
	Failed       State = "failed"
)

// Ended reports whether nothing can happen to the sandbox any more.
func (s State) Ended() bool { return s == Destroyed || s == Failed }

// Sandbox is one sandbox as the server saw it when it answered.
type Sandbox struct {
	ID      string         `json:"id"`
	Name    string         `json:"name"`
	State   State          `json:"state"`
	URL     string         `json:"url"` // leads to its first published port, its readiness port, or 8080
	Network SandboxNetwork `json:"network"`
	// URLAccess names the credential for the management routes on its own URL; its
	// workspace and the server may demand more.
	URLAccess     URLAccess         `json:"url_access"`
	Image         string            `json:"image"`
	ImageDigest   string            `json:"image_digest"`
	ImageID       string            `json:"image_id,omitempty"` // the image's, or that of the catalogue's entry asked for
	AptPackages   []string          `json:"apt_packages,omitempty"`
	NpmPackages   []string          `json:"npm_packages,omitempty"`
	Labels        map[string]string `json:"labels"`
	Resources     Resources         `json:"resources"`
	ReadinessPort int               `json:"readiness_port,omitempty"`
	TTLSeconds    int64             `json:"ttl_seconds"` // 0: no limit
	Deadline      *time.Time        `json:"deadline"`    // nil: none
	Timeouts      Timeouts          `json:"timeouts"`
	LastActivity  *time.Time        `json:"last_activity_at"`
	// CheckpointIntervalSeconds is the time between its automatic checkpoints, 0 for none;
	// LastCheckpointAt is the time of the checkpoint that it has, nil for none.
	CheckpointIntervalSeconds int64             `json:"checkpoint_interval_seconds"`
	LastCheckpointAt          *time.Time        `json:"last_checkpoint_at"`
	IdleDeadline              *time.Time        `json:"idle_deadline"`                // nil: none, or it does not run
	PausedAt                  *time.Time        `json:"paused_at"`                    // nil unless it is paused
	PausedUntil               *time.Time        `json:"paused_deadline"`              // nil: none, or it is not paused
	MemoryLostReason          string            `json:"memory_lost_reason,omitempty"` // why its last resume started it anew with its files
	Parent                    string            `json:"parent_id,omitempty"`
	SnapshotID                string            `json:"snapshot_id,omitempty"` // what it was made from; "" for an image
	Description               string            `json:"description,omitempty"`
	Metadata                  map[string]string `json:"metadata,omitempty"`
	Cause                     *Cause            `json:"cause"` // why it ended; nil while it lives
	CreatedBy                 string            `json:"created_by"`
	CreatedAt                 time.Time         `json:"created_at"`
	UpdatedAt                 time.Time         `json:"updated_at"`
	StartedAt                 *time.Time        `json:"started_at"`
	EndedAt                   *time.Time        `json:"ended_at"`
	WorkspaceID               string            `json:"workspace_id"`
}

// Cause is why a sandbox ended.
type Cause struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Resources are limits as Kubernetes quantities: memory "512Mi", cpu "500m" or
// "2", disk "2Gi". Empty fields of a request get the image's or server's default.
type Resources struct {
	Memory string `json:"memory,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	Disk   string `json:"disk,omitempty"`
}

// CreateOptions says what sandbox to make; the zero value is the default image with default limits.
type CreateOptions struct {
	// Name is the caller's own identifier; the server makes one up when it is empty.
	// The same create with the name of a live sandbox answers that one.
	Name    string
	Image   string // e.g. "modbox/code-exec"
	ImageID string // of an image, or of one of the catalogue, whose defaults count then
	// Snapshot, instead of an image, is an id, name, name:tag or @workspace/name:tag.
	Snapshot string
	Env      map[string]string
	Labels   map[string]string
	// TTL is how long it may live, whole seconds; 0 is the image's default.
	TTL       time.Duration
	Resources Resources
	// Timeouts are the clocks beside the TTL.
	Timeouts Timeouts
	// CheckpointInterval is the time between automatic checkpoints, 1 minute to 24 hours in
	// whole seconds; 0 means none.
	CheckpointInterval time.Duration
	// Network is none unless asked for.
	Network Network
	// URLAccess names the credential for the management routes on its own URL; "" is [URLKey].
	URLAccess URLAccess
	// AptPackages are Debian packages ("ffmpeg", "curl=8.14*") and NpmPackages npm
	// packages ("typescript@5") to have installed in it before it runs. The server
	// keeps what comes out for the next sandbox with the same ones.
	AptPackages, NpmPackages []string
	// Description and Metadata are your own words about it.
	Description string
	Metadata    map[string]string
	// Command is started as an execution, as Execution says, as soon as the sandbox
	// runs; with OneShot the sandbox ends with it. Executions lists it at once.
	Command   *Command
	Execution ExecutionOptions
	OneShot   bool
	// Replace ends a live sandbox of the same name first.
	Replace bool
	// WaitUpTo, when not 0, makes the call answer only when the sandbox runs or has
	// ended, or this time is over; at most 10 minutes.
	WaitUpTo time.Duration
	// WaitForQuota bounds the time for which the server waits for room in the workspace's quota;
	// at most 10 minutes. 0 answers QuotaExceeded at once.
	WaitForQuota time.Duration
	// IdempotencyKey makes repeated creates one; empty: a new one for this call.
	IdempotencyKey string
}

// ListOptions selects sandboxes; the zero value selects all that have not ended.
type ListOptions struct {
	States []State
	Name   string
	Labels map[string]string
	// SnapshotID is of what they were made from.
	SnapshotID string
}

// Command is a command to run. Exactly one of Argv and Shell is set.
type Command struct {
	Argv  []string // program and arguments
	Shell string   // a line for the shell
	Cwd   string
	Env   map[string]string
	User  string
	// Stdin is what the command reads, for Exec and Stream; nil is /dev/null.
	Stdin []byte
	// Timeout ends the command; 0 is the server's default.
	Timeout time.Duration
	// MaxOutput is how many bytes of each of stdout and stderr Exec keeps; 0 is the server's default.
	MaxOutput int64
}

// ExecResult is how a command ended, and its output.
type ExecResult struct {
	ExitCode        int    `json:"exit_code"`
	Signal          int    `json:"signal,omitempty"`
	TimedOut        bool   `json:"timed_out"`
	Stdout          []byte `json:"stdout"`
	Stderr          []byte `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated"`
	StderrTruncated bool   `json:"stderr_truncated"`
	DurationMS      int64  `json:"duration_ms"`
}

// Exit is how a streamed command ended.
type Exit struct {
	ExitCode   int   `json:"exit_code"`
	Signal     int   `json:"signal,omitempty"`
	TimedOut   bool  `json:"timed_out,omitempty"`
	DurationMS int64 `json:"duration_ms"`
}

// FileInfo describes a path in a sandbox.
type FileInfo struct {
	Name    string    `json:"name"`
	Path    string    `json:"path"`
	Type    string    `json:"type"` // file, directory, symlink or other
	Size    int64     `json:"size"`
	Mode    string    `json:"mode"` // permission bits in octal, e.g. "0644"
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a symlink
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	Mode    uint32 // permission bits of a new file; 0 is 0644
	User    string // owner of a new file
	Parents bool   // make missing parent directories
}

// Event is something that happened to a sandbox.
type Event struct {
	Seq       int64             `json:"seq"`
	SandboxID string            `json:"sandbox_id"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type"`
	Message   string            `json:"message"`
	Data      map[string]string `json:"data,omitempty"`
}

// EventsOptions selects events; the zero value selects all, oldest first.
type EventsOptions struct {
	AfterSeq   int64 // only events with a larger Seq
	Descending bool
}

// Stats is a moment's use of a sandbox. Fields the host cannot tell are 0.
type Stats struct {
	Time          time.Time `json:"time"`
	MemoryBytes   int64     `json:"memory_bytes"`
	MemoryLimit   int64     `json:"memory_limit_bytes"`
	CPUNanos      int64     `json:"cpu_nanoseconds"`
	CPULimitMilli int64     `json:"cpu_limit_millicores"`
	DiskBytes     int64     `json:"disk_bytes"`
	DiskLimit     int64     `json:"disk_limit_bytes"`
	Processes     int64     `json:"processes"`
	HostPSSBytes  int64     `json:"host_pss_bytes,omitempty"`
}

// Image is an image that sandboxes can be made from.
type Image struct {
	ID            string    `json:"id"`
	Name          string    `json:"name"`
	Tag           string    `json:"tag"`
	Ref           string    `json:"ref"`    // name:tag
	Digest        string    `json:"digest"` // "" while it is not built
	Description   string    `json:"description"`
	Builtin       bool      `json:"builtin"`
	IsDefault     bool      `json:"is_default"`
	SizeBytes     int64     `json:"size_bytes"`
	Memory        string    `json:"memory"` // default limit, e.g. "512Mi"
	ReadinessPort int       `json:"readiness_port,omitempty"`
	TTLSeconds    int64     `json:"ttl_seconds,omitempty"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// Token is an API token as listed; its secret is shown only once, by CreateToken.
type Token struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	WorkspaceID string `json:"workspace_id"`
	// WorkspaceOnly tokens keep out of their user's other workspaces.
	WorkspaceOnly bool `json:"workspace_only"`
	// Scopes are what it may do; none means all that its user may.
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // within a few minutes; nil when never
	ExpiresAt  *time.Time `json:"expires_at"`   // nil: never
}

// NewToken is a token just made.
type NewToken struct {
	Token
	Secret string `json:"token"` // mbx_…
}

// Identity is who a token speaks for.
type Identity struct {
	UserID      string `json:"user_id"`
	Name        string `json:"name"`
	Email       string `json:"email"`
	WorkspaceID string `json:"workspace_id"`
	TokenID     string `json:"token_id"` // empty for a session
	Role        string `json:"role"`
	// Administrator is whether the user looks after the installation.
	Administrator bool `json:"administrator"`
	// Permissions are what the caller may do in the workspace.
	Permissions []string `json:"permissions"`
}

// Version is what a server says about itself.
type Version struct {
	Version string `json:"version"`
	Driver  string `json:"driver"` // what runs its sandboxes
}
