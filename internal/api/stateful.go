package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

type checkpointInput struct {
	SandboxRef
	Body wire.CreateCheckpoint
}

type checkpointRef struct {
	SandboxRef
	Checkpoint string `path:"checkpoint" maxLength:"128" doc:"The checkpoint: its id or its name, percent-encoded."`
}

type listCheckpointsInput struct {
	SandboxRef
	PageInput
}

type resumeInput struct {
	SandboxRef
	Body *wire.ResumeSandbox `required:"false"`
}

type forkInput struct {
	SandboxRef
	Body wire.Fork
}

func (s *Server) registerStateful(a huma.API) {
	const sandboxes, checkpoints = "/v1/sandboxes/{sandbox}", "/v1/sandboxes/{sandbox}/checkpoints"
	tags := []string{"state"}
	route(a, huma.Operation{
		OperationID: "pause-sandbox", Method: http.MethodPost, Path: sandboxes + "/pause", Tags: tags,
		Summary:     "Pause a sandbox",
		Description: "Saves memory and files, ends its processes and frees its memory. Answers when that is done. Calls into a paused sandbox resume it; the answer to such a call has the header `Modbox-Auto-Resumed: true`, and `Modbox-Memory-Lost: true` when the sandbox had to be started anew from its files.",
	}, s.pauseSandbox)
	route(a, huma.Operation{
		OperationID: "resume-sandbox", Method: http.MethodPost, Path: sandboxes + "/resume", Tags: tags,
		Summary: "Resume a sandbox", Description: "Brings a paused sandbox back: its processes go on where they were. Answers when it can be used. Where its memory cannot be brought back any more (another gVisor or processor by now, or what was saved is damaged) it is started anew with its files, and `memory_lost_reason` says why; `memory` asks for something else. When it cannot be brought back at all it stays paused.",
	}, s.resumeSandbox)
	route(a, huma.Operation{
		OperationID: "create-checkpoint", Method: http.MethodPost, Path: checkpoints, Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Save a sandbox's state", Description: "Saves memory and files of a running or paused sandbox under a name. A running one stands still meanwhile and goes on.",
	}, s.createCheckpoint)
	route(a, huma.Operation{
		OperationID: "list-checkpoints", Method: http.MethodGet, Path: checkpoints, Tags: tags,
		Summary: "List a sandbox's checkpoints", Description: "The oldest first. An ended sandbox has none.",
	}, s.listCheckpoints)
	route(a, huma.Operation{
		OperationID: "restore-checkpoint", Method: http.MethodPost, Path: checkpoints + "/{checkpoint}/restore", Tags: tags,
		Summary: "Go back to a checkpoint", Description: "Memory and files are as they were, id and URL stay; what happened since is lost, the checkpoint stays. Answers when the sandbox runs.",
	}, s.restoreCheckpoint)
	route(a, huma.Operation{
		OperationID: "delete-checkpoint", Method: http.MethodDelete, Path: checkpoints + "/{checkpoint}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a checkpoint",
	}, s.deleteCheckpoint)
	route(a, huma.Operation{
		OperationID: "fork-sandbox", Method: http.MethodPost, Path: sandboxes + "/fork", Tags: tags,
		Summary:     "Fork a sandbox",
		Description: "Makes sandboxes with the memory, processes and files of this one as they are, each with its own id, name and URL. The parent stands still only while it is saved. Answers when each child runs or has failed.",
	}, s.forkSandbox)
}

func (s *Server) pauseSandbox(ctx context.Context, in *SandboxRef) (*body[wire.Sandbox], error) {
	return s.changed(s.svc.Pause(ctx, caller(ctx), in.Ref))
}

func (s *Server) resumeSandbox(ctx context.Context, in *resumeInput) (*body[wire.Sandbox], error) {
	var req lifecycle.ResumeRequest
	if in.Body != nil {
		req = lifecycle.ResumeRequest{Memory: sandbox.MemoryPolicy(in.Body.Memory), WaitForQuota: seconds(in.Body.WaitForQuotaSeconds)}
	}
	return s.changed(s.svc.Resume(ctx, caller(ctx), in.Ref, req))
}

func (s *Server) restoreCheckpoint(ctx context.Context, in *checkpointRef) (*body[wire.Sandbox], error) {
	return s.changed(s.svc.RestoreCheckpoint(ctx, caller(ctx), in.Ref, in.Checkpoint))
}

// changed answers what an operation made of a sandbox.
func (s *Server) changed(sb sandbox.Sandbox, err error) (*body[wire.Sandbox], error) {
	if err != nil {
		return nil, err
	}
	return reply(s.sandbox(sb)), nil
}

