package api

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// SandboxRef is the path parameter that names a sandbox. It is exported because
// huma passes over embedded types that are not.
type SandboxRef struct {
	Ref string `path:"sandbox" maxLength:"255" doc:"The sandbox: its id or its name, percent-encoded. A live sandbox takes precedence over ended sandboxes of the same name."`
}

type createInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Repeating a request with the same key within 24 hours answers the sandbox of the first one, even after its end."`
	Body           wire.CreateSandbox
}

type listInput struct {
	State    []string `query:"state,explode" maxItems:"8" enum:"provisioning,running,pausing,paused,resuming,destroying,destroyed,failed" nullable:"false" doc:"Only those in one of these states; without it all that have not ended."`
	Name     string   `query:"name" maxLength:"255" doc:"Only the one of this name."`
	Label    []string `query:"label,explode" maxItems:"64" nullable:"false" doc:"Only those with this label, as key=value. All given must match."`
	Snapshot string   `query:"snapshot_id" maxLength:"64" doc:"Only those made from the snapshot of this id."`
	PageInput
}

type waitInput struct {
	SandboxRef
	State          string `query:"state" enum:"running,paused,destroyed,failed" default:"running" doc:"The state to wait for. An ended sandbox answers at once."`
	TimeoutSeconds int    `query:"timeout_seconds" minimum:"1" maximum:"600" default:"60" doc:"Answer after this many seconds at the latest, whatever the state."`
}

func (s *Server) registerSandboxes(a huma.API) {
	tags := []string{"sandboxes"}
	route(a, huma.Operation{
		OperationID: "create-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Create a sandbox",
		Description: "Answers at once, or with `wait_seconds` when the sandbox is running or has ended. 201 when it was made, 200 when the same request had made it before, 429 with Retry-After when it exceeds the workspace's quota.",
		Responses:   map[string]*huma.Response{"200": {Description: "It existed already", Content: jsonContent[wire.Sandbox](a)}},
	}, s.createSandbox)
	route(a, huma.Operation{
		OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Tags: tags,
		Summary: "List sandboxes", Description: "Those of the workspace, newest first.",
	}, s.listSandboxes)
	route(a, huma.Operation{
		OperationID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Get a sandbox", Description: "Ended sandboxes stay visible, with the cause of their end.",
	}, s.getSandbox)
	route(a, huma.Operation{
		OperationID: "update-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Change settings of a sandbox", Description: "Omitted fields stay as they are.",
	}, func(ctx context.Context, in *updateInput) (*body[wire.Sandbox], error) {
		var req lifecycle.UpdateRequest
		if n := in.Body.TTLSeconds; n != nil {
			d := seconds(*n)
			req.TTL = &d
		}
		if n := in.Body.CheckpointIntervalSeconds; n != nil {
			d := seconds(*n)
			req.CheckpointInterval = &d
		}
		return s.changed(s.svc.Update(ctx, caller(ctx), in.Ref, req))
	})
	route(a, huma.Operation{
		OperationID: "delete-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Delete a sandbox", Description: "Works in every state and answers the sandbox when only its record remains on the server. An ended sandbox is answered unchanged.",
	}, s.deleteSandbox)
	route(a, huma.Operation{
		OperationID: "wait-for-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/wait", Tags: tags,
		Summary: "Wait for a state", Description: "Answers at the moment the sandbox reaches the state, when it has ended, or after the timeout; look at `state`.",
	}, s.waitForSandbox)
}

type updateInput struct {
	SandboxRef
	Body wire.UpdateSandbox
}

