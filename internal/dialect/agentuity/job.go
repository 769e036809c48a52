package agentuity

import (
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// jobs has the handlers for jobs.
type jobs struct {
	*finder
	links
	executions *execution.Service
}

func (h *jobs) register(m routes) {
	const job = "/sandbox/sandboxes/{id}/jobs"
	m.add("POST "+job, byCode, h.create)
	m.add("GET "+job, byCode, h.list)
	m.add("GET "+job+"/{job}", byCode, h.get)
	m.add("DELETE "+job+"/{job}", byCode, h.stop)
}

// stopTimeout is how long the answer to stopping a job waits for its end, which SIGKILL causes
// after a grace period.
const stopTimeout = 10 * time.Second

// jobInfo is a job in the form of the dialect.
type jobInfo struct {
	JobID           string   `json:"jobId"`
	SandboxID       string   `json:"sandboxId"`
	Command         []string `json:"command"`
	Status          string   `json:"status"`
	ExitCode        *int     `json:"exitCode,omitempty"`
	StartedAt       string   `json:"startedAt,omitempty"`
	CompletedAt     string   `json:"completedAt,omitempty"`
	Error           string   `json:"error,omitempty"`
	StdoutStreamURL string   `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string   `json:"stderrStreamUrl,omitempty"`
}

func (h *links) jobInfo(e *sandbox.Execution) jobInfo {
	x := h.executionInfo(e, false)
	switch e.State {
	case sandbox.ExecutionQueued:
		x.Status = "pending"
	case sandbox.ExecutionTimeout:
		x.Status = string(sandbox.ExecutionFailed)
	}
	return jobInfo{
		JobID: x.ExecutionID, SandboxID: x.SandboxID, Command: x.Command, Status: x.Status, ExitCode: x.ExitCode,
		StartedAt: x.StartedAt, CompletedAt: x.CompletedAt, Error: x.Error,
		StdoutStreamURL: x.StdoutStreamURL, StderrStreamURL: x.StderrStreamURL,
	}
}

func (h *jobs) create(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Command []string    `json:"command"`
		Streams streamInput `json:"streams"`
	}](w, r)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	req := h.command(&sb, in.Command, in.Streams)
	req.Kind = sandbox.Job
	e, err := h.executions.Start(r.Context(), caller(r.Context()), string(sb.ID), req)
	if err != nil {
		return known(err)
	}
	return answer(w, h.jobInfo(&e))
}

func (h *jobs) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 50, 1, 100)
	if err != nil {
		return err
	}
	sb, err := h.found(r)
	if err != nil {
		return err
	}
	list, err := h.executions.List(r.Context(), caller(r.Context()), string(sb.ID), sandbox.Job, page.Request{Limit: limit})
	if err != nil {
		return err
	}
	out := struct {
		Jobs []jobInfo `json:"jobs"`
	}{make([]jobInfo, len(list.Items))}
	for i := range list.Items {
		out.Jobs[i] = h.jobInfo(&list.Items[i])
	}
	return answer(w, out)
}

// find returns the job in the request's path.
func (h *jobs) find(r *http.Request) (sandbox.Execution, error) {
	sb, err := h.found(r)
	if err != nil {
		return sandbox.Execution{}, err
	}
	notFound := sandbox.Errorf(sandbox.NotFound, "there is no such job")
	id, ok := internal[sandbox.ExecutionID](prefixJob, r.PathValue("job"))
	if !ok {
		return sandbox.Execution{}, notFound
	}
	e, err := h.executions.Get(r.Context(), caller(r.Context()), id)
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && (e.Kind != sandbox.Job || e.Sandbox != sb.ID) {
		return e, notFound
	}
	return e, err
}

func (h *jobs) get(w http.ResponseWriter, r *http.Request) error {
	e, err := h.find(r)
	if err != nil {
		return err
	}
	return answer(w, h.jobInfo(&e))
}

func (h *jobs) stop(w http.ResponseWriter, r *http.Request) error {
	e, err := h.find(r)
	if err != nil {
		return err
	}
	force := r.URL.Query().Get("force") == "true"
	ctx := r.Context()
	if e, err = h.executions.Cancel(ctx, caller(ctx), e.ID, force); err != nil {
		return err
	}
	switch ended, err := h.executions.Wait(ctx, caller(ctx), e.ID, stopTimeout); {
	case err == nil:
		e = ended
	case sandbox.CodeOf(err) != sandbox.NotRunning: // the job of a suspended sandbox ends when the sandbox resumes
		return err
	}
	return answer(w, h.jobInfo(&e))
}
