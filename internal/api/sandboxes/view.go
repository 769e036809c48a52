package sandboxes

import (
	"cmp"
	"context"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

// View shows sandboxes to clients.
type View struct {
	// URL returns the URL for the host label of a sandbox or of a published port.
	URL func(label string) string
	// Worker returns the name of the worker of a sandbox, "" for none; nil if sandboxes run on the server's machine.
	Worker func(sandbox.ID) string

	administrator bool // see [View.of]
}

// of returns the view of the caller of a request. Only administrators of the installation see the workers of sandboxes.
func (v View) of(ctx context.Context) View {
	id, _ := auth.FromContext(ctx)
	v.administrator = id.May(account.Administer)
	return v
}

// sandbox returns the public side of sb: its environment stays inside.
func (v View) sandbox(sb sandbox.Sandbox) wire.Sandbox {
	out := wire.Sandbox{
		ID: string(sb.ID), Name: sb.Name, State: wire.State(sb.State), URL: v.url(sb.HostLabel),
		Image: sb.Image, ImageDigest: sb.ImageDigest, ImageID: string(sb.ImageID), Labels: sb.Labels, Resources: quantity.FormatResources(sb.Resources),
		ReadinessPort: int(sb.ReadinessPort), TTLSeconds: int64(sb.TTL / time.Second),
		AptPackages: sb.AptPackages, NpmPackages: sb.NpmPackages, PipPackages: sb.PipPackages,
		CreatedBy: string(sb.CreatedBy), WorkspaceID: string(sb.Workspace), Network: v.network(&sb), URLAccess: wire.URLAccess(cmp.Or(sb.URLAccess, sandbox.URLOpen)),
		CreatedAt: sb.CreatedAt, UpdatedAt: sb.UpdatedAt, StartedAt: route.Optional(sb.StartedAt), EndedAt: route.Optional(sb.EndedAt),
		Timeouts: formatTimeouts(sb.Timeouts), LastActivity: route.Optional(sb.LastActivityAt), CheckpointIntervalSeconds: int64(sb.CheckpointInterval / time.Second), LastCheckpointAt: route.Optional(sb.LastCheckpointAt), PausedAt: route.Optional(sb.PausedAt), ArchivedAt: route.Optional(sb.ArchivedAt), MemoryLostReason: sb.MemoryLost, PausedWithoutMemory: sb.State == sandbox.Paused && sb.FilesOnly,
		Parent: string(sb.Parent), SnapshotID: string(sb.Snapshot), Description: sb.Description, Metadata: sb.Metadata,
	}
	if d, ok := sb.IdleDeadline(); ok {
		out.IdleDeadline = &d
	}
	if d, ok := sb.PausedDeadline(); ok {
		out.PausedUntil = &d
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if d, ok := sb.Deadline(); ok {
		out.Deadline = &d
	}
	if v.administrator && v.Worker != nil {
		out.Worker = v.Worker(sb.ID)
	}
	if sb.Cause != nil {
		out.Cause = &wire.Cause{Code: string(sb.Cause.Code), Message: sb.Cause.Message}
	}
	return out
}

// url is the URL for the label of a sandbox or of a published port; "" for a caller who must
// not see the label.
func (v View) url(label string) string {
	if label == "" {
		return ""
	}
	return v.URL(label)
}

// changed answers what an operation made of a sandbox.
func (v View) changed(sb sandbox.Sandbox, err error) (*route.Body[wire.Sandbox], error) {
	if err != nil {
		return nil, err
	}
	return route.Reply(v.sandbox(sb)), nil
}

func (v View) network(sb *sandbox.Sandbox) wire.SandboxNetwork {
	n := wire.SandboxNetwork{
		Enabled: sb.Network.Enabled, Ports: make([]wire.PublishedPort, 0, len(sb.Published)),
		AllowOut: append([]string{}, sb.Network.AllowOut...), DenyOut: append([]string{}, sb.Network.DenyOut...),
		RequestHost: sb.Network.RequestHost, HTTPSPorts: append([]uint16{}, sb.Network.HTTPSPorts...),
	}
	for _, port := range sb.Published {
		n.Ports = append(n.Ports, v.port(port))
	}
	return n
}

func (v View) port(p sandbox.PublishedPort) wire.PublishedPort {
	return wire.PublishedPort{Port: p.Port, URL: v.url(p.Label), Access: wire.PortAccess(p.Access), CreatedAt: p.LabeledAt}
}

func timeouts(t *wire.Timeouts) sandbox.Timeouts {
	if t == nil {
		return sandbox.Timeouts{}
	}
	return sandbox.Timeouts{
		Idle: route.Seconds(t.IdleSeconds), Paused: route.Seconds(t.PausedSeconds), Execution: route.Seconds(t.ExecutionSeconds), OnIdle: sandbox.OnIdle(t.OnIdle),
	}
}

func formatTimeouts(t sandbox.Timeouts) wire.Timeouts {
	return wire.Timeouts{
		IdleSeconds: int(t.Idle / time.Second), PausedSeconds: int(t.Paused / time.Second), ExecutionSeconds: int(t.Execution / time.Second),
		OnIdle: string(t.OnIdle),
	}
}
