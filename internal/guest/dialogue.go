package guest

import (
	"context"
	"io"
	"net/http"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// Dialogue is a call into a sandbox that consists of requests to a server on a Unix socket in it,
// which can be repeated. It counts as activity until End. One goroutine at a time uses it.
type Dialogue struct {
	calls   *Calls
	call    *call
	release func()
}

// Talk begins a dialogue with a running sandbox, and resumes a paused sandbox. Errors: as for
// [Calls.Use].
func (g *Calls) Talk(ctx context.Context, c sandbox.Caller, ref string) (*Dialogue, error) {
	b, err := g.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	return &Dialogue{calls: g, call: newCall(ctx, b), release: b.Activity.Begin()}, nil
}

// Env returns the sandbox's environment variables.
func (d *Dialogue) Env() map[string]string { return d.call.box.View().Sandbox.Env }

// RoundTrip sends a request, which can be repeated, to the socket. Its connection breaks when the sandbox is saved. Errors: PortClosed
// if nothing listens there; Invalid if the agent is too old; errors for Again, also while the answer is read.
func (d *Dialogue) RoundTrip(path string, req *http.Request) (*http.Response, error) {
	req.Header["Idempotency-Key"] = nil
	resp, err := d.call.box.Agent.RoundTripSocket(path, req)
	if err != nil {
		if coded := box.AgentError(err); sandbox.CodeOf(coded) == sandbox.PortClosed || sandbox.CodeOf(coded) == sandbox.Invalid {
			return nil, coded
		}
		return nil, d.call.explain(err, true)
	}
	resp.Body = explained{resp.Body, d.call}
	return resp, nil
}

// explained is an answer whose errors have a code if a save caused them.
type explained struct {
	io.ReadCloser
	call *call
}

func (e explained) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	return n, e.call.explain(err, true)
}

// Again returns nil if a request that failed with reason can be repeated because a save broke its
// connection, and otherwise the error for the caller.
func (d *Dialogue) Again(reason error) error { return d.call.again(reason) }

// Reserve counts bytes of an answer that the caller has in memory, until Release. Errors: QuotaExceeded.
func (d *Dialogue) Reserve(bytes int64) error {
	return box.AgentError(d.call.box.Agent.Reserve(bytes, true))
}

// Release is the inverse of Reserve.
func (d *Dialogue) Release(bytes int64) { d.call.box.Agent.Release(bytes) }

// CheckLimits is [CheckLimits] for the sandbox of the dialogue.
func (d *Dialogue) CheckLimits(limits agentapi.Limits) error {
	return CheckLimits(limits, d.call.box.View().Sandbox.Resources)
}

// End ends the dialogue, once.
func (d *Dialogue) End() { d.release() }
