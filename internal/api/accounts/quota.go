package accounts

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Quotas are the routes of the quotas of workspaces.
type Quotas struct{ Service *quota.Controller }

type setQuotaInput struct {
	WorkspaceRef
	Body wire.Quota
}

// Register adds the routes.
func (h *Quotas) Register(m *route.Mux) {
	const one = "/v1/workspaces/{workspace}/quota"
	tags := []string{"workspaces"}
	route.JSON(m, huma.Operation{
		OperationID: "get-quota", Method: http.MethodGet, Path: one, Tags: tags,
		Summary: "Get a workspace's quota", Description: "With what is used of it. For members, and administrators of the installation.",
	}, h.getQuota)
	route.JSON(m, huma.Operation{
		OperationID: "set-quota", Method: http.MethodPut, Path: one, Tags: tags,
		Summary: "Set a workspace's quota", Description: "Replaces the limits that were set before; omitted limits are the server's default from then on. Existing objects stay. For administrators of the installation.",
	}, h.setQuota)
}

func (h *Quotas) getQuota(ctx context.Context, _ *WorkspaceRef) (*route.Body[wire.QuotaReport], error) {
	id, _ := auth.FromContext(ctx)
	report, err := h.Service.Report(ctx, id.Workspace)
	if err != nil {
		return nil, err
	}
	return route.Reply(quotaReport(id.Workspace, report)), nil
}

func (h *Quotas) setQuota(ctx context.Context, in *setQuotaInput) (*route.Body[wire.QuotaReport], error) {
	id, _ := auth.FromContext(ctx)
	q, err := parseQuota(&in.Body)
	if err != nil {
		return nil, err
	}
	report, err := h.Service.Set(ctx, id.Workspace, q)
	if err != nil {
		return nil, err
	}
	return route.Reply(quotaReport(id.Workspace, report)), nil
}

// quotaFields are the limits that are written as quantities.
var quotaFields = []struct {
	limit  quota.Limit
	of     func(*wire.Quota) *string
	value  func(*resource.Quantity) int64
	format func(int64) string
}{
	{quota.LimitMemory, func(q *wire.Quota) *string { return &q.Memory }, (*resource.Quantity).Value, quantity.Bytes},
	{quota.LimitCPU, func(q *wire.Quota) *string { return &q.CPU }, (*resource.Quantity).MilliValue, quantity.Milli},
	{quota.LimitDisk, func(q *wire.Quota) *string { return &q.Disk }, (*resource.Quantity).Value, quantity.Bytes},
	{quota.LimitArchive, func(q *wire.Quota) *string { return &q.Archive }, (*resource.Quantity).Value, quantity.Bytes},
	{quota.LimitSandboxMemory, func(q *wire.Quota) *string { return &q.SandboxMemory }, (*resource.Quantity).Value, quantity.Bytes},
	{quota.LimitSandboxCPU, func(q *wire.Quota) *string { return &q.SandboxCPU }, (*resource.Quantity).MilliValue, quantity.Milli},
	{quota.LimitSandboxDisk, func(q *wire.Quota) *string { return &q.SandboxDisk }, (*resource.Quantity).Value, quantity.Bytes},
}

// parseQuota reads a quota; the result lacks the omitted limits.
func parseQuota(in *wire.Quota) (quota.Limits, error) {
	q := quota.Limits{}
	if in.Sandboxes != nil {
		q[quota.LimitSandboxes] = *in.Sandboxes
	}
	if in.CreatesPerMinute != nil {
		q[quota.LimitCreates] = *in.CreatesPerMinute
	}
	for _, f := range quotaFields {
		switch text := *f.of(in); text {
		case "":
		case "0":
			q[f.limit] = 0
		default:
			n, err := quantity.Parse(string(f.limit), text, f.value)
			if err != nil {
				return nil, err
			}
			q[f.limit] = n
		}
	}
	return q, nil
}

// formatQuota writes the limits that q has.
func formatQuota(q quota.Limits) wire.Quota {
	var out wire.Quota
	count := func(limit quota.Limit) *int64 {
		if n, ok := q[limit]; ok {
			return &n
		}
		return nil
	}
	out.Sandboxes, out.CreatesPerMinute = count(quota.LimitSandboxes), count(quota.LimitCreates)
	for _, f := range quotaFields {
		if n, ok := q[f.limit]; ok {
			*f.of(&out) = f.format(n)
		}
	}
	return out
}

func quotaReport(ws sandbox.WorkspaceID, r quota.Report) wire.QuotaReport {
	all := quota.Limits{}
	for _, limit := range quota.AllLimits {
		all[limit] = r.Limits[limit]
	}
	d := r.Used.Disk
	return wire.QuotaReport{
		WorkspaceID: string(ws), Limits: formatQuota(all), Set: formatQuota(r.Set),
		Used: wire.QuotaUsed{
			Sandboxes: r.Used.Sandboxes, Memory: quantity.Bytes(r.Used.MemoryBytes), CPU: quantity.Milli(r.Used.CPUMilli), Disk: quantity.Bytes(d.Total()), Archive: quantity.Bytes(r.Used.ArchiveBytes),
			DiskBy: wire.DiskUse{
				SandboxBytes: d.Sandboxes, PausedBytes: d.Paused, CheckpointBytes: d.Checkpoints, SnapshotBytes: d.Snapshots, StreamBytes: d.Streams,
				BuildBytes: d.Builds, UploadBytes: d.Uploads, ImageBytes: d.Images, BuildCacheBytes: d.BuildCache,
			},
		},
	}
}
