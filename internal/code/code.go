// Package code runs code in contexts: interpreters in sandboxes that keep their state between runs,
// and over a pause, a resume and a fork. The contexts live in a supervisor inside the sandbox
// (package kernel), which is started at the first use. Its answers are not trusted.
package code

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// maxAnswer bounds an answer that is not the events of a run.
const maxAnswer = 256 << 10

// starter is the command that starts the supervisor in a sandbox.
var starter = []string{"/.modbox/agent", "kernels"}

// Service runs code in sandboxes. It is safe for concurrent use.
type Service struct {
	guest *guest.Calls
}

// New returns a service for the sandboxes that calls reach.
func New(calls *guest.Calls) *Service { return &Service{guest: calls} }

// target is a sandbox for one caller.
type target struct {
	service *Service
	caller  sandbox.Caller
	ref     string
	talk    dialogue
}

// dialogue is the part of [guest.Dialogue] that reaches the supervisor. One goroutine at a time
// uses it.
type dialogue interface {
	// Env returns the sandbox's environment variables.
	Env() map[string]string
	// RoundTrip sends a request, which can be repeated, to the server on a socket in the sandbox. Errors: PortClosed if nothing
	// listens there; Invalid if the agent is too old; errors for Again, also while the answer is read.
	RoundTrip(path string, req *http.Request) (*http.Response, error)
	// Again returns nil if a request that failed with reason can be repeated, because a save of the
	// sandbox broke its connection, and otherwise the error for the caller.
	Again(reason error) error
	// Reserve counts bytes as memory, until Release. Errors: QuotaExceeded.
	Reserve(bytes int64) error
	// Release is the inverse of Reserve.
	Release(bytes int64)
	// Review scans code that is about to run. An error means that it must not run. Errors: CodeBlocked.
	Review(ctx context.Context, codes []codescan.Code) error
	// CheckLimits returns an error for limits that are higher than the sandbox's. Errors: Invalid, naming the field.
	CheckLimits(limits agentapi.Limits) error
	// End ends the dialogue.
	End()
}

var _ dialogue = (*guest.Dialogue)(nil)

// open begins a call into a sandbox. The caller ends its talk.
func (s *Service) open(ctx context.Context, c sandbox.Caller, ref string) (*target, error) {
	talk, err := s.guest.Talk(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	return &target{service: s, caller: c, ref: ref, talk: talk}, nil
}

// socket is the supervisor's.
var socket = path.Join(kernelapi.Directory, kernelapi.Socket)

// roundTrip sends a request to the supervisor, and starts the supervisor if it does not run.
func (t *target) roundTrip(req *http.Request, start bool) (*http.Response, error) {
	resp, err := t.talk.RoundTrip(socket, req)
	if sandbox.CodeOf(err) == sandbox.PortClosed && start {
		if err := t.start(req.Context()); err != nil {
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, fmt.Errorf("make a request to the supervisor: %w", err)
		}
		resp, err = t.talk.RoundTrip(socket, req)
	}
	switch sandbox.CodeOf(err) {
	case sandbox.PortClosed:
		return nil, errNotRunning
	case sandbox.Invalid:
		return nil, sandbox.Wrap(sandbox.Unsupported, err, "the sandbox was started by a version of Modbox that cannot run code in contexts; create another")
	default:
		return resp, err
	}
}

// startTimeout bounds the start of the supervisor.
const startTimeout = 30 * time.Second

// start starts the supervisor as the sandbox's user.
func (t *target) start(ctx context.Context) error {
	cmd, err := t.service.guest.Exec(audit.WithEntry(ctx, nil), t.caller, t.ref, agentapi.Command{Argv: starter, Timeout: startTimeout})
	if sandbox.CodeOf(err) == sandbox.ProgramNotFound {
		return sandbox.Wrap(sandbox.Unavailable, err, "the supervisor of interpreters does not exist in the sandbox")
	}
	if err != nil {
		return err
	}
	defer cmd.Close()
	var output []byte
	for {
		f, err := cmd.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case f.Type == agentapi.FrameExit && f.Exit.Code != 0:
			return sandbox.Errorf(sandbox.Unavailable, "the supervisor of interpreters did not start in the sandbox: %s", sandbox.OneLine(string(output)))
		case f.Type == agentapi.FrameStderr:
			output = append(output, f.Data[:min(len(f.Data), 1<<10-min(len(output), 1<<10))]...)
		}
	}
}

