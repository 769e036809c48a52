package lifecycle

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// makings are the images being made now, by what identifies them.
type makings struct {
	mu    sync.Mutex
	byKey map[string]*making // guarded by mu
}

// making is one image being made, for all who want it.
type making struct {
	done   chan struct{} // closed at its end
	img    sandbox.Image // valid when done
	err    error         // valid when done
	cancel context.CancelFunc
	// watchers are who wait for it, and what they want to hear; guarded by makings.mu.
	watchers map[*watcher]struct{}
	last     sandbox.ImageEvent // guarded by makings.mu
}

type watcher struct{ progress func(sandbox.ImageEvent) }

// make has an image made, or joins those who wait for the same one. The work has
// one of the places, which are those of Service.pulls or Service.builds, as the
// workspace's that asked first, and ends early when nobody waits for it any more.
// Progress, which may be nil, must return at once.
//
// Errors: the work's; the context's; QuotaExceeded when too many of the workspace
// wait; Unavailable when the service closes, and when the disk is nearly full.
func (s *Service) make(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, key string, progress func(sandbox.ImageEvent),
	work func(context.Context, func(sandbox.ImageEvent)) (sandbox.Image, error),
) (sandbox.Image, error) {
	w := &watcher{progress: progress}
	m, err := s.joinMaking(places, ws, key, w, work)
	if err != nil {
		return sandbox.Image{}, err
	}
	select {
	case <-m.done:
		return m.img, m.err
	case <-ctx.Done():
		s.leaveMaking(key, m, w)
		return sandbox.Image{}, ctx.Err()
	}
}

// joinMaking makes w a watcher of the key's making, which it starts when there is none.
func (s *Service) joinMaking(places *fairsem.Semaphore, ws sandbox.WorkspaceID, key string, w *watcher,
	work func(context.Context, func(sandbox.ImageEvent)) (sandbox.Image, error),
) (*making, error) {
	s.makings.mu.Lock()
	defer s.makings.mu.Unlock()
	if m := s.makings.byKey[key]; m != nil {
		m.watchers[w] = struct{}{}
		if w.progress != nil && m.last.Phase != "" {
			w.progress(m.last)
		}
		return m, nil
	}
	if err := s.saved.Enough(s.cfg.MinFreeDisk); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	m := &making{done: make(chan struct{}), cancel: cancel, watchers: map[*watcher]struct{}{w: {}}}
	started := s.work.Go(func() {
		defer cancel()
		img, err := s.runMaking(ctx, places, ws, m, work)
		s.makings.mu.Lock()
		defer s.makings.mu.Unlock()
		if s.makings.byKey[key] == m {
			delete(s.makings.byKey, key)
		}
		m.img, m.err = img, err
		close(m.done)
	})
	if !started {
		cancel()
		return nil, box.ErrClosed
	}
	s.makings.byKey[key] = m
	return m, nil
}

// runMaking does the work when there is a place for it; its time begins then.
func (s *Service) runMaking(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, m *making,
	work func(context.Context, func(sandbox.ImageEvent)) (sandbox.Image, error),
) (sandbox.Image, error) {
	progress := func(e sandbox.ImageEvent) {
		s.makings.mu.Lock()
		defer s.makings.mu.Unlock()
		m.last = e
		for w := range m.watchers {
			if w.progress != nil {
				w.progress(e)
			}
		}
	}
	release, err := places.Acquire(ctx, ws, func() {
		progress(sandbox.ImageEvent{Phase: "waiting", Message: "other images are being made"})
	})
	if err != nil && ctx.Err() != nil {
		return sandbox.Image{}, s.explainMaking(ctx)
	}
	if err != nil {
		return sandbox.Image{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ImageTimeout)
	defer cancel()
	img, err := work(ctx, progress)
	if err != nil && ctx.Err() != nil {
		return sandbox.Image{}, s.explainMaking(ctx)
	}
	return img, err
}

// explainMaking says why the context of a making ended.
func (s *Service) explainMaking(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return box.ErrClosed
	}
	return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "it was not made within %s", s.cfg.ImageTimeout)
}

// leaveMaking ends a watcher's interest, and the making when it was the last. Who
// asks from then on starts anew.
func (s *Service) leaveMaking(key string, m *making, w *watcher) {
	s.makings.mu.Lock()
	defer s.makings.mu.Unlock()
	delete(m.watchers, w)
	if len(m.watchers) == 0 {
		if s.makings.byKey[key] == m {
			delete(s.makings.byKey, key)
		}
		m.cancel()
	}
}

