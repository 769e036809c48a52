package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/netrule"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// defaultTimeout is the timeout of a create; defaultTimeoutV1 is the same for older clients.
	defaultTimeout   = 300
	defaultTimeoutV1 = 15
	// startMax is how long a create may wait for its sandbox.
	startMax = 270 * time.Second
)

// sandboxes creates, finds and ends sandboxes.
type sandboxes struct{ base }

func (s *sandboxes) routes() map[string]route {
	return map[string]route{
		"POST /v2/sandboxes":             {account.SandboxesWrite, "create-sandbox", s.create(defaultTimeout)},
		"POST /sandboxes":                {account.SandboxesWrite, "create-sandbox", s.create(defaultTimeoutV1)},
		"GET /v2/sandboxes":              {account.SandboxesRead, "", s.list},
		"GET /sandboxes":                 {account.SandboxesRead, "", s.list},
		"GET /sandboxes/{id}":            {account.SandboxesRead, "", s.get},
		"DELETE /sandboxes/{id}":         {account.SandboxesWrite, "delete-sandbox", s.kill},
		"GET /sandboxes/{id}/metrics":    {account.SandboxesRead, "", s.metrics},
		"GET /sandboxes/metrics":         {account.SandboxesRead, "", s.manyMetrics},
		"GET /sandboxes/{id}/logs":       {account.SandboxesRead, "", s.logs},
		"GET /v2/sandboxes/{id}/logs":    {account.SandboxesRead, "", s.logsV2},
		"PUT /sandboxes/{id}/network":    {account.SandboxesWrite, "change-network", s.changeNetwork},
		"POST /sandboxes/{id}/fork":      {account.SandboxesWrite, "fork-sandbox", s.fork},
		"POST /sandboxes/{id}/refreshes": {account.SandboxesWrite, "update-sandbox", s.refresh},
		"POST /sandboxes/{id}/timeout":   {account.SandboxesWrite, "update-sandbox", s.setTimeout},
	}
}

// create returns the handler of a create with that default timeout, in seconds.
func (s *sandboxes) create(timeout int64) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		in, err := Decode[createInput](w, r)
		if err != nil {
			return err
		}
		if in.Timeout == nil {
			in.Timeout = &timeout
		}
		ctx := r.Context()
		req, err := s.request(ctx, &in)
		if err != nil {
			return err
		}
		if req.WaitForQuota, err = edge.WaitForQuota(r); err != nil {
			return err
		}
		sb, _, err := s.svc.Create(ctx, caller(ctx), req)
		if err != nil {
			return err
		}
		if sb, err = s.started(ctx, &sb); err == nil {
			err = s.ready(ctx, &sb)
		}
		if err != nil {
			// Nobody would know of it.
			_, _ = s.svc.Destroy(context.WithoutCancel(ctx), caller(ctx), string(sb.ID), sandbox.CauseDestroyed) // otherwise its timeout ends it
			return err
		}
		out, err := s.opened(&sb)
		if err != nil {
			return err
		}
		return answer(w, http.StatusCreated, out)
	}
}

// started waits until a new sandbox runs. With an error it returns the sandbox that did not start.
func (s *sandboxes) started(ctx context.Context, sb *sandbox.Sandbox) (sandbox.Sandbox, error) {
	now, err := s.svc.Wait(ctx, caller(ctx), string(sb.ID), sandbox.Running, startMax)
	switch {
	case err != nil:
		return *sb, err
	case now.State == sandbox.Provisioning:
		return *sb, sandbox.Errorf(sandbox.Timeout, "the sandbox did not start within %s", startMax)
	case over(&now) && now.Cause != nil:
		return *sb, sandbox.Errorf(sandbox.Unavailable, "the sandbox did not start (%s): %s", now.Cause.Code, now.Cause.Message)
	case over(&now):
		return *sb, sandbox.Errorf(sandbox.Unavailable, "the sandbox did not start")
	}
	return now, nil
}

// given reports whether a value of JSON has content.
func given(v json.RawMessage) bool {
	v = bytes.TrimSpace(v)
	return !slices.Contains([]string{"", "null", "{}", "[]"}, string(v))
}

// refusals returns an error that names the first property of a create that sandboxes do not have.
func (in *createInput) refusals() error {
	switch {
	case given(in.IAM):
		return absentField("iam")
	case len(in.VolumeMounts) > 0:
		return absentField("volumeMounts")
	case in.AutoPauseMemory != nil && !*in.AutoPauseMemory && !in.AutoPause:
		return sandbox.InvalidField("autoPauseMemory", "requires autoPause")
	case in.AutoPauseMemory != nil && !*in.AutoPauseMemory && in.AutoResume != nil && in.AutoResume.Enabled:
		return sandbox.InvalidField("autoPauseMemory", "must not be false together with autoResume")
	}
	return nil
}

// seconds reads a timeout. A shorter one than sandboxes can have is the shortest that they can have.
func seconds(field string, n int64) (time.Duration, error) {
	d := time.Duration(n) * time.Second
	if n < 1 || n > int64(sandbox.TTLMax/time.Second) {
		return 0, sandbox.InvalidField(field, "must be 1 to %d", int(sandbox.TTLMax/time.Second))
	}
	return max(d, sandbox.TTLMin), nil
}

func (s *sandboxes) get(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	out := detail{
		listed: listedOf(&sb), Domain: s.ownDomain(), AllowInternet: sb.Network.Enabled && !slices.Contains(sb.Network.DenyOut, netrule.Everything),
		Network:   networkOf(&sb),
		Lifecycle: lifecycleInfo{OnTimeout: "kill", AutoResume: AutoResume(&sb)},
	}
	if pausesItself(&sb) {
		out.Lifecycle.OnTimeout = "pause"
	}
	if !caller(r.Context()).ReadOnly {
		if out.EnvdAccessToken, err = s.credentials.Make(Access, sb.ID); err != nil {
			return err
		}
	}
	return answer(w, http.StatusOK, out)
}

func (s *sandboxes) kill(w http.ResponseWriter, r *http.Request) error {
	sb, err := s.found(r)
	if err != nil {
		return err
	}
	if _, err := s.svc.Destroy(r.Context(), caller(r.Context()), string(sb.ID), sandbox.CauseDestroyed); err != nil {
		return err
	}
	return answerNothing(w)
}

// timeoutLabel returns the value of labelTimeout.
func timeoutLabel(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
