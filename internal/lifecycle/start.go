package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/readiness"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/warmbox"
)

// starter starts boxes for sandboxes, or takes boxes from the pool.
type starter struct {
	cfg          *Config
	states       *states
	watcher      *watcher
	driver       driver.Driver
	networks     *network.Service
	environments *environment.Service
	executions   *execution.Service
	slots        *fairsem.Semaphore // has a place for each box being started
	templates    *template.Keeper
	warm         *warmbox.Keeper
	metrics      *telemetry.Metrics
	log          *slog.Logger
}

// spec describes the box of a sandbox to the driver.
func (c *Config) spec(sb *sandbox.Sandbox, rootfs string) driver.Spec {
	return driver.Spec{
		ID: sb.ID, Hostname: environment.Hostname(sb), RootFS: rootfs, Resources: sb.Resources,
		MaxProcesses: int64(c.MaxProcesses),
	}
}

// Spec implements [savedbox.Host].
func (s *starter) Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec { return s.cfg.spec(sb, rootfs) }

// startBox makes and starts a box, or takes a box from the pool, and configures its agent.
func (s *starter) startBox(b *entry, img *spec.Image, rootfs string) error {
	sb := b.Sandbox()
	staged, err := s.Stage(b.making(), sb.Workspace, s.cfg.spec(&sb, rootfs), "")
	if err != nil {
		return fail(sandbox.CauseStart, err, "its image could not be brought to the worker")
	}
	defer staged()
	if done, err := s.useWarmBox(b, img, rootfs); done || err != nil {
		return err
	}
	release, err := s.firstTurn(b)
	if err != nil {
		return err
	}
	defer release()
	if err := s.restoreBox(b, img, rootfs); err != nil {
		return err
	}
	if done, err := s.useWarmBox(b, img, rootfs); done || err != nil {
		return err
	}
	return s.bootBox(b, img, rootfs)
}

// queueTimeout is how long a new sandbox waits for its turn to boot.
const queueTimeout = 10 * time.Minute

// firstTurn waits for the turn of a new sandbox. The number of concurrent boots and restores is limited, and workspaces take turns;
// readiness probes run after the turn. release ends it.
func (s *starter) firstTurn(b *entry) (release func(), err error) {
	wait, stop := context.WithTimeout(b.making(), queueTimeout)
	defer stop()
	if release, err = s.Turn(wait, b.Sandbox().Workspace); errors.Is(err, context.DeadlineExceeded) {
		err = fail(sandbox.CauseStart, err, "other sandboxes were started for very long")
	}
	return release, err
}

// bootBox is startBox for a sandbox that gets a new box.
func (s *starter) bootBox(b *entry, img *spec.Image, rootfs string) error {
	sb := b.Sandbox()
	ctx, cancel := context.WithTimeout(b.making(), s.cfg.StartTimeout)
	defer cancel()
	var handle driver.Handle
	if err := s.metrics.Do(ctx, telemetry.Box, func(ctx context.Context) (err error) {
		handle, err = s.driver.Create(ctx, s.cfg.spec(&sb, rootfs))
		return err
	}); err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be made")
	}
	if err := s.states.recordBox(b, img.Digest, handle); err != nil {
		return err
	}
	if err := s.metrics.Do(ctx, telemetry.Boot, func(ctx context.Context) error { return s.driver.Start(ctx, b.ID) }); err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be started")
	}
	b.Meter.Begin(time.Now().UTC())
	b.Lock()
	s.watcher.watchLater(b)
	b.Unlock()
	if err := s.metrics.Do(ctx, telemetry.Network, func(ctx context.Context) error { return s.networks.Connect(ctx, b.Box) }); err != nil {
		return fail(sandbox.CauseStart, err, "the sandbox could not be connected to its network")
	}
	cfg := s.environments.Agent(&sb, img)
	if err := s.metrics.Do(ctx, telemetry.Agent, func(ctx context.Context) error { return environment.Configure(ctx, b.Box, cfg) }); err != nil {
		if cause, ended := s.watcher.ended(b); ended {
			return &failure{cause: cause, err: err}
		}
		return fail(sandbox.CauseStart, box.AgentError(err), "its agent did not come up")
	}
	s.executions.FollowMain(b.Box, cfg.Main)
	return nil
}

// Stage implements [savedbox.Host].
func (s *starter) Stage(ctx context.Context, ws sandbox.WorkspaceID, spec driver.Spec, checkpoint string) (release func(), err error) {
	return s.warm.Stage(ctx, ws, spec, checkpoint)
}