// errNotRunning says that the sandbox has no supervisor, and so no contexts.
var errNotRunning = sandbox.Errorf(sandbox.NotFound, "the sandbox has no contexts")

// send sends a request once; the caller closes the answer's body.
func (t *target) send(ctx context.Context, start bool, method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode a request to the supervisor: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("make a request to the supervisor: %w", err)
	}
	resp, err := t.roundTrip(req, start)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

// codes are the codes that callers get for a refusal.
var codes = map[kernelapi.Code]sandbox.Code{
	kernelapi.CodeInvalid:      sandbox.Invalid,
	kernelapi.CodeNotFound:     sandbox.NotFound,
	kernelapi.CodeTooMany:      sandbox.QuotaExceeded,
	kernelapi.CodeNotInstalled: sandbox.Unsupported,
	kernelapi.CodeInternal:     sandbox.Unavailable,
}

// fields are the fields of requests that the supervisor may call wrong.
var fields = []string{"language", "cwd"}

// errNoLimits says that the supervisor ignores limits.
var errNoLimits = sandbox.Errorf(sandbox.Unsupported, "the sandbox was started by a version of Modbox that cannot limit code in contexts; create another")

// errAnswer says that the supervisor did not answer as it should.
var errAnswer = sandbox.Errorf(sandbox.Unavailable, "the supervisor of interpreters in the sandbox gave no proper answer")

func refusal(resp *http.Response) error {
	var refused kernelapi.Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&refused); err != nil {
		return errAnswer
	}
	code, ok := codes[refused.Code]
	if !ok {
		return errAnswer
	}
	err := &sandbox.Error{Code: code, Message: sandbox.OneLine(refused.Message)}
	if code == sandbox.Invalid && slices.Contains(fields, refused.Field) {
		err.Field = refused.Field
	}
	return &refusedError{err}
}

// refusedError is an answer of the supervisor: a repetition would be answered the same.
type refusedError struct{ err *sandbox.Error }

func (e *refusedError) Error() string { return e.err.Error() }

func (e *refusedError) Unwrap() error { return e.err }

// again is nil if the request that failed with reason can be repeated.
func (t *target) again(reason error) error {
	var refused *refusedError
	if errors.As(reason, &refused) || errors.Is(reason, errAnswer) || errors.Is(reason, errNotRunning) {
		return reason
	}
	return t.talk.Again(reason)
}

// call sends a request that can be repeated, and decodes the answer into v unless it is nil.
func (t *target) call(ctx context.Context, start bool, method, path string, body, v any) error {
	for {
		err := t.once(ctx, start, method, path, body, v)
		if err == nil {
			return nil
		}
		if err := t.again(err); err != nil {
			return err
		}
	}
}

