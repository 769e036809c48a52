package client

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/client/wire"
)

// Quota is the limits of a workspace; sizes are Kubernetes quantities. A limit of 0 is none; nil or
// "" is the server's default.
type Quota = wire.Quota

// QuotaReport is the quota of a workspace and its use.
type QuotaReport = wire.QuotaReport

// QuotaUsed is the part of a quota that a workspace uses.
type QuotaUsed = wire.QuotaUsed

// DiskUse is the disk use of a workspace by purpose, in bytes.
type DiskUse = wire.DiskUse

// Quota returns the quota of a workspace and its use. Errors: NotFound.
func (c *Workspaces) Quota(ctx context.Context, workspace string) (*QuotaReport, error) {
	return fetch[QuotaReport](ctx, c.transport, request{method: http.MethodGet, path: workspacePath(workspace, "/quota"), repeat: true})
}

// SetQuota replaces the limits that are set for a workspace. For administrators of the
// installation. Errors: Invalid, naming the limit; NotFound; Forbidden.
func (c *Workspaces) SetQuota(ctx context.Context, workspace string, quota Quota) (*QuotaReport, error) {
	return fetch[QuotaReport](ctx, c.transport, request{method: http.MethodPut, path: workspacePath(workspace, "/quota"), body: quota, repeat: true})
}