// Turn implements [savedbox.Host].
func (s *starter) Turn(ctx context.Context, ws sandbox.WorkspaceID) (release func(), err error) {
	err = s.metrics.Do(ctx, telemetry.Queue, func(ctx context.Context) (err error) {
		release, err = s.slots.Acquire(ctx, ws, nil)
		return err
	})
	return release, err
}

// restoreBox restores the box of a sandbox from the template of its image and resources, if there is one. Then it is as a
// box of the pool.
func (s *starter) restoreBox(b *entry, img *spec.Image, rootfs string) error {
	sb := b.Sandbox()
	if s.templates.Lacks(img, sb.Resources) {
		return nil
	}
	return s.metrics.Do(b.making(), telemetry.Box, func(ctx context.Context) error {
		handle, err := s.templates.Restore(ctx, b.Box, s.cfg.spec(&sb, rootfs), img)
		if err != nil && ctx.Err() == nil {
			return fail(sandbox.CauseStart, err, "the sandbox could not be made")
		} else if handle == nil || err != nil {
			return err
		}
		b.warm = &warmbox.Box{Box: b.Box, Handle: handle, Restored: true, Own: true}
		return s.states.recordBox(b, img.Digest, handle)
	})
}

// useWarmBox assigns the box that a sandbox took from the pool to the sandbox. It reports false if
// the sandbox took none, or if the box turns out to be useless; then it destroys the box.
func (s *starter) useWarmBox(b *entry, img *spec.Image, rootfs string) (bool, error) {
	if b.warm == nil {
		return false, nil
	}
	sb := b.Sandbox()
	ctx, cancel := context.WithTimeout(b.making(), attemptTimeout)
	defer cancel()
	cfg := s.environments.Agent(&sb, img)
	var err error
	// The reference may mean another image since the row was written, and only the start of a new box records that.
	if sb.ImageDigest != img.Digest {
		err = fmt.Errorf("it is of image %s", sb.ImageDigest)
	} else if err = s.metrics.Do(ctx, telemetry.Pooled, func(ctx context.Context) error { return b.warm.Assign(ctx, s.driver, s.networks, cfg, img, rootfs) }); err == nil {
		s.executions.FollowMain(b.Box, cfg.Main)
		b.Meter.Begin(time.Now().UTC())
		b.Lock()
		s.watcher.watchLater(b)
		b.Unlock()
		return true, nil
	}
	if b.Context().Err() != nil {
		return false, b.Context().Err()
	}
	s.log.Warn("a box of the pool is of no use, making another", "sandbox", b.ID, "error", err)
	b.warm = nil
	b.Link.Disconnect(false)
	b.Agent.Reset()
	if err := s.driver.Destroy(b.Context(), b.ID); err != nil {
		return false, fail(sandbox.CauseStart, err, "the sandbox could not be made")
	}
	return false, nil
}

// probe waits until the sandbox's readiness port, if it has one, answers GET / with a status 2xx.
func (s *starter) probe(b *entry) error {
	sb := b.Sandbox()
	if sb.ReadinessPort == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.making(), s.cfg.ReadinessTimeout)
	defer cancel()
	err := s.metrics.Do(ctx, telemetry.Ready, func(ctx context.Context) error {
		port := sb.ReadinessPort
		server := readiness.Server{Port: port, HTTPS: sb.Network.SpeaksHTTPS(port), Host: sb.Network.HostFor(port)}
		return readiness.Wait(ctx, server, func(ctx context.Context) (net.Conn, error) { return s.driver.Dial(ctx, b.ID, port) })
	})
	if err != nil {
		return &failure{err: err, cause: sandbox.Cause{Code: sandbox.CauseNotReady, Message: fmt.Sprintf(
			"GET / on its readiness port %d did not answer with a 2xx within %s", sb.ReadinessPort, s.cfg.ReadinessTimeout)}}
	}
	return nil
}

// late waits until a sandbox that was started from its files is ready, at most until the time limit. A sandbox that is not ready
// by then runs nevertheless, so that its files can be reached. A sandbox that has ended meanwhile is an error.
func (s *starter) late(b *entry) (bool, error) {
	err := s.probe(b)
	if err == nil {
		return false, nil
	}
	if cause, ended := s.watcher.ended(b); ended {
		return true, &failure{cause: cause, err: err}
	}
	s.log.Warn("sandbox started anew is not ready", "sandbox", b.ID, "error", err)
	return true, b.Context().Err()
}
