package prepare

import (
	"context"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// tasks are the images being made now.
type tasks struct {
	mu    sync.Mutex
	byKey map[string]*task // guarded by mu
}

// task makes one image for all requests that wait for it.
type task struct {
	done   chan struct{} // closed at its end
	img    spec.Image    // valid when done
	err    error         // valid when done
	cancel context.CancelFunc
	// watchers are the requests that wait for it; guarded by tasks.mu.
	watchers map[*reporter]struct{}
	last     phase.Event // guarded by tasks.mu
}

// share runs work as the task of a key, or joins the task of that key. The task takes a place of
// the workspace that asked first, and ends early when nobody waits for it any more. Progress,
// which may be nil, must return at once; it may call the service. It is not called after share has
// returned.
//
// Errors: the work's; the context's; QuotaExceeded when too many of the workspace
// wait; Unavailable when the service closes, and when the disk is nearly full.
func (s *Service) share(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, key string, progress func(phase.Event),
	work func(context.Context, func(phase.Event)) (spec.Image, error),
) (spec.Image, error) {
	w := newReporter(progress)
	defer w.stop()
	m, err := s.join(places, ws, key, w, work)
	if err != nil {
		return spec.Image{}, err
	}
	select {
	case <-m.done:
		return m.img, m.err
	case <-ctx.Done():
		s.leave(key, m, w)
		return spec.Image{}, ctx.Err()
	}
}

// join makes w a watcher of the key's task, which it starts if there is none.
func (s *Service) join(places *fairsem.Semaphore, ws sandbox.WorkspaceID, key string, w *reporter,
	work func(context.Context, func(phase.Event)) (spec.Image, error),
) (*task, error) {
	defer w.flush() // after the lock is released
	if m := s.tasks.join(key, w); m != nil {
		return m, nil
	}
	if err := s.cfg.CheckFree(); err != nil {
		return nil, err
	}
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	if m := s.tasks.joinLocked(key, w); m != nil { // started meanwhile
		return m, nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	m := &task{done: make(chan struct{}), cancel: cancel, watchers: map[*reporter]struct{}{w: {}}}
	started := s.work.Go(func() {
		defer cancel()
		img, err := s.measured(ctx, places, ws, m, work)
		s.tasks.mu.Lock()
		defer s.tasks.mu.Unlock()
		if s.tasks.byKey[key] == m {
			delete(s.tasks.byKey, key)
		}
		m.img, m.err = img, err
		close(m.done)
	})
	if !started {
		cancel()
		return nil, box.ErrClosed
	}
	s.tasks.byKey[key] = m
	return m, nil
}

// join makes w a watcher of the key's task, which it returns; nil when there is none.
func (x *tasks) join(key string, w *reporter) *task {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.joinLocked(key, w)
}

// joinLocked is join for callers that have the lock.
func (x *tasks) joinLocked(key string, w *reporter) *task {
	m := x.byKey[key]
	if m == nil {
		return nil
	}
	m.watchers[w] = struct{}{}
	if m.last.Phase != "" {
		w.add(m.last)
	}
	return m
}

// run does the work when there is a place for it. The timeout begins then.
func (s *Service) run(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, m *task,
	work func(context.Context, func(phase.Event)) (spec.Image, error),
) (spec.Image, error) {
	progress := func(e phase.Event) {
		for _, w := range s.tasks.record(m, e) {
			w.flush()
		}
	}
	release, err := places.Acquire(ctx, ws, func() {
		progress(phase.Event{Phase: "waiting", Message: "other images are being made"})
	})
	if err != nil && ctx.Err() != nil {
		return spec.Image{}, s.explain(ctx)
	}
	if err != nil {
		return spec.Image{}, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ImageTimeout)
	defer cancel()
	img, err := work(ctx, progress)
	if err != nil && ctx.Err() != nil {
		return spec.Image{}, s.explain(ctx)
	}
	return img, err
}

// record makes e the last event of a task and queues it for all watchers, which it returns.
func (x *tasks) record(m *task, e phase.Event) []*reporter {
	x.mu.Lock()
	defer x.mu.Unlock()
	m.last = e
	list := make([]*reporter, 0, len(m.watchers))
	for w := range m.watchers {
		w.add(e)
		list = append(list, w)
	}
	return list
}

// explain returns why the context of a task ended.
func (s *Service) explain(ctx context.Context) error {
	if s.ctx.Err() != nil {
		return box.ErrClosed
	}
	return sandbox.Wrap(sandbox.Timeout, ctx.Err(), "it was not made within %s", s.cfg.ImageTimeout)
}

// leave removes a watcher, and cancels the task after the last. A later request starts a new
// task.
func (s *Service) leave(key string, m *task, w *reporter) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	delete(m.watchers, w)
	if len(m.watchers) == 0 {
		if s.tasks.byKey[key] == m {
			delete(s.tasks.byKey, key)
		}
		m.cancel()
	}
}

// Ensure returns an image, built by the workspace, from before or made now, and
// the path of its root filesystem, when who may have it. Progress is as for [Service.Pull].
func (s *Service) Ensure(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, string, error) {
	if built, err := s.images.Built(ctx, who.Workspace, ref); err == nil {
		return s.images.Resolve(ctx, built.Digest)
	} else if sandbox.CodeOf(err) != sandbox.NotFound {
		return spec.Image{}, "", err
	}
	img, rootfs, err := s.images.Resolve(ctx, ref)
	if err == nil && !s.images.Stale(ref, who) {
		return img, rootfs, nil
	}
	if err != nil && strings.HasPrefix(ref, "sha256:") { // no registry and no recipe brings it back
		return spec.Image{}, "", err
	}
	_, err = s.share(ctx, s.pulls, who.Workspace, taskKey("image", ref, who), progress, func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		img, _, err := s.images.Ensure(ctx, ref, who, progress)
		return img, err
	})
	if err != nil {
		return spec.Image{}, "", err
	}
	return s.images.Resolve(ctx, ref)
}