func (s *Server) createCheckpoint(ctx context.Context, in *checkpointInput) (*body[wire.Checkpoint], error) {
	c, err := s.svc.CreateCheckpoint(ctx, caller(ctx), in.Ref, in.Body.Name)
	if err != nil {
		return nil, err
	}
	return reply(checkpoint(c)), nil
}

func (s *Server) listCheckpoints(ctx context.Context, in *listCheckpointsInput) (*body[wire.Page[wire.Checkpoint]], error) {
	list, err := s.svc.Checkpoints(ctx, caller(ctx), in.Ref)
	return pagedOf(in.PageInput, list, err, page.Order[sandbox.Checkpoint]{
		Name: "checkpoints", Key: func(c sandbox.Checkpoint) string { return page.ByTime(c.CreatedAt, string(c.ID)) },
	}, checkpoint)
}

func (s *Server) deleteCheckpoint(ctx context.Context, in *checkpointRef) (*struct{}, error) {
	return nil, s.svc.DeleteCheckpoint(ctx, caller(ctx), in.Ref, in.Checkpoint)
}

func (s *Server) forkSandbox(ctx context.Context, in *forkInput) (*body[wire.ForkList], error) {
	for i, name := range in.Body.Names {
		if err := sandbox.CheckName(fmt.Sprintf("names[%d]", i), name); err != nil {
			return nil, err
		}
	}
	req := lifecycle.ForkRequest{
		Count: in.Body.Count, Names: in.Body.Names, Env: in.Body.Env, Labels: in.Body.Labels, TTL: seconds(in.Body.TTLSeconds),
		WaitForQuota: seconds(in.Body.WaitForQuotaSeconds),
	}
	if in.Body.Timeouts != nil {
		t := timeouts(in.Body.Timeouts)
		req.Timeouts = &t
	}
	results, err := s.svc.Fork(ctx, caller(ctx), in.Ref, req)
	if err != nil {
		return nil, err
	}
	out := wire.ForkList{Forks: make([]wire.ForkItem, len(results))}
	for i, r := range results {
		if r.Sandbox.ID != "" {
			sb := s.sandbox(r.Sandbox)
			out.Forks[i].Sandbox = &sb
		}
		if r.Err != nil {
			p := edge.Problem(ctx, r.Err)
			out.Forks[i].Error = &wire.ForkError{Code: string(p.Code), Detail: p.Detail}
		}
	}
	return reply(out), nil
}

func checkpoint(c sandbox.Checkpoint) wire.Checkpoint {
	return wire.Checkpoint{
		ID: string(c.ID), Name: c.Name, SandboxID: string(c.Sandbox), SizeBytes: c.SizeBytes, CreatedBy: string(c.CreatedBy), CreatedAt: c.CreatedAt,
	}
}

func timeouts(t *wire.Timeouts) sandbox.Timeouts {
	if t == nil {
		return sandbox.Timeouts{}
	}
	return sandbox.Timeouts{
		Idle: seconds(t.IdleSeconds), Paused: seconds(t.PausedSeconds), Execution: seconds(t.ExecutionSeconds), OnIdle: sandbox.OnIdle(t.OnIdle),
	}
}

func formatTimeouts(t sandbox.Timeouts) wire.Timeouts {
	return wire.Timeouts{
		IdleSeconds: int(t.Idle / time.Second), PausedSeconds: int(t.Paused / time.Second), ExecutionSeconds: int(t.Execution / time.Second),
		OnIdle: string(t.OnIdle),
	}
}

// resumedHeader is in the answer to a call that resumed its sandbox, and
// memoryLostHeader beside it when the sandbox was started anew with that.
const (
	resumedHeader    = "Modbox-Auto-Resumed"
	memoryLostHeader = "Modbox-Memory-Lost"
)

// noteWakes adds resumedHeader to the answers of next where it applies.
func noteWakes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, wakes := guest.NoteWakes(r.Context())
		next.ServeHTTP(&wakesWriter{ResponseWriter: w, wakes: wakes}, r.WithContext(ctx))
	})
}

type wakesWriter struct {
	http.ResponseWriter
	wakes *guest.Wakes
}

func (w *wakesWriter) WriteHeader(status int) {
	w.note()
	w.ResponseWriter.WriteHeader(status)
}

func (w *wakesWriter) Write(p []byte) (int, error) {
	w.note()
	return w.ResponseWriter.Write(p)
}

// note is too late, and does nothing, once the answer has begun.
func (w *wakesWriter) note() {
	if w.wakes.Resumed() {
		w.Header().Set(resumedHeader, "true")
	}
	if w.wakes.MemoryLost() {
		w.Header().Set(memoryLostHeader, "true")
	}
}

// Unwrap lets http.ResponseController reach flush, hijack and deadlines.
func (w *wakesWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
