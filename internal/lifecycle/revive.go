package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/sandbox"
)

// revived is the outcome of starting a saved box again.
type revived struct {
	handle driver.Handle
	lost   string // why its memory was not brought back; "" when it was
	late   bool   // it was started anew and is not ready
}

// event describes it to the sandbox's owner.
func (r *revived) event(now, begin time.Time) sandbox.Event {
	ev := sandbox.Event{
		Time: now, Type: sandbox.EventResumed, Message: "it goes on where it was saved",
		Data: map[string]string{"took_ms": milliseconds(time.Since(begin))},
	}
	if r.lost != "" {
		ev.Type, ev.Message = sandbox.EventResumedFromFiles, sandbox.OneLine("it was started anew with its files: "+r.lost)
		if r.late {
			ev.Data["ready"] = "false"
		}
	}
	return ev
}

// reviver makes boxes run again from saved states.
type reviver struct {
	cfg          *Config
	starter      *starter
	watcher      *watcher
	ender        *ender
	saved        *checkpoint.Store
	driver       driver.Driver
	images       Images
	networks     *network.Service
	environments *environment.Service
	executions   *execution.Service
	log          *slog.Logger
}

// bringBackOrAnew runs a box from its saved state: with its memory, or from its files alone if the
// memory is lost or damaged and the policy permits that.
func (r *reviver) bringBackOrAnew(b *entry, path, lost string, memory sandbox.MemoryPolicy) (revived, error) {
	if lost == "" {
		handle, err := r.bringBack(b, path)
		if useless(err) && b.Context().Err() == nil {
			// An apparent damage may be a box that something else ended.
			if derr := r.ender.destroyNow(b); derr != nil {
				return revived{}, fmt.Errorf("%w; then: %w", err, derr)
			}
			handle, err = r.bringBack(b, path)
		}
		if err == nil {
			return revived{handle: handle}, nil
		}
		if !useless(err) || b.Context().Err() != nil || memory == sandbox.MemoryRequire {
			return revived{}, err
		}
		if derr := r.ender.destroyNow(b); derr != nil {
			return revived{}, fmt.Errorf("%w; then: %w", err, derr)
		}
		r.log.Warn("memory of sandbox cannot be brought back, starting it anew", "sandbox", b.ID, "error", err)
		lost = sandbox.Explain("its memory cannot be brought back", err)
	}
	handle, err := r.startAnew(b, path)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		err = sandbox.Wrap(sandbox.Unsupported, err, "%s; delete the sandbox, or take it back to one of its checkpoints",
			sandbox.Explain(lost+"; its files cannot be brought back either", err))
	}
	if err != nil {
		return revived{}, err
	}
	late, err := r.late(b)
	return revived{handle: handle, lost: lost, late: late}, err
}

// useless reports whether an error of bringBack is caused by the saved state, so that another
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

// late waits until a sandbox that was started from its files is ready, at most until the time limit. A sandbox that is not ready
// by then runs nevertheless, so that its files can be reached. A sandbox that has ended meanwhile is an error.
func (r *reviver) late(b *entry) (bool, error) {
	err := r.starter.probe(b)
	if err == nil {
		return false, nil
	}
	if cause, ended := r.watcher.ended(b); ended {
		return true, &failure{cause: cause, err: err}
	}
	r.log.Warn("sandbox started anew is not ready", "sandbox", b.ID, "error", err)
	return true, b.Context().Err()
}

// startAnew starts a new box on the root filesystem of the sandbox, gives it the files in a checkpoint, and
// starts it as a new sandbox is started.
func (r *reviver) startAnew(b *entry, path string) (driver.Handle, error) {
	handle, img, err := r.bootAnew(b)
	if err != nil {
		return nil, fmt.Errorf("start sandbox %s from its files: %w", b.ID, box.AgentError(err))
	}
	if err := r.giveFiles(b, path); err != nil {
		return nil, fmt.Errorf("files of sandbox %s: %w", b.ID, box.AgentError(err))
	}
	ctx, cancel := context.WithTimeout(b.Context(), r.cfg.StartTimeout)
	defer cancel()
	if err := r.networks.Connect(ctx, b.Box); err != nil {
		return nil, fmt.Errorf("network of sandbox %s started from its files: %w", b.ID, err)
	}
	sb := b.Sandbox()
	cfg := r.environments.Agent(&sb, &img)
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		return nil, fmt.Errorf("agent of sandbox %s started from its files: %w", b.ID, box.AgentError(err))
	}
	r.executions.FollowMain(b.Box, cfg.Main)
	return handle, nil
}

