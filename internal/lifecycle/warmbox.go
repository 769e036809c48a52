package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// poolInterval is the interval at which the plan of the pool is made anew.
	poolInterval = 5 * time.Second
	// poolPause is the time after a create in which no warm box is made, so that the
	// new sandbox's first commands have the host for themselves; poolPatience bounds the
	// time for which creates may put that off.
	poolPause    = 100 * time.Millisecond
	poolPatience = time.Second
)

// warmBox is a box in the pool. Its agent answers, and nothing was ever run in it but its image's
// "true". It is in the index of boxes without a view, so that nobody can find it and the sweep
// ignores it; it has no row, so that the next server's sweep destroys it.
type warmBox struct {
	box    *entry
	handle driver.Handle
	stop   func() // ends its watcher
}

// poolLoop keeps the pool filled until the service closes.
func (s *Service) poolLoop() {
	ticker := time.NewTicker(poolInterval)
	defer ticker.Stop()
	s.planPool()
	for {
		s.fillPool()
		select {
		case <-s.pool.Wake():
		case <-ticker.C:
			s.planPool()
		case <-s.ctx.Done():
			return
		}
	}
}

// planPool decides what the pool shall hold and gives up the rest.
func (s *Service) planPool() {
	var standing *pool.Kind
	// Without a default image there is only what was asked for.
	if img, err := s.catalogue.DefaultImage(s.ctx); err == nil && img.Digest != "" {
		standing = &pool.Kind{Digest: img.Digest, Resources: s.resources(sandbox.Resources{}, &img)}
	}
	s.pool.Plan(time.Now(), standing)
	for _, t := range s.pool.Planned() {
		if _, _, err := s.images.Resolve(s.ctx, t.Digest); err != nil {
			s.pool.Drop(t) // the image was removed
		}
	}
	for _, sp := range s.pool.Surplus(time.Now()) {
		s.discard(sp)
	}
}

// fillPool makes what the pool lacks, one box after the other.
func (s *Service) fillPool() {
	for {
		t, ok := s.pool.Missing()
		if !ok || !s.calm() || !s.fitsWarmBox(t) {
			return
		}
		sp, err := s.makeWarmBox(t)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Warn("no box could be made for the pool", "image", t.Digest, "error", err)
				s.pool.Drop(t) // until the next plan
			}
			return
		}
		if !s.pool.Add(sp) {
			s.discard(sp)
		}
	}
}

// fitsWarmBox reports whether the pool may have another box: the pool may only use free disk, and
// capacity that is not promised.
func (s *Service) fitsWarmBox(t pool.Kind) bool {
	if s.saved.CheckFree(s.cfg.MinFreeDisk) != nil {
		return false
	}
	promised, err := s.store.Promised(s.ctx)
	if err != nil {
		s.logSweep("check the capacity for the pool", err)
		return false
	}
	for kind, n := range s.pool.Ready() {
		promised.Add(kind.Resources, n)
	}
	return s.cfg.Promise.Admits(promised, t.Resources, 1) == nil
}

// calm waits for a moment at which a box for the pool is in nobody's way, and
// reports false when the service closes.
func (s *Service) calm() bool {
	begin := time.Now()
	for {
		busy := len(s.slots) > 0 || s.pool.SinceCreate() < poolPause && time.Since(begin) < poolPatience
		if !busy {
			return s.ctx.Err() == nil
		}
		select {
		case <-time.After(poolPause / 4):
		case <-s.ctx.Done():
			return false
		}
	}
}

// makeWarmBox makes a box that is ready for a sandbox. After an error the box is destroyed.
func (s *Service) makeWarmBox(t pool.Kind) (*pool.Box[warmBox], error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.StartTimeout)
	defer cancel()
	_, rootfs, err := s.images.Resolve(ctx, t.Digest)
	if err != nil {
		return nil, err
	}
	b := s.newBox(sandbox.NewID())
	s.boxes.reserve(b) // first, so that the sweep knows whose the box is
	watching, stop := context.WithCancel(b.Context())
	sp := &pool.Box[warmBox]{Kind: t, Value: warmBox{box: b, stop: stop}}
	if sp.Value.handle, err = s.driver.Create(ctx, s.spec(&sandbox.Sandbox{ID: b.ID, Resources: t.Resources}, rootfs)); err == nil {
		err = s.warmUp(ctx, b)
	}
	if err != nil {
		s.discard(sp)
		return nil, fmt.Errorf("box %s: %w", b.ID, err)
	}
	sp.Started = time.Now()
	s.work.Go(func() { s.watchWarmBox(watching, sp) })
	return sp, nil
}

// warmUp starts a box and returns when its agent answers and has run a command:
// the first one in a box takes half as long again as those after it.
func (s *Service) warmUp(ctx context.Context, b *entry) error {
	if err := s.driver.Start(ctx, b.ID); err != nil {
		return err
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		_, err := b.Agent.Health(attempt)
		return struct{}{}, err
	}, retry.Pauses(2*time.Millisecond, 100*time.Millisecond), retry.Forever())
	if err != nil {
		return err
	}
	rehearsal, err := b.Agent.Exec(ctx, agentapi.Command{Argv: []string{"true"}})
	if err != nil {
		return ctx.Err() // an image without that program is as good
	}
	defer func() { _ = rehearsal.Close() }() // nothing is lost
	for err == nil {
		_, err = rehearsal.Next()
	}
	return ctx.Err()
}

// watchWarmBox gives a box up that ends while it is in the pool. The next plan
// makes another; at once, boxes that cannot live would be made without end.
func (s *Service) watchWarmBox(ctx context.Context, sp *pool.Box[warmBox]) {
	_, _ = s.driver.Wait(ctx, sp.Value.box.ID) // an error also makes it useless
	if ctx.Err() == nil && s.pool.Remove(sp) {
		s.log.Warn("a box of the pool has ended", "box", sp.Value.box.ID)
		s.discard(sp)
	}
}

// discard destroys a box that is no longer in the pool. If that fails, the box is an orphan, which
// the sweep destroys.
func (s *Service) discard(sp *pool.Box[warmBox]) {
	sp.Value.stop()
	b := sp.Value.box
	_ = b.Agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, b.ID); err != nil {
		s.log.Error("box of the pool not destroyed, trying again soon", "box", b.ID, "error", err)
	}
	b.Cancel()
	s.boxes.remove(b)
}

// drainPool destroys what is in the pool. Work in the background must have ended.
func (s *Service) drainPool(ctx context.Context) {
	for _, sp := range s.pool.Close() {
		if ctx.Err() != nil {
			return // the next server destroys the rest
		}
		s.discard(sp)
	}
}

// useWarmBox assigns the box that a sandbox took from the pool to the sandbox, and reports false
// when there is none or it turned out to be useless; then the box is destroyed.
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
	} else if err = s.introduce(ctx, b, sb, img); err == nil {
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

// introduce connects a box that was in the pool to its network, and tells its agent who it is.
func (s *Service) introduce(ctx context.Context, b *entry, sb *sandbox.Sandbox, img *spec.Image) error {
	if err := s.networks.Connect(ctx, b.Box); err != nil {
		return err
	}
	return b.Agent.Configure(ctx, s.environments.Agent(sb, img))
}
