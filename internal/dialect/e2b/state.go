package e2b

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// states pauses and resumes sandboxes.
type states struct{ base }

func (s *states) routes() map[string]route {
	return map[string]route{
		"POST /sandboxes/{id}/pause":      {account.SandboxesWrite, "pause-sandbox", s.pause},
		"POST /sandboxes/{id}/resume":     {account.SandboxesWrite, "resume-sandbox", s.resume},
		"POST /sandboxes/{id}/connect":    {account.SandboxesWrite, "resume-sandbox", s.connect},
		"POST /v2/sandboxes/{id}/connect": {account.SandboxesWrite, "resume-sandbox", s.connect},
	}
}

// pausesItself reports whether a sandbox is paused, and not destroyed, at the end of its timeout.
func pausesItself(sb *sandbox.Sandbox) bool { return sb.Timeouts.OnIdle.Pauses() }

func (s *states) pause(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[resumeInput](w, r)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	if sb.State == sandbox.Paused || sb.State == sandbox.Pausing {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is paused already", SandboxID(sb.ID))
	}
	pause := s.svc.Pause
	if in.Memory != nil && !*in.Memory {
		pause = s.svc.PauseFiles
	}
	if err := pauseFor(r.Context(), s.svc, &sb, pause); err != nil {
		return err
	}
	return answerNothing(w)
}

// pauser is a way to pause a sandbox.
type pauser func(context.Context, sandbox.Caller, string) (sandbox.Sandbox, error)

// pauseFor pauses a sandbox, which no timeout ends as long as it is paused.
func pauseFor(ctx context.Context, svc *lifecycle.Service, sb *sandbox.Sandbox, pause pauser) error {
	ref, c := string(sb.ID), caller(ctx)
	before, limited := sb.Deadline()
	if limited { // it must not end between the two changes, nor live for ever if the second does not happen
		longest := sandbox.TTLMax
		if _, err := svc.Update(ctx, c, ref, lifecycle.UpdateRequest{TTL: &longest}); err != nil {
			return err
		}
	}
	_, err := pause(ctx, c, ref)
	if !limited {
		return err
	}
	ttl := time.Duration(0)
	if err != nil {
		ttl = max(time.Until(before), sandbox.TTLMin)
	}
	if _, undo := svc.Update(context.WithoutCancel(ctx), c, ref, lifecycle.UpdateRequest{TTL: &ttl}); err == nil {
		err = undo
	}
	return err
}

// resumeInput is the body of a resume and a connect.
type resumeInput struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

func (s *states) resume(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[resumeInput](w, r)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	if stateOf(&sb) == stateRunning {
		return sandbox.Errorf(sandbox.Conflict, "sandbox %s is running already", SandboxID(sb.ID))
	}
	return s.bringBack(w, r, &sb, in, defaultTimeoutV1)
}

func (s *states) connect(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[resumeInput](w, r)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	if sb.State != sandbox.Running {
		return s.bringBack(w, r, &sb, in, defaultTimeout)
	}
	timeout, err := in.timeout(defaultTimeout)
	if err == nil {
		err = extend(r.Context(), s.svc, &sb, timeout)
	}
	if err != nil {
		return err
	}
	out, err := s.opened(&sb)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, out)
}

func (in *resumeInput) timeout(def int64) (time.Duration, error) {
	if in.Timeout != nil {
		def = *in.Timeout
	}
	return seconds("timeout", def)
}

// bringBack resumes a sandbox with a new timeout.
func (s *states) bringBack(w http.ResponseWriter, r *http.Request, sb *sandbox.Sandbox, in resumeInput, def int64) error {
	timeout, err := in.timeout(def)
	if err != nil {
		return err
	}
	req := lifecycle.ResumeRequest{}
	if req.WaitForQuota, err = edge.WaitForQuota(r); err != nil {
		return err
	}
	if in.Memory != nil && !*in.Memory {
		req.Memory = sandbox.MemoryDiscard
	}
	now, err := Resume(r.Context(), s.svc, caller(r.Context()), sb, timeout, req)
	if err != nil {
		return err
	}
	out, err := s.opened(&now)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, out)
}

// Resume resumes a paused sandbox, which may run for a time; 0 is the timeout of its create. Errors:
// as for [lifecycle.Service.Resume].
func Resume(ctx context.Context, svc *lifecycle.Service, c sandbox.Caller, sb *sandbox.Sandbox, timeout time.Duration, req lifecycle.ResumeRequest) (sandbox.Sandbox, error) {
	if sb.Labels[labelColdResume] == "true" {
		req.Memory = sandbox.MemoryDiscard
	}
	if timeout == 0 {
		n, err := strconv.ParseInt(sb.Labels[labelTimeout], 10, 64)
		if err != nil {
			n = defaultTimeout
		}
		timeout = time.Duration(n) * time.Second
	}
	if !pausesItself(sb) { // before it runs: it must not run without an end
		timeout = max(timeout, sandbox.TTLMin)
		if _, err := svc.Update(ctx, c, string(sb.ID), lifecycle.UpdateRequest{TTL: &timeout}); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	return svc.Resume(ctx, c, string(sb.ID), req)
}

// extend lets a running sandbox live for a time from now, if it would end earlier.
func extend(ctx context.Context, svc *lifecycle.Service, sb *sandbox.Sandbox, d time.Duration) error {
	if at, ok := sb.Deadline(); !ok || time.Until(at) >= d {
		return nil
	}
	_, err := svc.Update(ctx, caller(ctx), string(sb.ID), lifecycle.UpdateRequest{TTL: &d})
	return err
}

// timeoutInput is the body of a change of the timeout.
type timeoutInput struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
}

func (s *sandboxes) setTimeout(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[timeoutInput](w, r)
	if err != nil {
		return err
	}
	if in.Timeout == nil {
		return sandbox.InvalidField("timeout", "must be set")
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	switch {
	case stateOf(&sb) == statePaused:
		return sandbox.Errorf(sandbox.NotFound, "sandbox %s is paused, and has no timeout", SandboxID(sb.ID))
	case *in.Timeout <= 0 && pausesItself(&sb):
		pause := s.svc.Pause
		if sb.Timeouts.OnIdle == sandbox.OnIdlePauseFiles {
			pause = s.svc.PauseFiles
		}
		err = pauseFor(ctx, s.svc, &sb, pause)
	case *in.Timeout <= 0:
		// The ttl has not passed, and so is not the cause.
		_, err = s.svc.Destroy(ctx, caller(ctx), string(sb.ID), sandbox.CauseDestroyed)
	case pausesItself(&sb):
		err = nil // its clock counts from its last use
	default:
		var d time.Duration
		if d, err = seconds("timeout", *in.Timeout); err == nil {
			_, err = s.svc.Update(ctx, caller(ctx), string(sb.ID), lifecycle.UpdateRequest{TTL: &d})
		}
	}
	if err != nil {
		return err
	}
	return answerNothing(w)
}

func (s *sandboxes) refresh(w http.ResponseWriter, r *http.Request) error {
	in, err := Decode[timeoutInput](w, r)
	if err != nil {
		return err
	}
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	d, n := time.Duration(0), int64(defaultTimeoutV1)
	if in.Duration != nil {
		n = *in.Duration
	}
	if d, err = seconds("duration", n); err != nil {
		return err
	}
	if err := extend(r.Context(), s.svc, &sb, d); err != nil {
		return err
	}
	return answerNothing(w)
}
