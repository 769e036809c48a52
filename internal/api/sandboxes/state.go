package sandboxes

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

type pauseInput struct {
	route.SandboxRef
	Body *wire.PauseSandbox `required:"false"`
}

type resumeInput struct {
	route.SandboxRef
	Body *wire.ResumeSandbox `required:"false"`
}

type forkInput struct {
	route.SandboxRef
	Body wire.Fork
}

// registerStates adds the routes that pause, resume and fork.
func (h *Sandboxes) registerStates(m *route.Mux) {
	const sandboxes = "/v1/sandboxes/{sandbox}"
	tags := []string{"state"}
	route.JSON(m, huma.Operation{
		OperationID: "pause-sandbox", Method: http.MethodPost, Path: sandboxes + "/pause", Tags: tags,
		Summary:     "Pause a sandbox",
		Description: "Saves memory and files, ends its processes and frees its memory. With `memory` false it saves the files alone, which is quicker and takes less disk, and a resume starts the sandbox anew with them. Answers when that is done. Calls into a paused sandbox resume it; the answer to such a call has the header `Modbox-Auto-Resumed: true`, and `Modbox-Memory-Lost: true` when the sandbox had to be started anew from its files.",
	}, h.pauseSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "resume-sandbox", Method: http.MethodPost, Path: sandboxes + "/resume", Tags: tags,
		Summary: "Resume a sandbox", Description: "Brings a paused sandbox back: its processes go on where they were. Answers when it can be used. Where its memory cannot be brought back any more (another gVisor or processor by now, or what was saved is damaged) it is started anew with its files, and `memory_lost_reason` says why; `memory` asks for something else. When it cannot be brought back at all it stays paused.",
	}, h.resumeSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "archive-sandbox", Method: http.MethodPost, Path: sandboxes + "/archive", Tags: tags,
		Summary:     "Archive a paused sandbox",
		Description: "Moves the saved state of a paused sandbox from the disk of the server to its object store, and answers when that is done; `archived_at` of the sandbox is set then. Everything that needs the state fetches it first: a resume, calls into the sandbox, forks, checkpoints, snapshots and diffs, which then take longer. `conflict` for a sandbox that is not paused, or that is resumed meanwhile; `unsupported` if the server has no object store (setting `archive.url`).",
	}, h.archiveSandbox)
	route.JSON(m, huma.Operation{
		OperationID: "fork-sandbox", Method: http.MethodPost, Path: sandboxes + "/fork", Tags: tags,
		Summary:     "Fork a sandbox",
		Description: "Makes sandboxes with the memory, processes and files of this one as they are, each with its own id, name and URL. The parent stands still only while it is saved. Answers when each child runs or has failed.",
	}, h.forkSandbox)
}

func (h *Sandboxes) pauseSandbox(ctx context.Context, in *pauseInput) (*route.Body[wire.Sandbox], error) {
	if in.Body != nil && in.Body.Memory != nil && !*in.Body.Memory {
		return h.View.of(ctx).changed(h.Service.PauseFiles(ctx, route.Caller(ctx), in.Ref))
	}
	return h.View.of(ctx).changed(h.Service.Pause(ctx, route.Caller(ctx), in.Ref))
}

func (h *Sandboxes) archiveSandbox(ctx context.Context, in *route.SandboxRef) (*route.Body[wire.Sandbox], error) {
	return h.View.of(ctx).changed(h.Service.Archives().Archive(ctx, route.Caller(ctx), in.Ref))
}

func (h *Sandboxes) resumeSandbox(ctx context.Context, in *resumeInput) (*route.Body[wire.Sandbox], error) {
	var req lifecycle.ResumeRequest
	if in.Body != nil {
		req = lifecycle.ResumeRequest{Memory: sandbox.MemoryPolicy(in.Body.Memory), WaitForQuota: route.Seconds(in.Body.WaitForQuotaSeconds)}
	}
	return h.View.of(ctx).changed(h.Service.Resume(ctx, route.Caller(ctx), in.Ref, req))
}

func (h *Sandboxes) forkSandbox(ctx context.Context, in *forkInput) (*route.Body[wire.ForkList], error) {
	for i, name := range in.Body.Names {
		if err := sandbox.CheckName(fmt.Sprintf("names[%d]", i), name); err != nil {
			return nil, err
		}
	}
	req := lifecycle.ForkRequest{
		Count: in.Body.Count, Names: in.Body.Names, Env: in.Body.Env, Labels: in.Body.Labels, TTL: route.Seconds(in.Body.TTLSeconds),
		WaitForQuota: route.Seconds(in.Body.WaitForQuotaSeconds),
	}
	if in.Body.Timeouts != nil {
		t := timeouts(in.Body.Timeouts)
		req.Timeouts = &t
	}
	results, err := h.Service.Fork(ctx, route.Caller(ctx), in.Ref, req)
	if err != nil {
		return nil, err
	}
	out := wire.ForkList{Forks: make([]wire.ForkItem, len(results))}
	for i, r := range results {
		if r.Sandbox.ID != "" {
			sb := h.View.of(ctx).sandbox(r.Sandbox)
			out.Forks[i].Sandbox = &sb
		}
		if r.Err != nil {
			p := edge.Problem(ctx, r.Err)
			out.Forks[i].Error = &wire.ForkError{Code: string(p.Code), Detail: p.Detail}
		}
	}
	return route.Reply(out), nil
}
