package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// poolLoop keeps the pool filled until the service closes.
func (s *Service) poolLoop() {
	ticker := time.NewTicker(poolInterval)
	defer ticker.Stop()
	s.planPool()
	for {
		s.fillPool()
		select {
		case <-s.pool.wake:
		case <-ticker.C:
			s.planPool()
		case <-s.ctx.Done():
			return
		}
	}
}

// planPool decides what the pool shall hold and gives up the rest.
func (s *Service) planPool() {
	var standing *template
	// Without a default image there is only what was asked for.
	if img, err := s.defaultImage(s.ctx); err == nil && img.Digest != "" {
		standing = &template{digest: img.Digest, resources: s.resources(sandbox.Resources{}, &img)}
	}
	s.pool.share(time.Now(), standing)
	for _, t := range s.pool.kinds() {
		if _, _, err := s.images.Resolve(s.ctx, t.digest); err != nil {
			s.pool.forget(t) // the image was removed
		}
	}
	for _, sp := range s.pool.surplus(time.Now()) {
		s.discard(sp)
	}
}

// fillPool makes what the pool lacks, one box after the other.
func (s *Service) fillPool() {
	for {
		t, ok := s.pool.missing()
		if !ok || !s.calm() || !s.roomForSpare(t) {
			return
		}
		sp, err := s.makeSpare(t)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Warn("no box could be made for the pool", "image", t.digest, "error", err)
				s.pool.forget(t) // until the next plan
			}
			return
		}
		if !s.pool.add(sp) {
			s.discard(sp)
		}
	}
}

// roomForSpare reports whether the pool may have one more box: it has only what is left
// of the disk, and of what may be promised.
func (s *Service) roomForSpare(t template) bool {
	if s.saved.enough(s.cfg.MinFreeDisk) != nil {
		return false
	}
	promised, err := s.store.Promised(s.ctx)
	if err != nil {
		s.logSweep("look for room for the pool", err)
		return false
	}
	for kind, n := range s.pool.have() {
		promised.Add(kind.resources, n)
	}
	return s.cfg.Promise.Admits(promised, t.resources, 1) == nil
}

// calm waits for a moment at which a box for the pool is in nobody's way, and
// reports false when the service closes.
func (s *Service) calm() bool {
	begin := time.Now()
	for {
		busy := len(s.slots) > 0 || s.pool.quiet() < poolPause && time.Since(begin) < poolPatience
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

// makeSpare makes a box that is ready for a sandbox. On an error nothing of it is left.
func (s *Service) makeSpare(t template) (*spare, error) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.StartTimeout)
	defer cancel()
	_, rootfs, err := s.images.Resolve(ctx, t.digest)
	if err != nil {
		return nil, err
	}
	b := s.newBox(sandbox.NewID())
	s.boxes.reserve(b) // first, so that the sweep knows whose the box is
	watching, stop := context.WithCancel(b.ctx)
	sp := &spare{box: b, kind: t, stop: stop}
	if sp.handle, err = s.driver.Create(ctx, s.spec(&sandbox.Sandbox{ID: b.id, Resources: t.resources}, rootfs)); err == nil {
		err = s.warmUp(ctx, b)
	}
	if err != nil {
		s.discard(sp)
		return nil, fmt.Errorf("box %s: %w", b.id, err)
	}
	sp.born = time.Now()
	s.spawn(func() { s.watchSpare(watching, sp) })
	return sp, nil
}

// warmUp starts a box and returns when its agent answers and has run a command:
// the first one in a box takes half as long again as those after it.
func (s *Service) warmUp(ctx context.Context, b *box) error {
	if err := s.driver.Start(ctx, b.id); err != nil {
		return err
	}
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		_, err := b.agent.Health(attempt)
		return struct{}{}, err
	}, patience(2*time.Millisecond, 100*time.Millisecond), forever)
	if err != nil {
		return err
	}
	rehearsal, err := b.agent.Exec(ctx, agentapi.Command{Argv: []string{"true"}})
	if err != nil {
		return ctx.Err() // an image without that program is as good
	}
	defer func() { _ = rehearsal.Close() }() // nothing is lost
	for err == nil {
		_, err = rehearsal.Next()
	}
	return ctx.Err()
}

// watchSpare gives a box up that ends while it is in the pool. The next plan
// makes another; at once, boxes that cannot live would be made without end.
func (s *Service) watchSpare(ctx context.Context, sp *spare) {
	_, _ = s.driver.Wait(ctx, sp.box.id) // an error, too, means that it is of no use
	if ctx.Err() == nil && s.pool.remove(sp) {
		s.log.Warn("a box of the pool has ended", "box", sp.box.id)
		s.discard(sp)
	}
}

// discard destroys a box that is in the pool no more. What is left of it after
// an error is an orphan, which the sweep destroys.
func (s *Service) discard(sp *spare) {
	sp.stop()
	b := sp.box
	_ = b.agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, b.id); err != nil {
		s.log.Error("box of the pool not destroyed, trying again soon", "box", b.id, "error", err)
	}
	b.cancel()
	s.boxes.remove(b)
}

// drainPool destroys what is in the pool. Work in the background must have ended.
func (s *Service) drainPool(ctx context.Context) {
	for _, sp := range s.pool.close() {
		if ctx.Err() != nil {
			return // the next server destroys the rest
		}
		s.discard(sp)
	}
}

// useSpare makes the box that a sandbox took from the pool its own, and reports
// false when there is none or it turned out to be of no use; then nothing of it is left.
func (s *Service) useSpare(b *box, sb *sandbox.Sandbox, img *sandbox.Image) (bool, error) {
	if !b.spare {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, attemptTimeout)
	defer cancel()
	var err error
	// The reference may mean another image since the row was written.
	if sb.ImageDigest != img.Digest {
		err = fmt.Errorf("it is of image %s", sb.ImageDigest)
	} else if err = s.introduce(ctx, b, sb, img); err == nil {
		b.meter.begin(time.Now().UTC())
		b.mu.Lock()
		s.watchLater(b)
		b.mu.Unlock()
		return true, nil
	}
	if b.ctx.Err() != nil {
		return false, b.ctx.Err()
	}
	s.log.Warn("a box of the pool is of no use, making another", "sandbox", b.id, "error", err)
	b.spare = false
	b.line.disconnect(false)
	b.agent.Reset()
	if err := s.driver.Destroy(b.ctx, b.id); err != nil {
		return false, fail(sandbox.CauseStart, err, "the sandbox could not be made")
	}
	return false, nil
}

// introduce connects a box that was in the pool to its network, and tells its agent who it is.
func (s *Service) introduce(ctx context.Context, b *box, sb *sandbox.Sandbox, img *sandbox.Image) error {
	if err := s.connect(ctx, b); err != nil {
		return err
	}
	return b.agent.Configure(ctx, s.agentConfig(sb, img))
}