func (s *Server) createSandbox(ctx context.Context, in *createInput) (*created[wire.Sandbox], error) {
	if err := sandbox.CheckName("name", in.Body.Name); err != nil {
		return nil, err
	}
	resources, err := parseResources(in.Body.Resources)
	if err != nil {
		return nil, err
	}
	net, err := requestedNetwork(in.Body.Network)
	if err != nil {
		return nil, err
	}
	sb, isNew, err := s.svc.Create(ctx, caller(ctx), lifecycle.CreateRequest{
		Name: in.Body.Name, Image: in.Body.Image, ImageID: sandbox.ImageID(in.Body.ImageID), Snapshot: in.Body.Snapshot,
		Env: in.Body.Env, Labels: in.Body.Labels, Resources: resources,
		TTL: seconds(in.Body.TTLSeconds), Timeouts: timeouts(in.Body.Timeouts), Network: net, CheckpointInterval: seconds(in.Body.CheckpointIntervalSeconds),
		AptPackages: in.Body.AptPackages, NpmPackages: in.Body.NpmPackages, PipPackages: in.Body.PipPackages,
		URLAccess: sandbox.URLAccess(cmp.Or(in.Body.URLAccess, wire.URLKey)), Description: in.Body.Description, Metadata: in.Body.Metadata, Replace: in.Body.Replace, WaitForQuota: seconds(in.Body.WaitForQuotaSeconds), IdempotencyKey: in.IdempotencyKey,
		Command: executionRequest(in.Body.Command), OneShot: in.Body.Mode == "oneshot",
	})
	if err != nil {
		return nil, err
	}
	if in.Body.WaitSeconds > 0 {
		sb, err = s.svc.Wait(ctx, caller(ctx), string(sb.ID), sandbox.Running, seconds(in.Body.WaitSeconds))
		if err != nil {
			return nil, err
		}
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
	}
	return &created[wire.Sandbox]{Status: status, Body: s.sandbox(sb)}, nil
}

func (s *Server) listSandboxes(ctx context.Context, in *listInput) (*body[wire.Page[wire.Sandbox]], error) {
	f := lifecycle.Filter{Name: in.Name, Snapshot: sandbox.SnapshotID(in.Snapshot), Limit: in.Limit, Cursor: in.Cursor}
	for _, state := range in.State {
		f.States = append(f.States, sandbox.State(state))
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, sandbox.InvalidField("label", "must be key=value")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[k] = v
	}
	p, err := s.svc.List(ctx, caller(ctx), f)
	return paged(p, err, s.sandbox)
}

func (s *Server) getSandbox(ctx context.Context, in *SandboxRef) (*body[wire.Sandbox], error) {
	sb, err := s.svc.Get(ctx, caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return reply(s.sandbox(sb)), nil
}

func (s *Server) deleteSandbox(ctx context.Context, in *SandboxRef) (*body[wire.Sandbox], error) {
	sb, err := s.svc.Destroy(ctx, caller(ctx), in.Ref, sandbox.CauseDestroyed)
	if err != nil {
		return nil, err
	}
	return reply(s.sandbox(sb)), nil
}

func (s *Server) waitForSandbox(ctx context.Context, in *waitInput) (*body[wire.Sandbox], error) {
	sb, err := s.svc.Wait(ctx, caller(ctx), in.Ref, sandbox.State(in.State), seconds(in.TimeoutSeconds))
	if err != nil {
		return nil, err
	}
	return reply(s.sandbox(sb)), nil
}

// sandbox returns the public side of sb: its environment stays inside.
func (s *Server) sandbox(sb sandbox.Sandbox) wire.Sandbox {
	out := wire.Sandbox{
		ID: string(sb.ID), Name: sb.Name, State: wire.State(sb.State), URL: s.sandboxURL(sb.HostLabel),
		Image: sb.Image, ImageDigest: sb.ImageDigest, ImageID: string(sb.ImageID), Labels: sb.Labels, Resources: formatResources(sb.Resources),
		ReadinessPort: int(sb.ReadinessPort), TTLSeconds: int64(sb.TTL / time.Second),
		AptPackages: sb.AptPackages, NpmPackages: sb.NpmPackages, PipPackages: sb.PipPackages,
		CreatedBy: string(sb.CreatedBy), WorkspaceID: string(sb.Workspace), Network: s.formatNetwork(&sb), URLAccess: wire.URLAccess(cmp.Or(sb.URLAccess, sandbox.URLOpen)),
		CreatedAt: sb.CreatedAt, UpdatedAt: sb.UpdatedAt, StartedAt: optional(sb.StartedAt), EndedAt: optional(sb.EndedAt),
		Timeouts: formatTimeouts(sb.Timeouts), LastActivity: optional(sb.LastActivityAt), CheckpointIntervalSeconds: int64(sb.CheckpointInterval / time.Second), LastCheckpointAt: optional(sb.LastCheckpointAt), PausedAt: optional(sb.PausedAt), MemoryLostReason: sb.MemoryLost,
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
	if sb.Cause != nil {
		out.Cause = &wire.Cause{Code: string(sb.Cause.Code), Message: sb.Cause.Message}
	}
	return out
}

// sandboxURL is the URL for the label of a sandbox or of a published port; "" for a caller who must
// not see the label.
func (s *Server) sandboxURL(label string) string {
	if label == "" {
		return ""
	}
	return s.cfg.SandboxURL(label)
}