func (t *target) once(ctx context.Context, start bool, method, path string, body, v any) error {
	resp, err := t.send(ctx, start, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || v == nil {
		return err
	}
	if json.Unmarshal(data, v) != nil {
		return errAnswer
	}
	return nil
}

// callTimeout bounds a call that does not run code.
const callTimeout = kernelapi.StartTimeout + 15*time.Second

// Create makes a context in a running sandbox and starts its interpreter. Errors: as for every call
// into a sandbox; Invalid; QuotaExceeded; Unsupported if the interpreter is not installed.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, ref string, spec kernelapi.ContextSpec) (kernelapi.Context, error) {
	if err := sandbox.CheckEnv(spec.Env); err != nil {
		return kernelapi.Context{}, err
	}
	if err := sandbox.CheckPlace(spec.Cwd, ""); err != nil {
		return kernelapi.Context{}, err
	}
	var v kernelapi.Context
	err := s.do(ctx, c, ref, func(ctx context.Context, t *target) error {
		if err := t.talk.CheckLimits(agentapi.Limits(spec.Limits)); err != nil {
			return err
		}
		if err := t.call(ctx, true, http.MethodPost, "/contexts", spec, &v); err != nil {
			return err
		}
		if v.Limits != spec.Limits {
			_ = t.once(ctx, false, http.MethodDelete, "/contexts/"+spec.ID, nil, nil) // it ends with the sandbox otherwise
			return errNoLimits
		}
		return nil
	})
	if err == nil {
		err = check(&v)
	}
	return v, err
}

// List returns the contexts of a running sandbox, by creation.
func (s *Service) List(ctx context.Context, c sandbox.Caller, ref string) ([]kernelapi.Context, error) {
	var all kernelapi.Contexts
	err := s.do(ctx, c, ref, func(ctx context.Context, t *target) error {
		return t.call(ctx, false, http.MethodGet, "/contexts", nil, &all)
	})
	if errors.Is(err, errNotRunning) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := check(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Delete ends a context. Interrupt interrupts its run. Errors: NotFound.
func (s *Service) Delete(ctx context.Context, c sandbox.Caller, ref, id string) error {
	return s.onContext(ctx, c, ref, id, http.MethodDelete, "", nil)
}

// Interrupt interrupts the code that executes in a context, if there is some. Errors: NotFound.
func (s *Service) Interrupt(ctx context.Context, c sandbox.Caller, ref, id string) error {
	return s.onContext(ctx, c, ref, id, http.MethodPost, "/interrupt", nil)
}

// Restart starts the interpreter of a context again, without its state. Errors: NotFound.
func (s *Service) Restart(ctx context.Context, c sandbox.Caller, ref, id string) (kernelapi.Context, error) {
	var v kernelapi.Context
	if err := s.onContext(ctx, c, ref, id, http.MethodPost, "/restart", &v); err != nil {
		return v, err
	}
	return v, check(&v)
}

func (s *Service) onContext(ctx context.Context, c sandbox.Caller, ref, id, method, operation string, v any) error {
	if !validID().MatchString(id) {
		return noContext(id)
	}
	err := s.do(ctx, c, ref, func(ctx context.Context, t *target) error {
		return t.call(ctx, false, method, "/contexts/"+id+operation, nil, v)
	})
	if errors.Is(err, errNotRunning) {
		return noContext(id)
	}
	return err
}

func noContext(id string) error {
	return sandbox.Errorf(sandbox.NotFound, "context %q does not exist in the sandbox", id)
}

// do calls f for a sandbox.
func (s *Service) do(ctx context.Context, c sandbox.Caller, ref string, f func(ctx context.Context, t *target) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, sandbox.Errorf(sandbox.Timeout, "the supervisor of interpreters did not answer in time"))
	defer cancel()
	t, err := s.open(ctx, c, ref)
	if err != nil {
		return err
	}
	defer t.talk.End()
	return f(ctx, t)
}

var validID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`) })

var states = []kernelapi.State{kernelapi.Idle, kernelapi.Busy, kernelapi.Ended}

// check returns an error for a context that the supervisor cannot have.
func check(c *kernelapi.Context) error {
	if !validID().MatchString(c.ID) || !validID().MatchString(c.Language) || !slices.Contains(states, c.State) || len(c.Cwd) > 4096 || c.Restarts < 0 || c.Limits.Negative() {
		return errAnswer
	}
	c.Cwd = strings.ToValidUTF8(c.Cwd, "\uFFFD")
	return nil
}
