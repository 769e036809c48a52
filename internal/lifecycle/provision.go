package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/readiness"
	"github.com/modbox/modbox/internal/sandbox"
)

// provision takes a recorded sandbox to running, or ends it with the cause of the failure.
func (s *Service) provision(b *entry, makeRunning func(*entry) error) {
	err := makeRunning(b)
	b.Lock()
	b.provisioning = false
	b.Unlock()
	if err == nil || b.Context().Err() != nil {
		return // it runs; or its end was decided, or the server closes: this work was canceled
	}
	cause := sandbox.Cause{Code: sandbox.CauseInternal, Message: "the server could not start it; its log says why"}
	var f *failure
	if errors.As(err, &f) {
		cause = f.cause
	}
	s.log.Warn("sandbox could not be started", "sandbox", b.ID, "error", err)
	s.endOrLog(b, cause)
}

// makeRunning takes a sandbox from its row to a running box. After a failure the destroyer frees
// its resources.
func (s *Service) makeRunning(b *entry) error {
	img, rootfs, err := s.obtainImage(b)
	if err != nil {
		return err
	}
	if s.layers != nil && b.Sandbox().ImageDigest != img.Digest { // no row says yet that it is in use
		release, err := s.layers.Hold(b.Context(), img.Digest)
		if err != nil {
			return fail(sandbox.CauseImage, err, "its image was removed")
		}
		defer release()
	}
	if err := s.startBox(b, &img, rootfs); err != nil {
		return err
	}
	if err := s.probe(b); err != nil {
		return err
	}
	return s.recordRunning(b, &img)
}

// startBox makes and starts a box, or takes a box from the pool, and configures its agent.
func (s *Service) startBox(b *entry, img *spec.Image, rootfs string) error {
	sb := b.Sandbox()
	if done, err := s.useWarmBox(b, &sb, img); done || err != nil {
		return err
	}
	return s.bootBox(b, &sb, img, rootfs)
}

// bootBox is startBox for a sandbox that gets a new box. The number of concurrent boots is limited;
// readiness probes run after the boot and do not count.
func (s *Service) bootBox(b *entry, sb *sandbox.Sandbox, img *spec.Image, rootfs string) error {
	select {
	case s.slots <- struct{}{}:
	case <-b.Context().Done():
		return b.Context().Err()
	}
	defer func() { <-s.slots }()
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.StartTimeout)
	defer cancel()
	handle, err := s.driver.Create(ctx, s.spec(sb, rootfs))
	if err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be made")
	}
	if err := s.recordBox(b, img.Digest, handle); err != nil {
		return err
	}
	if err := s.driver.Start(ctx, b.ID); err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be started")
	}
	b.Meter.Begin(time.Now().UTC())
	b.Lock()
	s.watchLater(b)
	b.Unlock()
	if err := s.networks.Connect(ctx, b.Box); err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be connected to its network")
	}
	cfg := s.environments.Agent(sb, img)
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		if cause, ended := s.endedItself(b); ended {
			return &failure{cause: cause, err: err}
		}
		return fail(sandbox.CauseStart, box.AgentError(err), "its agent did not come up")
	}
	s.executions.FollowMain(b.Box, cfg.Main)
	return nil
}

// useWarmBox assigns the box that a sandbox took from the pool to the sandbox. It reports false if
// the sandbox took none, or if the box turns out to be useless; then it destroys the box.
func (s *Service) useWarmBox(b *entry, sb *sandbox.Sandbox, img *spec.Image) (bool, error) {
	if !b.warm {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(b.Context(), attemptTimeout)
	defer cancel()
	var err error
	// The reference may mean another image since the row was written.
	if sb.ImageDigest != img.Digest {
		err = fmt.Errorf("it is of image %s", sb.ImageDigest)
	} else if err = s.configureWarmBox(ctx, b, sb, img); err == nil {
		b.Meter.Begin(time.Now().UTC())
		b.Lock()
		s.watchLater(b)
		b.Unlock()
		return true, nil
	}
	if b.Context().Err() != nil {
		return false, b.Context().Err()
	}
	s.log.Warn("a box of the pool is of no use, making another", "sandbox", b.ID, "error", err)
	b.warm = false
	b.Link.Disconnect(false)
	b.Agent.Reset()
	if err := s.driver.Destroy(b.Context(), b.ID); err != nil {
		return false, fail(sandbox.CauseStart, err, "the sandbox could not be made")
	}
	return false, nil
}

// configureWarmBox connects a box that was in the pool to its network and configures its agent.
func (s *Service) configureWarmBox(ctx context.Context, b *entry, sb *sandbox.Sandbox, img *spec.Image) error {
	if err := s.networks.Connect(ctx, b.Box); err != nil {
		return err
	}
	cfg := s.environments.Agent(sb, img)
	if err := b.Agent.Configure(ctx, cfg); err != nil {
		return err
	}
	if environment.Prestarts(img) {
		if err := environment.Announce(ctx, b.Box); err != nil {
			return err
		}
	}
	s.executions.FollowMain(b.Box, cfg.Main)
	return nil
}

// recordBox records the handle with which a restarted server finds the box.
func (s *Service) recordBox(b *entry, digest string, handle driver.Handle) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Context().Err(); err != nil {
		return err
	}
	sb, err := s.store.SetBox(s.ctx, b.ID, digest, handle)
	if err != nil {
		return fmt.Errorf("record box: %w", err)
	}
	b.Set(sb)
	return nil
}

// recordRunning ends provisioning, unless the sandbox's end was decided before.
func (s *Service) recordRunning(b *entry, img *spec.Image) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Context().Err(); err != nil {
		return err
	}
	now := time.Now().UTC()
	took := now.Sub(b.Sandbox().CreatedAt)
	data := map[string]string{"after_ms": strconv.FormatInt(took.Milliseconds(), 10), "image_digest": img.Digest}
	if b.warm {
		data["from_pool"] = "true"
	}
	sb, err := s.transition(b.Sandbox(), sandbox.Running,
		func(sb *sandbox.Sandbox) { sb.StartedAt, sb.LastActivityAt = now, now },
		sandbox.Event{Time: now, Type: sandbox.EventRunning, Message: "the sandbox is ready", Data: data})
	if err != nil {
		return fmt.Errorf("record running: %w", err)
	}
	b.Set(sb)
	b.Activity.At(now)
	s.armTimer(b)
	s.metrics.Created(took)
	return nil
}

// probe waits until the sandbox's readiness port, if it has one, answers GET / with a status 2xx.
func (s *Service) probe(b *entry) error {
	port := b.Sandbox().ReadinessPort
	if port == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.Context(), s.cfg.ReadinessTimeout)
	defer cancel()
	err := readiness.Wait(ctx, port, func(ctx context.Context) (net.Conn, error) { return s.driver.Dial(ctx, b.ID, port) })
	if err != nil {
		return &failure{
			cause: sandbox.Cause{Code: sandbox.CauseNotReady, Message: fmt.Sprintf(
				"GET / on its readiness port %d did not answer with a 2xx within %s", port, s.cfg.ReadinessTimeout)},
			err: err,
		}
	}
	return nil
}
