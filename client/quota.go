package client

import (
	"context"
	"net/http"

	"github.com/modbox/modbox/client/wire"
)

// Quota is the limits of a workspace, in Kubernetes notation where they are
// sizes. A limit of 0 is none; one that is nil or "" is left to the server's default.
type Quota = wire.Quota

// QuotaReport is the quota of a workspace and what is used of it.
type QuotaReport = wire.QuotaReport

// QuotaUsed is what a workspace has of what its quota limits.
type QuotaUsed = wire.QuotaUsed

// DiskUse is what the disk of a workspace is used for, in bytes.
type DiskUse = wire.DiskUse

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
