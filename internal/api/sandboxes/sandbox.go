package sandboxes

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/executions"
	"github.com/modbox/modbox/internal/api/quantity"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// Sandboxes are the routes of sandboxes and their states.
type Sandboxes struct {
	Service *lifecycle.Service
	View    View
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
	route.PageInput
}

type waitInput struct {
	route.SandboxRef
	State          string `query:"state" enum:"running,paused,destroyed,failed" default:"running" doc:"The state to wait for. An ended sandbox answers at once."`
	TimeoutSeconds int    `query:"timeout_seconds" minimum:"1" maximum:"600" default:"60" doc:"Answer after this many seconds at the latest, whatever the state."`
}

// Register adds the routes.
func (h *Sandboxes) Register(m *route.Mux) {
	tags := []string{"sandboxes"}
	route.JSON(m, huma.Operation{
		OperationID: "create-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary:     "Create a sandbox",
		Description: "Answers at once, or with `wait_seconds` when the sandbox is running or has ended. 201 when it was made, 200 when the same request had made it before, 429 with Retry-After when it exceeds the workspace's quota.",
		Responses:   map[string]*huma.Response{"200": {Description: "It existed already", Content: route.JSONContent[wire.Sandbox](m)}},
	}, h.createSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Tags: tags,
		Summary: "List sandboxes", Description: "Those of the workspace, newest first.",
	}, h.listSandboxes)
	route.JSON(m, huma.Operation{
		OperationID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Get a sandbox", Description: "Ended sandboxes stay visible, with the cause of their end.",
	}, h.getSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "update-sandbox", Method: http.MethodPatch, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Change settings of a sandbox", Description: "Omitted fields stay as they are.",
	}, func(ctx context.Context, in *updateInput) (*route.Body[wire.Sandbox], error) {
		var req lifecycle.UpdateRequest
		if n := in.Body.TTLSeconds; n != nil {
			d := route.Seconds(*n)
			req.TTL = &d
		}
		if n := in.Body.CheckpointIntervalSeconds; n != nil {
			d := route.Seconds(*n)
			req.CheckpointInterval = &d
		}
		return h.View.of(ctx).changed(h.Service.Update(ctx, route.Caller(ctx), in.Ref, req))
	})
	route.JSON(m, huma.Operation{
		OperationID: "delete-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{sandbox}", Tags: tags,
		Summary: "Delete a sandbox", Description: "Works in every state and answers the sandbox when only its record remains on the server. An ended sandbox is answered unchanged.",
	}, h.deleteSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "wait-for-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/wait", Tags: tags,
		Summary: "Wait for a state", Description: "Answers at the moment the sandbox reaches the state, when it has ended, or after the timeout; look at `state`.",
	}, h.waitForSandbox)
	h.registerStates(m)
}

type updateInput struct {
	route.SandboxRef
	Body wire.UpdateSandbox
}

func (h *Sandboxes) createSandbox(ctx context.Context, in *createInput) (*route.Created[wire.Sandbox], error) {
	if err := sandbox.CheckName("name", in.Body.Name); err != nil {
		return nil, err
	}
	resources, err := quantity.ParseResources(in.Body.Resources)
	if err != nil {
		return nil, err
	}
	net, err := requestedNetwork(in.Body.Network)
	if err != nil {
		return nil, err
	}
	first, err := executions.Request(in.Body.Command)
	if err != nil {
		return nil, err
	}
	sb, isNew, err := h.Service.Create(ctx, route.Caller(ctx), lifecycle.CreateRequest{
		Name: in.Body.Name, Image: in.Body.Image, ImageID: sandbox.ImageID(in.Body.ImageID), Snapshot: in.Body.Snapshot,
		Env: in.Body.Env, Labels: in.Body.Labels, Resources: resources,
		TTL: route.Seconds(in.Body.TTLSeconds), Timeouts: timeouts(in.Body.Timeouts), Network: net, CheckpointInterval: route.Seconds(in.Body.CheckpointIntervalSeconds),
		AptPackages: in.Body.AptPackages, NpmPackages: in.Body.NpmPackages, PipPackages: in.Body.PipPackages,
		URLAccess: sandbox.URLAccess(cmp.Or(in.Body.URLAccess, wire.URLKey)), Description: in.Body.Description, Metadata: in.Body.Metadata, Replace: in.Body.Replace, WaitForQuota: route.Seconds(in.Body.WaitForQuotaSeconds), IdempotencyKey: in.IdempotencyKey,
		Command: first, OneShot: in.Body.Mode == "oneshot",
	})
	if err != nil {
		return nil, err
	}
	if in.Body.WaitSeconds > 0 {
		sb, err = h.Service.Wait(ctx, route.Caller(ctx), string(sb.ID), sandbox.Running, route.Seconds(in.Body.WaitSeconds))
		if err != nil {
			return nil, err
		}
	}
	status := http.StatusOK
	if isNew {
		status = http.StatusCreated
	}
	return &route.Created[wire.Sandbox]{Status: status, Body: h.View.of(ctx).sandbox(sb)}, nil
}

func (h *Sandboxes) listSandboxes(ctx context.Context, in *listInput) (*route.Body[wire.Page[wire.Sandbox]], error) {
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
	p, err := h.Service.List(ctx, route.Caller(ctx), f)
	return route.Paged(p, err, h.View.of(ctx).sandbox)
}

func (h *Sandboxes) getSandbox(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Sandbox], error) {
	sb, err := h.Service.Get(ctx, route.Caller(ctx), in.Ref)
	if err != nil {
		return nil, err
	}
	return route.Reply(h.View.of(ctx).sandbox(sb)), nil
}

func (h *Sandboxes) deleteSandbox(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Sandbox], error) {
	sb, err := h.Service.Destroy(ctx, route.Caller(ctx), in.Ref, sandbox.CauseDestroyed)
	if err != nil {
		return nil, err
	}
	return route.Reply(h.View.of(ctx).sandbox(sb)), nil
}

func (h *Sandboxes) waitForSandbox(ctx context.Context, in *waitInput) (*route.Body[wire.Sandbox], error) {
	sb, err := h.Service.Wait(ctx, route.Caller(ctx), in.Ref, sandbox.State(in.State), route.Seconds(in.TimeoutSeconds))
	if err != nil {
		return nil, err
	}
	return route.Reply(h.View.of(ctx).sandbox(sb)), nil
}