// Base is Ensure for an image that a workspace builds on, which must be enabled. Errors: as
// [Service.Ensure]; Invalid, naming field.
func (s *Service) Base(ctx context.Context, field, ref string, ws sandbox.WorkspaceID, progress func(phase.Event)) (spec.Image, error) {
	img, _, err := s.Ensure(ctx, ref, Puller(ws), progress)
	if err != nil {
		return spec.Image{}, err
	}
	return img, s.CheckEnabled(ctx, field, &img)
}

// CheckEnabled returns an error for a built-in image that an administrator has disabled. Errors:
// Invalid, naming field.
func (s *Service) CheckEnabled(ctx context.Context, field string, img *spec.Image) error {
	if !img.Builtin {
		return nil
	}
	off, err := s.switches.ImageDisabled(ctx, img.ID)
	if off {
		return sandbox.InvalidField(field, "%s is disabled on this server; choose another image", img.Ref())
	}
	return err
}

// Puller returns the workspace as the puller of an image.
func Puller(ws sandbox.WorkspaceID) registry.Puller { return registry.Puller{Workspace: ws} }

// taskKey returns the key of a task whose result only who may use.
func taskKey(kind, ref string, who registry.Puller) string {
	return kind + " " + string(who.Workspace) + " " + string(who.Registry) + " " + ref
}

// Pull pulls the image that a registry has under a reference, or checks that the image here is
// current. Several requests share one pull. Progress, which may be nil, gets each event and must
// return at once.
//
// Errors: Invalid, naming the field; NotFound, Forbidden, Unsupported, TooLarge,
// Timeout and Unavailable with the registry's words.
func (s *Service) Pull(ctx context.Context, c sandbox.Caller, ref string, progress func(phase.Event)) (spec.Image, error) {
	if ref == "" {
		return spec.Image{}, sandbox.InvalidField("image", "name the image to pull")
	}
	if err := sandbox.CheckText("image", ref, 1, sandbox.ImageRefMax); err != nil {
		return spec.Image{}, err
	}
	audit.FromContext(ctx).Object("image", ref, "")
	who := Puller(c.Workspace)
	return s.share(ctx, s.pulls, who.Workspace, taskKey("pull", ref, who), progress, func(ctx context.Context, progress func(phase.Event)) (spec.Image, error) {
		return s.images.Update(ctx, ref, who, progress)
	})
}
