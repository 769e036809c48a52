// Package runcode has the routes of /v1 that run code in contexts.
package runcode

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/code"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Routes are the routes' functions. All fields must be set.
type Routes struct {
	Code *code.Service
	// Timeout returns the timeout of code in a sandbox; requested is 0 if the request has none.
	Timeout func(ctx context.Context, ref string, requested time.Duration) (time.Duration, error)
	// Ping is the longest silence of a stream.
	Ping time.Duration
}

// SandboxRef is the path parameter that names a sandbox. It is exported because huma passes over
// embedded types that are not.
type SandboxRef struct {
	Ref string `path:"sandbox" maxLength:"255" doc:"The sandbox: its id or its name, percent-encoded."`
}

// ContextRef are the path parameters that name a context.
type ContextRef struct {
	SandboxRef
	Context string `path:"context" maxLength:"64" doc:"The context."`
}

// The inputs of the routes.
type (
	runInput struct {
		SandboxRef
		Body wire.RunCode
	}
	createInput struct {
		SandboxRef
		Body wire.CreateContext
	}
	listInput struct {
		SandboxRef
		route.PageInput
	}
)

// sortable is a layout of times whose order as text is their order as times.
const sortable = "2006-01-02T15:04:05.000000000Z"

// start starts code for a request.
func (r *Routes) start(ctx context.Context, ref string, in *wire.RunCode) (*code.Run, error) {
	if in.ContextID != "" && in.Language != "" {
		return nil, sandbox.InvalidField("language", "give either language or context_id, not both")
	}
	if len(in.Code) > kernelapi.MaxCode {
		return nil, sandbox.InvalidField("code", "must have at most %d bytes", kernelapi.MaxCode)
	}
	timeout, err := r.Timeout(ctx, ref, time.Duration(in.TimeoutSeconds)*time.Second)
	if err != nil {
		return nil, err
	}
	limits, err := command.Limits(in.Limits)
	if err != nil {
		return nil, err
	}
	spec := kernelapi.Run{Code: in.Code, Context: in.ContextID, Timeout: timeout, Limits: kernelapi.Limits(limits)}
	if spec.Context == "" {
		spec.Language = cmp.Or(in.Language, "python")
	}
	return r.Code.Start(ctx, route.Caller(ctx), ref, spec)
}

// run runs code to its end.
func (r *Routes) run(ctx context.Context, in *runInput) (*route.Body[wire.CodeResult], error) {
	ctx, report := codescan.Collect(ctx)
	run, err := r.start(ctx, in.Ref, &in.Body)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	res := wire.CodeResult{Results: []wire.CodeOutput{}, Scan: scans.Shown(report)}
	var stdout, stderr strings.Builder
	for {
		ev, err := run.Next()
		if err == io.EOF {
			res.Stdout, res.Stderr = stdout.String(), stderr.String()
			return route.Reply(res), nil
		}
		if err != nil {
			return nil, err
		}
		if err := run.Keep(size(&ev)); err != nil {
			return nil, err
		}
		switch ev.Type {
		case kernelapi.Started:
			res.ContextID, res.Restarted = ev.Context, ev.Restarted
		case kernelapi.Stdout:
			stdout.WriteString(ev.Text)
		case kernelapi.Stderr:
			stderr.WriteString(ev.Text)
		case kernelapi.Result:
			res.Results = add(res.Results, &ev)
		case kernelapi.Failure:
			res.Error = failure(&ev)
		case kernelapi.End:
			res.LimitExceeded = string(ev.Limit)
			res.Status, res.ExecutionCount, res.DurationMS, res.Truncated = string(ev.Status), ev.ExecutionCount, ev.Duration.Milliseconds(), ev.Truncated
		}
	}
}

// size is about the memory of an event.
func size(ev *kernelapi.Event) int64 {
	n := len(ev.Text) + len(ev.Name) + len(ev.Value) + 256
	for name, value := range ev.Data {
		n += len(name) + len(value) + 64
	}
	for _, line := range ev.Traceback {
		n += len(line) + 16
	}
	return int64(n)
}

// add adds a value, or replaces the earlier value that it updates.
func add(results []wire.CodeOutput, ev *kernelapi.Event) []wire.CodeOutput {
	out := output(ev)
	if ev.Update {
		for i := range results {
			if results[i].DisplayID == out.DisplayID {
				results[i] = *out
				return results
			}
		}
	}
	return append(results, *out)
}

