package client

import (
	"context"
	"net/http"
)

// Quota is the limits of a workspace, in Kubernetes notation where they are
// sizes. A limit of 0 is none; one that is nil or "" is left to the server's default.
type Quota struct {
	Sandboxes        *int64 `json:"sandboxes,omitempty"` // that run at the same time
	Memory           string `json:"memory,omitempty"`    // of those together
	CPU              string `json:"cpu,omitempty"`
	Disk             string `json:"disk,omitempty"` // of everything the workspace keeps
	CreatesPerMinute *int64 `json:"creates_per_minute,omitempty"`
	// The most that one sandbox may ask for.
	SandboxMemory string `json:"sandbox_memory,omitempty"`
	SandboxCPU    string `json:"sandbox_cpu,omitempty"`
	SandboxDisk   string `json:"sandbox_disk,omitempty"`
}

// QuotaReport is the quota of a workspace and what is used of it.
type QuotaReport struct {
	WorkspaceID string `json:"workspace_id"`
	// Limits are those that count, all of them; Set are those of them that were set
	// for the workspace.
	Limits Quota     `json:"limits"`
	Set    Quota     `json:"set"`
	Used   QuotaUsed `json:"used"`
}

// QuotaUsed is what a workspace has of what its quota limits.
type QuotaUsed struct {
	Sandboxes int64   `json:"sandboxes"`
	Memory    string  `json:"memory"`
	CPU       string  `json:"cpu"`
	Disk      string  `json:"disk"` // the sum of DiskBy
	DiskBy    DiskUse `json:"disk_by"`
}

// DiskUse is what the disk of a workspace is used for, in bytes.
type DiskUse struct {
	Sandboxes   int64 `json:"sandboxes"` // the limits of those that are not paused
	Paused      int64 `json:"paused"`    // with their memory
	Checkpoints int64 `json:"checkpoints"`
	Snapshots   int64 `json:"snapshots"`
	Streams     int64 `json:"streams"`     // output and input of executions
	Builds      int64 `json:"builds"`      // the limits of builds and installs that are under way
	Uploads     int64 `json:"uploads"`     // files of builds
	Images      int64 `json:"images"`      // that were built
	BuildCache  int64 `json:"build_cache"` // what builds have left, and installed packages, which go when something needs the room
}

// Quota returns the quota of a workspace and what is used of it. Errors: NotFound.
func (c *Client) Quota(ctx context.Context, workspace string) (*QuotaReport, error) {
	q := new(QuotaReport)
	return result(q, c.call(ctx, request{method: http.MethodGet, path: workspacePath(workspace, "/quota"), repeat: true}, q))
}

// SetQuota replaces what was set for a workspace. It is for administrators of the
// installation. Errors: Invalid, naming the limit; NotFound; Forbidden.
func (c *Client) SetQuota(ctx context.Context, workspace string, quota Quota) (*QuotaReport, error) {
	q := new(QuotaReport)
	return result(q, c.call(ctx, request{method: http.MethodPut, path: workspacePath(workspace, "/quota"), body: quota, repeat: true}, q))
}
