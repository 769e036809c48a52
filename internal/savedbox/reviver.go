package savedbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/usage"
)

// Revived is the outcome of starting a saved box again.
type Revived struct {
	Handle driver.Handle
	Lost   string // why its memory was not brought back; "" when it was
	Late   bool   // it was started anew and is not ready; set by the service
}

// Event describes it to the sandbox's owner.
func (r *Revived) Event(now, begin time.Time) sandbox.Event {
	ev := sandbox.Event{
		Time: now, Type: sandbox.EventResumed, Message: "it goes on where it was saved",
		Data: map[string]string{"took_ms": strconv.FormatInt(time.Since(begin).Milliseconds(), 10)},
	}
	if r.Lost != "" {
		ev.Type, ev.Message = sandbox.EventResumedFromFiles, sandbox.OneLine("it was started anew with its files: "+r.Lost)
		if r.Late {
			ev.Data["ready"] = "false"
		}
	}
	return ev
}

// Reviver makes boxes run again from saved states.
type Reviver struct {
	ReviverDeps
	startTimeout time.Duration
}

// ReviverDeps are the dependencies of a [Reviver]; all must be set.
type ReviverDeps struct {
	Host         Host
	Saved        *checkpoint.Store
	Driver       driver.Driver
	Images       Images
	Usage        *usage.Recorder
	Networks     *network.Service
	Environments *environment.Service
	Executions   *execution.Service
	Logger       *slog.Logger
	// Context is the context of the service.
	Context context.Context
}

// NewReviver returns a reviver whose boxes start within startTimeout, plus the time for reading their memory.
func NewReviver(startTimeout time.Duration, deps ReviverDeps) *Reviver {
	return &Reviver{ReviverDeps: deps, startTimeout: startTimeout}
}

// BringBackOrAnew runs a box from its saved state: with its memory, or from its files alone if the
// memory is lost or damaged and the policy permits that. lost is why the memory is known to be lost; "" if it is not. A box
// that was started anew may not be ready yet.
func (r *Reviver) BringBackOrAnew(b *box.Box, path, lost string, memory sandbox.MemoryPolicy) (Revived, error) {
	if lost == "" {
		handle, err := r.BringBack(b, path)
		if useless(err) && b.Context().Err() == nil {
			// An apparent damage may be a box that something else ended.
			if derr := r.Destroy(b); derr != nil {
				return Revived{}, fmt.Errorf("%w; then: %w", err, derr)
			}
			handle, err = r.BringBack(b, path)
		}
		if err == nil {
			return Revived{Handle: handle}, nil
		}
		if !useless(err) || b.Context().Err() != nil || memory == sandbox.MemoryRequire {
			return Revived{}, err
		}
		if derr := r.Destroy(b); derr != nil {
			return Revived{}, fmt.Errorf("%w; then: %w", err, derr)
		}
		r.Logger.Warn("memory of sandbox cannot be brought back, starting it anew", "sandbox", b.ID, "error", err)
		lost = sandbox.Explain("its memory cannot be brought back", err)
	}
	handle, err := r.StartAnew(b, path)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		err = sandbox.Wrap(sandbox.Unsupported, err, "%s; delete the sandbox, or take it back to one of its checkpoints",
			sandbox.Explain(lost+"; its files cannot be brought back either", err))
	}
	if err != nil {
		return Revived{}, err
	}
	return Revived{Handle: handle, Lost: lost}, nil
}

// useless reports whether an error of BringBack is caused by the saved state, so that another
// attempt would fail in the same way: the state is damaged, or the restored box does not answer.
func useless(err error) bool {
	var mute *muteError
	code := sandbox.CodeOf(err)
	return err != nil && (code == sandbox.Unsupported || code == sandbox.NotFound || errors.As(err, &mute))
}

// muteError means that a box was not restored in time, or that the agent in the restored box did
// not answer correctly in time.
type muteError struct{ err error }

func (e *muteError) Error() string { return e.err.Error() }
func (e *muteError) Unwrap() error { return e.err }

// StartAnew starts a new box on the root filesystem of the sandbox, gives it the files in a checkpoint, and
// starts it as a new sandbox is started.
func (r *Reviver) StartAnew(b *box.Box, path string) (driver.Handle, error) {
	handle, img, err := r.bootAnew(b)
	if err != nil {
		return nil, fmt.Errorf("start sandbox %s from its files: %w", b.ID, box.AgentError(err))
	}
	if err := r.giveFiles(b, path); err != nil {
		return nil, fmt.Errorf("files of sandbox %s: %w", b.ID, box.AgentError(err))
	}
	ctx, cancel := context.WithTimeout(b.Context(), r.startTimeout)
	defer cancel()
	if err := r.Networks.Connect(ctx, b); err != nil {
		return nil, fmt.Errorf("network of sandbox %s started from its files: %w", b.ID, err)
	}
	sb := b.Sandbox()
	cfg := r.Environments.Agent(&sb, &img)
	if err := environment.Configure(ctx, b, cfg); err != nil {
		return nil, fmt.Errorf("agent of sandbox %s started from its files: %w", b.ID, box.AgentError(err))
	}
	r.Executions.FollowMain(b, cfg.Main)
	return handle, nil
}

