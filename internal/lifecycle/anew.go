package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// revived is the outcome of starting a saved box again.
type revived struct {
	handle driver.Handle
	digest string // of its root filesystem
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
		ev.Data["image_digest"] = r.digest
		if r.late {
			ev.Data["ready"] = "false"
		}
	}
	return ev
}

// bringBackOrAnew runs a box from its saved state: with its memory, or from its files alone if the
// memory is lost or damaged and the policy permits that.
func (s *Service) bringBackOrAnew(b *entry, path, lost string, memory sandbox.MemoryPolicy) (revived, error) {
	if lost == "" {
		handle, err := s.bringBack(b, path)
		if useless(err) && b.Context().Err() == nil {
			// An apparent damage may be a box that something else ended.
			if derr := s.destroyNow(b); derr != nil {
				return revived{}, fmt.Errorf("%w; then: %w", err, derr)
			}
			handle, err = s.bringBack(b, path)
		}
		if err == nil {
			return revived{handle: handle, digest: b.Sandbox().ImageDigest}, nil
		}
		if !useless(err) || b.Context().Err() != nil || memory == sandbox.MemoryRequire {
			return revived{}, err
		}
		if derr := s.destroyNow(b); derr != nil {
			return revived{}, fmt.Errorf("%w; then: %w", err, derr)
		}
		s.log.Warn("memory of sandbox cannot be brought back, starting it anew", "sandbox", b.ID, "error", err)
		lost = sandbox.Explain("its memory cannot be brought back", err)
	}
	handle, digest, err := s.startAnew(b, path)
	if sandbox.CodeOf(err) == sandbox.Unsupported {
		err = sandbox.Wrap(sandbox.Unsupported, err, "%s; delete the sandbox, or take it back to one of its checkpoints",
			sandbox.Explain(lost+"; its files cannot be brought back either", err))
	}
	if err != nil {
		return revived{}, err
	}
	late, err := s.late(b)
	return revived{handle: handle, digest: digest, lost: lost, late: late}, err
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

// late waits until a sandbox that was started from its files is ready, at most until the time
// limit. A sandbox that is not ready by then runs nevertheless, so that its files can be reached. A
// sandbox that has ended meanwhile is an error.
func (s *Service) late(b *entry) (bool, error) {
	err := s.probe(b)
	if err == nil {
		return false, nil
	}
	if cause, ended := s.endedItself(b); ended {
		return true, &failure{cause: cause, err: err}
	}
	s.log.Warn("sandbox started anew is not ready", "sandbox", b.ID, "error", err)
	return true, b.Context().Err()
}

// startAnew makes a root filesystem from the files in a checkpoint, and starts it as a new sandbox
// is started.
func (s *Service) startAnew(b *entry, path string) (driver.Handle, string, error) {
	sb := b.Sandbox()
	img, rootfs, err := s.commitSaved(b, sb.ImageDigest, path)
	if err != nil {
		return nil, "", fmt.Errorf("files of sandbox %s: %w", b.ID, err)
	}
	select {
	case s.slots <- struct{}{}:
	case <-b.Context().Done():
		return nil, "", b.Context().Err()
	}
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.StartTimeout)
	defer cancel()
	handle, err := s.driver.Create(ctx, s.spec(&sb, rootfs))
	if err == nil {
		err = s.driver.Start(ctx, b.ID)
	}
	if err != nil {
		return nil, "", fmt.Errorf("start sandbox %s from its files: %w", b.ID, err)
	}
	b.Meter.Begin(time.Now().UTC())
	b.Agent.Reset()
	if err := s.networks.Connect(ctx, b.Box); err != nil {
		return nil, "", fmt.Errorf("network of sandbox %s started from its files: %w", b.ID, err)
	}
	cfg := s.environments.Agent(&sb, &img)
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		return nil, "", fmt.Errorf("agent of sandbox %s started from its files: %w", b.ID, box.AgentError(err))
	}
	s.executions.FollowMain(b.Box, cfg.Main)
	return handle, img.Digest, nil
}

// commitSaved makes an image from the files of a checkpoint and the root filesystem below them.
func (s *Service) commitSaved(b *entry, base, path string) (spec.Image, string, error) {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return spec.Image{}, "", err
	}
	if s.layers == nil {
		return spec.Image{}, "", sandbox.Errorf(sandbox.Unsupported, "this server makes no root filesystems")
	}
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.ImageTimeout)
	defer cancel()
	layer, err := saver.OpenLayer(path)
	if err != nil {
		return spec.Image{}, "", err
	}
	defer func() { _ = layer.Close() }() // it was only read
	made, err := s.layers.Commit(ctx, base, layer)
	if err != nil {
		return spec.Image{}, "", err
	}
	return s.images.Resolve(ctx, made.Digest)
}
