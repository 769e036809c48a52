package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Sandboxes has the calls for sandboxes; a sandbox is named by its id or its name. Package
// [github.com/modbox/modbox/client/sandbox] has an object for a single sandbox.
type Sandboxes struct {
	Files       *Files
	Checkpoints *Checkpoints
	Ports       *Ports
	Contexts    *Contexts

	*transport
}

// Create makes a sandbox, or returns the live sandbox of the same request. Without WaitUpTo it
// returns at once, and the sandbox is usually still provisioning.
//
// Errors: Invalid, naming the field; Exists when a different live sandbox has the name; NotFound
// for an unknown image; QuotaExceeded, whose RetryAfter says when to try again.
func (c *Sandboxes) Create(ctx context.Context, o CreateOptions) (*Sandbox, error) {
	body := wire.CreateSandbox{
		Name: o.Name, Image: o.Image, ImageID: o.ImageID, Snapshot: o.Snapshot, Env: o.Env, Labels: o.Labels,
		TTLSeconds: seconds(o.TTL), CheckpointIntervalSeconds: seconds(o.CheckpointInterval), AptPackages: o.AptPackages, NpmPackages: o.NpmPackages, PipPackages: o.PipPackages,
		Description: o.Description, Metadata: o.Metadata, Replace: o.Replace, URLAccess: o.URLAccess,
		WaitSeconds: seconds(o.WaitUpTo), WaitForQuotaSeconds: seconds(o.WaitForQuota),
	}
	if o.Resources != (Resources{}) {
		body.Resources = &o.Resources
	}
	if o.Timeouts != (Timeouts{}) {
		body.Timeouts = &o.Timeouts
	}
	if n := o.Network; n.Enabled || len(n.Ports)+len(n.AllowOut)+len(n.DenyOut)+len(n.RequestHost)+len(n.HTTPSPorts) > 0 {
		body.Network = &wire.Network{Enabled: n.Enabled, AllowOut: n.AllowOut, DenyOut: n.DenyOut, RequestHost: n.RequestHost}
		for _, port := range n.Ports {
			body.Network.Ports = append(body.Network.Ports, int(port))
		}
		for _, port := range n.HTTPSPorts {
			body.Network.HTTPSPorts = append(body.Network.HTTPSPorts, int(port))
		}
	}
	if o.Command != nil {
		command := o.Command.execution(o.Execution)
		body.Command = &command
	}
	if o.OneShot {
		body.Mode = "oneshot"
	}
	key := o.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	status := 0
	sb, err := fetch[Sandbox](ctx, c.transport, request{
		method: http.MethodPost, path: "/v1/sandboxes", body: body, repeat: true,
		header: http.Header{"Idempotency-Key": {key}}, status: &status,
	})
	if o.Made != nil {
		*o.Made = err == nil && status == http.StatusCreated
	}
	return sb, err
}

// Get returns a sandbox. Errors: NotFound.
func (c *Sandboxes) Get(ctx context.Context, ref string) (*Sandbox, error) {
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodGet, path: sandboxPath(ref), repeat: true})
}

// List lists sandboxes, newest first.
func (c *Sandboxes) List(o ListOptions) *List[Sandbox] {
	l := newList[Sandbox](c.transport, "/v1/sandboxes", map[string]string{"name": o.Name, "snapshot_id": o.SnapshotID})
	for _, s := range o.States {
		l.query.Add("state", string(s))
	}
	for k, v := range o.Labels {
		l.query.Add("label", k+"="+v)
	}
	return l
}

// UpdateOptions change settings of a sandbox; nil fields stay.
type UpdateOptions struct {
	// TTL is how long the sandbox may live from now on, in every state: 1 minute to 24 hours in
	// whole seconds; 0 removes the limit.
	TTL *time.Duration
	// CheckpointInterval is the time between automatic checkpoints, 1 minute to 24 hours in
	// whole seconds; 0 switches them off and deletes the automatic checkpoint.
	CheckpointInterval *time.Duration
}

// Update changes settings of a sandbox. Errors: Invalid, naming the field; NotFound; Ended;
// Unsupported.
func (c *Sandboxes) Update(ctx context.Context, ref string, o UpdateOptions) (*Sandbox, error) {
	var body wire.UpdateSandbox
	if o.TTL != nil {
		body.TTLSeconds = new(seconds(*o.TTL))
	}
	if o.CheckpointInterval != nil {
		body.CheckpointIntervalSeconds = new(seconds(*o.CheckpointInterval))
	}
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodPatch, path: sandboxPath(ref), body: body, repeat: true})
}

// UpdateEnv sets environment variables of a sandbox for later commands, and deletes the variables
// whose value is nil. It returns all variables that callers have set.
func (c *Sandboxes) UpdateEnv(ctx context.Context, ref string, changes map[string]*string) (map[string]string, error) {
	var env struct{ Env map[string]string }
	err := c.call(ctx, request{method: http.MethodPatch, path: sandboxPath(ref, "env"), body: changes, repeat: true}, &env)
	return env.Env, err
}

// Delete ends a sandbox and returns when it is completely removed. It returns an ended sandbox
// unchanged. Errors: NotFound.
func (c *Sandboxes) Delete(ctx context.Context, ref string) (*Sandbox, error) {
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodDelete, path: sandboxPath(ref), repeat: true})
}

// waitMax bounds the wait of a request.
const waitMax = 10 * time.Minute

// Wait returns the sandbox as soon as it has that state, or has ended, or ctx ends (with ctx's
// error). Check State: an end is no error.
func (c *Sandboxes) Wait(ctx context.Context, ref string, want State) (*Sandbox, error) {
	for {
		q := url.Values{"state": {string(want)}}
		wait := waitMax
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, max(time.Until(deadline).Round(time.Second), time.Second))
		}
		q.Set("timeout_seconds", strconv.Itoa(seconds(wait)))
		sb := new(Sandbox)
		err := c.call(ctx, request{method: http.MethodGet, path: sandboxPath(ref, "wait"), query: q, repeat: true}, sb)
		if err != nil {
			return nil, err
		}
		if sb.State == want || sb.State.Ended() {
			return sb, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// Events lists the events of a sandbox. Errors: NotFound.
func (c *Sandboxes) Events(ref string, o EventsOptions) *List[Event] {
	query := map[string]string{}
	if o.AfterSeq != 0 {
		query["after_seq"] = strconv.FormatInt(o.AfterSeq, 10)
	}
	if o.Descending {
		query["order"] = "desc"
	}
	return newList[Event](c.transport, sandboxPath(ref, "events"), query)
}

// Stats measures a running sandbox now. Errors: NotFound, NotRunning, Ended.
func (c *Sandboxes) Stats(ctx context.Context, ref string) (*Stats, error) {
	return fetch[Stats](ctx, c.transport, request{method: http.MethodGet, path: sandboxPath(ref, "stats"), repeat: true})
}

// seconds rounds up, so that a short time does not become 0.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
