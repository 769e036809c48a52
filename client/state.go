package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// Timeouts are the time limits of a sandbox other than its TTL, in whole seconds. Zero values mean none.
type Timeouts = wire.Timeouts

// Checkpoints has the calls for the checkpoints of a sandbox.
type Checkpoints struct{ *transport }

// Checkpoint is a saved state of a sandbox, memory and files.
type Checkpoint = wire.Checkpoint

// ForkOptions describe the children to make; the zero value is one child.
type ForkOptions struct {
	Count int
	// Names of the first children; the server makes the other names up.
	Names []string
	// Env and Labels are added to the parent's.
	Env    map[string]string
	Labels map[string]string
	// TTL counts from the fork; 0 is the parent's.
	TTL time.Duration
	// Timeouts replace the parent's unless nil.
	Timeouts *Timeouts
	// WaitForQuota is as in ResumeOptions, for all children.
	WaitForQuota time.Duration
}

// Forked is the result of a child: Err is nil when Sandbox runs. A child that was recorded and failed has both.
type Forked struct {
	Sandbox *Sandbox
	Err     error
}

// Pause saves a sandbox, ends its processes and frees its memory, and returns after that. Calls into a paused sandbox resume it. Errors: NotFound, NotRunning, Ended, Unsupported, DiskFull.
func (c *Sandboxes) Pause(ctx context.Context, ref string) (*Sandbox, error) {
	return c.change(ctx, sandboxPath(ref, "pause"), nil)
}

// PauseWithoutMemory is Pause that ends the processes and saves the files alone: a resume starts the sandbox anew.
func (c *Sandboxes) PauseWithoutMemory(ctx context.Context, ref string) (*Sandbox, error) {
	return c.change(ctx, sandboxPath(ref, "pause"), wire.PauseSandbox{Memory: new(bool)})
}

// Archive moves the state of a paused sandbox to the server's object store. Errors: NotFound, Ended, Conflict, QuotaExceeded, Unsupported, Unavailable.
func (c *Sandboxes) Archive(ctx context.Context, ref string) (*Sandbox, error) {
	return c.change(ctx, sandboxPath(ref, "archive"), nil)
}

// Memory is a policy for the memory of a sandbox that is resumed.
type Memory string

// The policies for memory.
const (
	MemoryPrefer  Memory = "prefer"  // restore it, or start anew with the files if that is impossible
	MemoryRequire Memory = "require" // leave the sandbox paused if it cannot be restored
	MemoryDiscard Memory = "discard" // start anew with the files in any case
)

// ResumeOptions configure a resume. The zero value restores the memory if it can.
type ResumeOptions struct {
	// Memory is MemoryPrefer when empty.
	Memory Memory
	// WaitForQuota bounds the time for which the server waits for the workspace's quota, in whole seconds, at most 10 minutes. 0 does not wait.
	WaitForQuota time.Duration
}

// Resume restores a paused sandbox and returns when it can be used. If its memory cannot be restored, the sandbox starts anew with its files, and
// MemoryLostReason gives the reason. Errors: NotFound, Ended, QuotaExceeded; Unsupported, also when the memory is required and cannot be restored.
func (c *Sandboxes) Resume(ctx context.Context, ref string, o ResumeOptions) (*Sandbox, error) {
	body := wire.ResumeSandbox{Memory: string(o.Memory), WaitForQuotaSeconds: seconds(o.WaitForQuota)}
	return c.change(ctx, sandboxPath(ref, "resume"), body)
}

// change makes a call that returns the sandbox and may be repeated.
func (c *Sandboxes) change(ctx context.Context, path string, body any) (*Sandbox, error) {
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodPost, path: path, body: body, repeat: true})
}

// Create saves the state of a sandbox under a name; the server makes up an empty one. Errors: Exists, QuotaExceeded, the errors of Pause.
func (c *Checkpoints) Create(ctx context.Context, ref, name string) (*Checkpoint, error) {
	body := wire.CreateCheckpoint{Name: name}
	return fetch[Checkpoint](ctx, c.transport, request{method: http.MethodPost, path: sandboxPath(ref, "checkpoints"), body: body})
}

// List lists the checkpoints of a sandbox, oldest first. Errors: NotFound.
func (c *Checkpoints) List(ref string) *List[Checkpoint] {
	return newList[Checkpoint](c.transport, sandboxPath(ref, "checkpoints"), nil)
}

// Restore restores a checkpoint of a sandbox, by id or name, and returns when it runs. Its later state is lost.
func (c *Checkpoints) Restore(ctx context.Context, ref, checkpoint string) (*Sandbox, error) {
	return fetch[Sandbox](ctx, c.transport, request{method: http.MethodPost, path: checkpointPath(ref, checkpoint, "restore")})
}

// Delete deletes a checkpoint, named by id or name. Errors: NotFound.
func (c *Checkpoints) Delete(ctx context.Context, ref, checkpoint string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: checkpointPath(ref, checkpoint)}, nil)
}

func checkpointPath(ref, checkpoint string, parts ...string) string {
	return sandboxPath(ref, append([]string{"checkpoints", url.PathEscape(checkpoint)}, parts...)...)
}

// Fork makes sandboxes with the memory, processes and files of a running or paused sandbox: the quota admits all of them, or none. It
// returns when each child runs or has failed, in the order of the names. Errors: QuotaExceeded, and the errors of Pause.
func (c *Sandboxes) Fork(ctx context.Context, ref string, o ForkOptions) ([]Forked, error) {
	var answer wire.ForkList
	err := c.call(ctx, request{method: http.MethodPost, path: sandboxPath(ref, "fork"), body: wire.Fork{
		Count: o.Count, Names: o.Names, Env: o.Env, Labels: o.Labels, TTLSeconds: seconds(o.TTL), Timeouts: o.Timeouts,
		WaitForQuotaSeconds: seconds(o.WaitForQuota),
	}}, &answer)
	if err != nil {
		return nil, err
	}
	children := make([]Forked, len(answer.Forks))
	for i, item := range answer.Forks {
		children[i].Sandbox = item.Sandbox
		if item.Error != nil {
			children[i].Err = &Error{Code: Code(item.Error.Code), Message: item.Error.Detail}
		}
	}
	return children, nil
}
