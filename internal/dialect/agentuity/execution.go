package agentuity

import (
	"context"
	"net/http"
	"sync"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// executions has the handlers for executions.
type executions struct {
	*finder
	links
	executions *execution.Service

	mu       sync.Mutex
	starting map[sandbox.ID]bool // sandboxes in which a command is being started; guarded by mu
}

func (h *executions) register(m routes) {
	m.add("POST /sandbox/{id}/execute", byExecute, h.execute)
	m.add("GET /sandbox/execution/{execution}", byCode, h.get)
	m.add("GET /sandbox/sandboxes/{id}/executions", byCode, h.list)
}

// executionInfo is an execution in the form of the dialect.
type executionInfo struct {
	ExecutionID     string   `json:"executionId"`
	SandboxID       string   `json:"sandboxId"`
	Type            string   `json:"type"`
	Status          string   `json:"status"`
	Command         []string `json:"command"`
	ExitCode        *int     `json:"exitCode,omitempty"`
	DurationMS      *int64   `json:"durationMs,omitempty"`
	StartedAt       string   `json:"startedAt,omitempty"`
	CompletedAt     string   `json:"completedAt,omitempty"`
	Error           string   `json:"error,omitempty"`
	StdoutStreamURL string   `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string   `json:"stderrStreamUrl,omitempty"`
	OutputTruncated bool     `json:"outputTruncated"`
}

// executionInfo describes an execution; with times, the URLs of its output ask for the time before
// every line.
func (h *links) executionInfo(e *sandbox.Execution, times bool) executionInfo {
	out := executionInfo{
		ExecutionID: executionID(e), SandboxID: sandboxID(e.Sandbox), Type: string(sandbox.Exec), Status: string(e.State), Command: e.Argv,
		ExitCode: e.ExitCode, Error: e.Error, OutputTruncated: e.Stdout.Truncated || e.Stderr.Truncated,
		StdoutStreamURL: h.streamURL(e.Stdout, times), StderrStreamURL: h.streamURL(e.Stderr, times),
	}
	if !e.StartedAt.IsZero() {
		out.StartedAt = timestamp(e.StartedAt)
	}
	if e.State.Ended() {
		ms := e.Duration.Milliseconds()
		out.DurationMS, out.CompletedAt = &ms, timestamp(e.EndedAt)
	}
	return out
}

// claim reserves the right to start a command in a sandbox until release is called. This dialect
// refuses a second command at the same time.
func (h *executions) claim(ctx context.Context, sb sandbox.Sandbox) (release func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.starting[sb.ID] {
		return nil, busy()
	}
	l, err := h.look(ctx, sb)
	if err != nil {
		return nil, err
	}
	if l.live() != nil {
		return nil, busy()
	}
	h.starting[sb.ID] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.starting, sb.ID)
	}, nil
}

func (h *executions) execute(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[struct {
		Command []string    `json:"command"`
		Files   []fileInput `json:"files"`
		Timeout string      `json:"timeout"`
		Stream  streamInput `json:"stream"`
	}](w, r)
	if err != nil {
		return err
	}
	timeout, err := duration("timeout", in.Timeout, 0)
	if err != nil {
		return err
	}
	files, err := decodeFiles("files", in.Files)
	if err != nil {
		return err
	}
	sb, err := h.usable(r)
	if err != nil {
		return err
	}
	ctx, wakes := guest.NoteWakes(r.Context())
	release, err := h.claim(ctx, sb)
	if err != nil {
		return err
	}
	defer release()
	req := h.command(&sb, in.Command, in.Stream)
	req.Timeout = timeout
	for _, f := range files {
		req.Files = append(req.Files, execution.File{Path: f.Path, Content: f.Content})
	}
	e, err := h.executions.Start(ctx, caller(ctx), string(sb.ID), req)
	if err != nil {
		return known(err)
	}
	writeJSON(w, http.StatusOK, struct {
		Success     bool          `json:"success"`
		AutoResumed bool          `json:"autoResumed,omitempty"`
		Data        executionInfo `json:"data"`
	}{true, wakes.Resumed(), h.executionInfo(&e, in.Stream.Timestamps)})
	return nil
}

func (h *executions) get(w http.ResponseWriter, r *http.Request) error {
	id, ok := internal[sandbox.ExecutionID](prefixExecution, r.PathValue("execution"))
	if !ok {
		return noExecution()
	}
	wait, err := duration("wait", r.URL.Query().Get("wait"), 0)
	if err != nil {
		return err
	}
	e, err := h.executions.Wait(r.Context(), caller(r.Context()), id, min(wait, maxWait))
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && e.Kind != sandbox.Exec {
		return noExecution()
	}
	if sandbox.CodeOf(err) == sandbox.NotRunning {
		return suspended(err)
	}
	if err != nil {
		return err
	}
	return answer(w, h.executionInfo(&e, false))
}

func (h *executions) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 50, 1, 100)
	if err != nil {
		return err
	}
	sb, err := h.found(r)
	if err != nil {
		return err
	}
	list, err := h.executions.List(r.Context(), caller(r.Context()), string(sb.ID), sandbox.Exec, page.Request{Limit: limit})
	if err != nil {
		return err
	}
	out := struct {
		Executions []executionInfo `json:"executions"`
	}{make([]executionInfo, len(list.Items))}
	for i := range list.Items {
		out.Executions[i] = h.executionInfo(&list.Items[i], false)
	}
	return answer(w, out)
}