// bootAnew starts a new box on the root filesystem of the sandbox.
func (r *Reviver) bootAnew(b *box.Box) (handle driver.Handle, img spec.Image, err error) {
	sb := b.Sandbox()
	img, rootfs, err := r.image(b.Context(), &sb)
	if err != nil {
		return nil, img, err
	}
	described := r.Host.Spec(&sb, rootfs)
	staged, err := r.Host.Stage(b.Context(), sb.Workspace, described, "")
	if err != nil {
		return nil, img, err
	}
	defer staged()
	release, err := r.Host.Turn(b.Context(), sb.Workspace)
	if err != nil {
		return nil, img, err
	}
	defer release() // before the files, which may take minutes of the sandbox's own share of the processor
	ctx, cancel := context.WithTimeout(b.Context(), r.startTimeout)
	defer cancel()
	if handle, err = r.Driver.Create(ctx, described); err == nil {
		err = r.Driver.Start(ctx, b.ID)
	}
	if err != nil {
		return nil, img, err
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	return handle, img, environment.Await(ctx, b)
}

// Destroy destroys the box of a sandbox that does not end.
func (r *Reviver) Destroy(b *box.Box) error {
	b.Link.Disconnect(false)
	r.Usage.Finish(r.Context, b)
	ctx, cancel := context.WithTimeout(b.Context(), destroyTimeout)
	defer cancel()
	return r.Driver.Destroy(ctx, b.ID)
}

// giveFiles gives a box that has just started the files in a checkpoint.
func (r *Reviver) giveFiles(b *box.Box, path string) error {
	layer, err := r.Saved.OpenLayer(path)
	if err != nil {
		return err
	}
	defer func() { _ = layer.Close() }() // it was only read
	return environment.RestoreFiles(b.Context(), b.Agent, layer, r.startTimeout)
}

// image returns the image of a sandbox by its digest: its reference may mean another image by now.
func (r *Reviver) image(ctx context.Context, sb *sandbox.Sandbox) (spec.Image, string, error) {
	img, rootfs, err := r.Images.Resolve(ctx, sb.ImageDigest)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain("the root filesystem of the sandbox is not on this server", err))
	} else if err != nil {
		err = fmt.Errorf("image of sandbox %s: %w", sb.ID, err)
	}
	return img, rootfs, err
}

// slowestRead is the assumed minimum rate of reading saved state, in bytes per second.
const slowestRead = 32 << 20

// BringBack restores a box from its saved state, and configures its agent with the sandbox's identity.
func (r *Reviver) BringBack(b *box.Box, path string) (driver.Handle, error) {
	sb := b.Sandbox()
	img, rootfs, err := r.image(b.Context(), &sb)
	if err != nil {
		return nil, err
	}
	described := r.Host.Spec(&sb, rootfs)
	staged, err := r.Host.Stage(b.Context(), sb.Workspace, described, path) // without a deadline: it may take long
	if err != nil {
		return nil, fmt.Errorf("bring the saved state of sandbox %s to its worker: %w", b.ID, err)
	}
	defer staged()
	release, err := r.Host.Turn(b.Context(), sb.Workspace)
	if err != nil {
		return nil, err
	}
	defer release()
	saver, err := r.Saved.Checkpointer()
	if err != nil {
		return nil, err
	}
	size := r.Saved.SizeOrLog(b.ID, path)
	ctx, cancel := context.WithTimeout(b.Context(), r.startTimeout+time.Duration(size/slowestRead)*time.Second)
	defer cancel()
	handle, err := saver.Restore(ctx, described, path)
	if err != nil {
		err = fmt.Errorf("restore sandbox %s: %w", b.ID, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) && sandbox.CodeOf(err) != sandbox.Unavailable {
			err = &muteError{err}
		}
		return nil, err
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	ctx, cancel = context.WithTimeout(b.Context(), r.startTimeout) // its turn is to be brief
	defer cancel()
	if err := r.Networks.Connect(ctx, b); err != nil {
		return nil, fmt.Errorf("network of restored sandbox %s: %w", b.ID, err)
	}
	cfg := r.Environments.Agent(&sb, &img)
	cfg.Restored = true
	if err := environment.Configure(ctx, b, cfg); err != nil {
		if errors.Is(err, driver.ErrAway) || !r.reaches(b) { // which says nothing about the memory
			err = sandbox.Wrap(sandbox.Unavailable, err, "the connection to the worker of the sandbox is lost or slow; try again")
			return nil, fmt.Errorf("agent of restored sandbox %s: %w", b.ID, err)
		}
		return nil, &muteError{fmt.Errorf("agent of restored sandbox %s: %w", b.ID, box.AgentError(err))}
	}
	return handle, nil
}

// reaches reports whether the driver answers about a box so soon that the agent of the box can be expected to answer in time.
func (r *Reviver) reaches(b *box.Box) bool {
	m, ok := r.Driver.(driver.Meter)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(b.Context(), probeTimeout)
	defer cancel()
	_, err := m.Usage(ctx, b.ID)
	return ctx.Err() == nil && !errors.Is(err, driver.ErrAway)
}