// obtainImage returns the image of a sandbox, with its dependencies, and the path
// of its root filesystem, and has it made when it is not here.
func (s *Service) obtainImage(b *entry) (sandbox.Image, string, error) {
	sb := b.Sandbox()
	ref, who := sb.Image, sandbox.Puller{Workspace: sb.Workspace, Registry: sb.Registry}
	if sb.Snapshot != "" {
		ref, who = sb.ImageDigest, sandbox.Puller{} // who may use a snapshot was seen before
	}
	ctx := b.Context() // what is made has its own time
	img, rootfs, err := s.ensureImage(ctx, ref, who, s.imageProgress(b, ref))
	if err != nil {
		return img, "", fail(sandbox.CauseImage, err, "the image "+sb.Image+" could not be had")
	}
	if d := dependenciesOf(&sb); !d.empty() {
		if img, rootfs, err = s.withDependencies(ctx, sb.Workspace, &img, d, installRoom{own: sb.Resources}, s.imageProgress(b, ref)); err != nil {
			return img, "", fail(sandbox.CauseImage, err, "its dependencies could not be installed")
		}
	}
	return img, rootfs, nil
}

// ensureImage returns an image, built by the workspace, from before or made now, and
// the path of its root filesystem, when who may have it. Progress is as in [Service.make].
func (s *Service) ensureImage(ctx context.Context, ref string, who sandbox.Puller, progress func(sandbox.ImageEvent)) (sandbox.Image, string, error) {
	if built, err := s.images.Built(ctx, who.Workspace, ref); err == nil {
		return s.images.Resolve(ctx, built.Digest)
	} else if sandbox.CodeOf(err) != sandbox.NotFound {
		return sandbox.Image{}, "", err
	}
	img, rootfs, err := s.images.Resolve(ctx, ref)
	if err == nil && !s.images.Stale(ref, who) {
		return img, rootfs, nil
	}
	_, err = s.make(ctx, s.pulls, who.Workspace, makingKey("image", ref, who), progress, func(ctx context.Context, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
		img, _, err := s.images.Ensure(ctx, ref, who, progress)
		return img, err
	})
	if err != nil {
		return sandbox.Image{}, "", err
	}
	return s.images.Resolve(ctx, ref)
}

// puller is for whom a workspace has images pulled.
func puller(ws sandbox.WorkspaceID) sandbox.Puller { return sandbox.Puller{Workspace: ws} }

// makingKey is of what is made for somebody: others may not be given it.
func makingKey(kind, ref string, who sandbox.Puller) string {
	return kind + " " + string(who.Workspace) + " " + string(who.Registry) + " " + ref
}

// PullImage has the image that a registry has under a reference pulled, or what it
// has now when the image is here. Several callers share one pull. Progress, which
// may be nil, is told what happens and must return at once.
//
// Errors: Invalid, naming the field; NotFound, Forbidden, Unsupported, TooLarge,
// Timeout and Unavailable with the registry's words.
func (s *Service) PullImage(ctx context.Context, c sandbox.Caller, ref string, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
	if ref == "" {
		return sandbox.Image{}, sandbox.InvalidField("image", "name the image to pull")
	}
	if err := sandbox.CheckText("image", ref, 1, sandbox.ImageRefMax); err != nil {
		return sandbox.Image{}, err
	}
	audit.FromContext(ctx).Object("image", ref, "")
	who := puller(c.Workspace)
	return s.make(ctx, s.pulls, who.Workspace, makingKey("pull", ref, who), progress, func(ctx context.Context, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
		return s.images.Update(ctx, ref, who, progress)
	})
}

// imageEventsMax bounds the events of one sandbox about its image.
const imageEventsMax = 32

// imageProgress returns a function that appends an event to a sandbox for each
// phase in the making of its image.
func (s *Service) imageProgress(b *entry, what string) func(sandbox.ImageEvent) {
	var last sandbox.ImagePhase
	count := 0
	return func(e sandbox.ImageEvent) { // one call at a time: makings.mu is held
		if e.Phase == last || count == imageEventsMax {
			return
		}
		last = e.Phase
		count++
		data := map[string]string{"image": what, "phase": string(e.Phase), "detail": sandbox.OneLine(e.Message)}
		if e.Total > 0 {
			data["total"] = strconv.FormatInt(e.Total, 10)
		}
		ev := sandbox.Event{
			Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventImageBuilding,
			Message: sandbox.OneLine(fmt.Sprintf("its image is being made: %s: %s", e.Phase, e.Message)), Data: data,
		}
		select {
		case s.notes <- ev:
		default: // so much else happens that this can be missed
		}
	}
}