// bootAnew starts a new box on the root filesystem of the sandbox.
func (r *reviver) bootAnew(b *entry) (handle driver.Handle, img spec.Image, err error) {
	release, err := r.starter.turn(b.Context(), b.Sandbox().Workspace)
	if err != nil {
		return nil, img, err
	}
	defer release() // before the files, which may take minutes of the sandbox's own share of the processor
	ctx, cancel := context.WithTimeout(b.Context(), r.cfg.StartTimeout)
	defer cancel()
	sb := b.Sandbox()
	img, rootfs, err := r.image(ctx, &sb)
	if err != nil {
		return nil, img, err
	}
	if handle, err = r.driver.Create(ctx, r.cfg.spec(&sb, rootfs)); err == nil {
		err = r.driver.Start(ctx, b.ID)
	}
	if err != nil {
		return nil, img, err
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	return handle, img, environment.Await(ctx, b.Box)
}

// giveFiles gives a box that has just started the files in a checkpoint.
func (r *reviver) giveFiles(b *entry, path string) error {
	layer, err := r.saved.OpenLayer(path)
	if err != nil {
		return err
	}
	defer func() { _ = layer.Close() }() // it was only read
	return environment.RestoreFiles(b.Context(), b.Agent, layer, r.cfg.StartTimeout)
}

// image returns the image of a sandbox by its digest: its reference may mean another image by now.
func (r *reviver) image(ctx context.Context, sb *sandbox.Sandbox) (spec.Image, string, error) {
	img, rootfs, err := r.images.Resolve(ctx, sb.ImageDigest)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		err = sandbox.Wrap(sandbox.Unavailable, err, "%s", sandbox.Explain("the root filesystem of the sandbox is not on this server", err))
	} else if err != nil {
		err = fmt.Errorf("image of sandbox %s: %w", sb.ID, err)
	}
	return img, rootfs, err
}

// bringBack restores a box from its saved state, and configures its agent with the sandbox's identity.
func (r *reviver) bringBack(b *entry, path string) (driver.Handle, error) {
	release, err := r.starter.turn(b.Context(), b.Sandbox().Workspace)
	if err != nil {
		return nil, err
	}
	defer release()
	saver, err := r.saved.Checkpointer()
	if err != nil {
		return nil, err
	}
	size := r.saved.SizeOrLog(b.ID, path)
	ctx, cancel := context.WithTimeout(b.Context(), r.cfg.StartTimeout+time.Duration(size/slowestRead)*time.Second)
	defer cancel()
	sb := b.Sandbox()
	img, rootfs, err := r.image(ctx, &sb)
	if err != nil {
		return nil, err
	}
	handle, err := saver.Restore(ctx, r.cfg.spec(&sb, rootfs), path)
	if err != nil {
		err = fmt.Errorf("restore sandbox %s: %w", b.ID, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = &muteError{err}
		}
		return nil, err
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	ctx, cancel = context.WithTimeout(b.Context(), r.cfg.StartTimeout) // its turn is to be brief
	defer cancel()
	if err := r.networks.Connect(ctx, b.Box); err != nil {
		return nil, fmt.Errorf("network of restored sandbox %s: %w", b.ID, err)
	}
	cfg := r.environments.Agent(&sb, &img)
	cfg.Restored = true
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		return nil, &muteError{fmt.Errorf("agent of restored sandbox %s: %w", b.ID, box.AgentError(err))}
	}
	return handle, nil
}