func output(ev *kernelapi.Event) *wire.CodeOutput {
	out := &wire.CodeOutput{Main: ev.Main, DisplayID: ev.DisplayID, Omitted: ev.Omitted, Data: map[string]any{}}
	for name, value := range ev.Data {
		out.Data[name] = value
	}
	return out
}

func failure(ev *kernelapi.Event) *wire.CodeError {
	return &wire.CodeError{Name: ev.Name, Value: ev.Value, Traceback: append([]string{}, ev.Traceback...)}
}

// stream runs code and sends its output as it comes.
func (r *Routes) stream(w http.ResponseWriter, req *http.Request) error {
	in, err := route.Decode[wire.RunCode](w, req, BodyMax)
	if err != nil {
		return err
	}
	ctx, report := codescan.Collect(req.Context())
	run, err := r.start(ctx, req.PathValue("sandbox"), &in)
	if err != nil {
		return err
	}
	defer run.Close()
	audit.FromContext(req.Context()).Start()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := edge.Talk(w, r.Ping)
	defer out.Stop()
	for {
		ev, err := run.Next()
		if err == io.EOF {
			return nil
		}
		m := event(&ev)
		if ev.Type == kernelapi.Started {
			m.Scan = scans.Shown(report)
		}
		if err != nil {
			p := edge.Problem(req.Context(), err)
			m = wire.CodeEvent{Type: wire.CodeFailure, Code: string(p.Code), Message: p.Detail}
		}
		if out.Send(m) != nil || err != nil {
			return nil // without a client the code is interrupted
		}
	}
}

func event(ev *kernelapi.Event) wire.CodeEvent {
	m := wire.CodeEvent{Type: string(ev.Type)}
	switch ev.Type {
	case kernelapi.Started:
		m.ContextID, m.Restarted = ev.Context, ev.Restarted
	case kernelapi.Stdout, kernelapi.Stderr:
		m.Text = ev.Text
	case kernelapi.Result:
		m.Result, m.Update = output(ev), ev.Update
	case kernelapi.Failure:
		m.Error = failure(ev)
	case kernelapi.End:
		ms := ev.Duration.Milliseconds()
		m.LimitExceeded = string(ev.Limit)
		m.Status, m.ExecutionCount, m.DurationMS, m.Truncated = string(ev.Status), ev.ExecutionCount, &ms, ev.Truncated
	}
	return m
}

// create makes a context.
func (r *Routes) create(ctx context.Context, in *createInput) (*route.Body[wire.Context], error) {
	limits, err := command.Limits(in.Body.Limits)
	if err != nil {
		return nil, err
	}
	v, err := r.Code.Create(ctx, route.Caller(ctx), in.Ref, kernelapi.ContextSpec{
		ID: strings.ToLower(rand.Text()), Language: cmp.Or(in.Body.Language, "python"), Cwd: in.Body.Cwd, Env: in.Body.Env, Limits: kernelapi.Limits(limits),
	})
	if err != nil {
		return nil, err
	}
	return route.Reply(show(v)), nil
}

// list lists the contexts of a sandbox.
func (r *Routes) list(ctx context.Context, in *listInput) (*route.Body[wire.Page[wire.Context]], error) {
	all, err := r.Code.List(ctx, route.Caller(ctx), in.Ref)
	return route.PagedOf(in.PageInput, all, err, page.Order[kernelapi.Context]{
		Name: "contexts", Key: func(c kernelapi.Context) string { return c.CreatedAt.UTC().Format(sortable) + " " + c.ID },
	}, show)
}

// delete ends a context.
func (r *Routes) delete(ctx context.Context, in *ContextRef) (*struct{}, error) {
	return nil, r.Code.Delete(ctx, route.Caller(ctx), in.Ref, in.Context)
}

// interrupt interrupts the code that runs in a context.
func (r *Routes) interrupt(ctx context.Context, in *ContextRef) (*struct{}, error) {
	return nil, r.Code.Interrupt(ctx, route.Caller(ctx), in.Ref, in.Context)
}

// restart starts the interpreter of a context again.
func (r *Routes) restart(ctx context.Context, in *ContextRef) (*route.Body[wire.Context], error) {
	v, err := r.Code.Restart(ctx, route.Caller(ctx), in.Ref, in.Context)
	if err != nil {
		return nil, err
	}
	return route.Reply(show(v)), nil
}

func show(c kernelapi.Context) wire.Context {
	return wire.Context{
		ID: c.ID, Language: c.Language, Cwd: c.Cwd, State: string(c.State), CreatedAt: c.CreatedAt, Restarts: c.Restarts,
		Limits: command.ShowLimits(agentapi.Limits(c.Limits)),
	}
}
