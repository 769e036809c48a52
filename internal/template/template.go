// Package template keeps memory templates: saved boxes of no sandbox, in which the interpreters of a built-in image
// have started and have loaded modules, or in which the programs of an image run that need no sandbox. Boxes with the same
// image and resources are restored from them.
//
// A template belongs to one server process: a server begins with none, and makes them again when there is demand. So
// gVisor, the agent and the processor are always the same as at its save. Nothing of a workspace is in a template, and none
// is a workspace's.
package template

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/warmbox"
)

const (
	// maxTemplates bounds the number of templates.
	maxTemplates = 16
	// planInterval is the interval at which demand is looked at.
	planInterval = 5 * time.Second
	// makePause is the time between the creations of two templates.
	makePause = 10 * time.Second
	// warmUpTimeout bounds the load of modules, saveTimeout the save of a box.
	warmUpTimeout = time.Minute
	saveTimeout   = time.Minute
	// restoreTimeout bounds a restore; after it the box is made without a template.
	restoreTimeout = 5 * time.Second
	// maxLate is how many restores in a row may fail for unknown reasons before the template counts as damaged.
	maxLate = 3
	// destroyTimeout bounds the removal of a box that could not be used.
	destroyTimeout = 30 * time.Second
	// idleMax is the time after the last use at which a template is removed, because it keeps its image in use.
	idleMax = time.Hour
)

// Images finds images, and what their interpreters load.
type Images interface {
	// Resolve returns the image of a digest and the path of its root filesystem. Errors: NotFound.
	Resolve(ctx context.Context, digest string) (spec.Image, string, error)
	// Runtimes returns the built-in images that describe themselves.
	Runtimes(ctx context.Context) ([]spec.Runtime, error)
}

// Boxes makes the boxes that become templates. [warmbox.Keeper] implements it.
type Boxes interface {
	// MakeNew makes a box of a kind, not from a template, and returns when its interpreters or programs have started.
	MakeNew(kind pool.Kind) (*pool.Box[warmbox.Box], error)
	// Destroy destroys such a box.
	Destroy(b *pool.Box[warmbox.Box])
	// ReserveSpace reports whether the host has space for such a box. If so, the space is reserved until release.
	ReserveSpace(kind pool.Kind) (release func(), ok bool)
	// AwaitCalm waits for a while until no sandbox is being started; false when the server closes.
	AwaitCalm() bool
}

// Config are the settings of a keeper.
type Config struct {
	// Dir is the directory of the templates of all servers, and of nothing else. "" makes none.
	Dir string
	// MaxBytes is the disk space that all templates may take; 0 makes none.
	MaxBytes int64
	// MinFree is the number of bytes that must be free on the disk: with less, all templates are removed. Another is made
	// only while MaxBytes more are free, so that a removal is not followed by a making.
	MinFree int64
	// CheckFree returns an error unless so many bytes are free on the disk.
	CheckFree func(least int64) error
}

// Deps are the dependencies of a keeper.
type Deps struct {
	// Owner has the part of the server, which has a directory of its own in Config.Dir; nil for all sandboxes.
	Owner  *sandbox.Ownership
	Images Images
	Driver driver.Driver
	Work   *background.Group
	Logger *slog.Logger
}

// template is a saved box.
type template struct {
	path  string
	bytes int64
	users int       // restores under way
	late  int       // restores in a row that failed for unknown reasons, each begun after the one before it had failed
	last  time.Time // the last of these failures
	used  time.Time // the last time
	gone  bool      // its files go with the last of its users
	// unstage ends the use of its files by the driver; nil for a template that was never ready.
	unstage func()
}

// Keeper makes templates, restores boxes from them, and removes them. It is safe for concurrent use.
type Keeper struct {
	Deps
	cfg      Config
	saver    driver.Checkpointer // nil makes none
	restores *prometheus.CounterVec
	// reconnect returns when the interpreters or programs of a restored box answer.
	reconnect func(ctx context.Context, b *box.Box, img *spec.Image) error

	mu        sync.Mutex
	ready     map[pool.Kind]*template // guarded by mu
	demand    *pool.Demand            // guarded by mu
	failed    map[pool.Kind]failures  // guarded by mu
	made      time.Time               // end of the last making; guarded by mu
	lastBytes int64                   // of the last template that was made; guarded by mu
}

// New returns a keeper without templates. It removes the templates of the server before. If that fails, it makes none.
func New(cfg Config, deps Deps) *Keeper {
	k := &Keeper{
		Deps: deps, cfg: cfg, ready: map[pool.Kind]*template{}, demand: pool.NewDemand(), failed: map[pool.Kind]failures{}, restores: newRestores(),
		reconnect: environment.Reconnect,
	}
	if cfg.Dir == "" {
		return k
	}
	if err := sweep(cfg.Dir, deps.Owner); err != nil {
		k.Logger.Error("the directory of memory templates cannot be used, the server makes none", "error", err)
		return k
	}
	k.cfg.Dir = filepath.Join(cfg.Dir, deps.Owner.Part())
	if c, ok := deps.Driver.(driver.Checkpointer); ok && deps.Driver.Capabilities().Checkpoint && cfg.MaxBytes > 0 {
		k.saver = c
	}
	return k
}

// sweep makes the directory of the owner of sandboxes below dir, and removes what is in it, and in dir unless it is another server's.
func sweep(dir string, owner *sandbox.Ownership) error {
	own := filepath.Join(dir, owner.Part())
	if own != dir {
		if err := os.RemoveAll(own); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if owner.Sweeps(e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Created counts a create of a sandbox of a kind in a workspace.
func (k *Keeper) Created(w sandbox.WorkspaceID, kind pool.Kind) {
	if k.saver == nil || kind.IsBlank() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.demand.Add(w, kind, time.Now())
}

// Has reports whether there is a template of a kind.
func (k *Keeper) Has(kind pool.Kind) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready[kind] != nil
}

// Lacks reports whether there is no template for a sandbox, and counts that if the image can have some.
func (k *Keeper) Lacks(img *spec.Image, r sandbox.Resources) bool {
	lacks := !k.Has(pool.Kind{Digest: img.Digest, Resources: r})
	if lacks && environment.Prestarts(img) {
		k.restores.WithLabelValues(missed).Inc()
	}
	return lacks
}

// Restore restores the box b of a spec, which does not exist, from the template of its image and resources. Like a box of
// the pool it answers, its interpreters or programs have started, and it belongs to no sandbox yet. It returns nil without an error
// when there is no template, or the restore failed and nothing of the box remains. After an error something may remain.
func (k *Keeper) Restore(ctx context.Context, b *box.Box, s driver.Spec, img *spec.Image) (driver.Handle, error) {
	kind := pool.Kind{Digest: img.Digest, Resources: s.Resources}
	if k.Lacks(img, s.Resources) {
		return nil, nil
	}
	t := k.take(kind)
	if t == nil { // it was removed at this moment
		return nil, nil
	}
	defer k.release(t)
	begin := time.Now()
	h, err := k.restore(ctx, b, s, img, t.path)
	if err == nil {
		k.restores.WithLabelValues(hit).Inc()
		k.mu.Lock()
		t.late = 0
		delete(k.failed, kind)
		k.mu.Unlock()
		return h, nil
	}
	if ctx.Err() == nil {
		k.fails(kind, t, begin, err)
	}
	b.Agent.Reset()
	destroying, end := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer end()
	if err := k.Driver.Destroy(destroying, s.ID); err != nil {
		return nil, fmt.Errorf("destroy a box that was not restored: %w", err)
	}
	return nil, ctx.Err()
}

func (k *Keeper) restore(ctx context.Context, b *box.Box, s driver.Spec, img *spec.Image, path string) (driver.Handle, error) {
	limited, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	h, err := k.saver.Restore(limited, s, path)
	if err != nil {
		return nil, err
	}
	b.Agent.Reset()
	return h, k.reconnect(limited, b, img)
}

// fails counts a restore from the template t of a kind that began at a time and failed, and removes t if it is damaged. A
// restore that lasts too long, or whose programs do not answer, may have been delayed by the host: only several, one
// after the other, say that.
func (k *Keeper) fails(kind pool.Kind, t *template, begin time.Time, why error) {
	k.restores.WithLabelValues(failed).Inc()
	k.Logger.Warn("a sandbox could not be restored from a memory template", "image", kind.Digest, "error", why)
	late := 1
	switch code := sandbox.CodeOf(why); {
	case errors.Is(why, driver.ErrNotStaged): // another is made where boxes are
		late = maxLate
	case code == sandbox.Unavailable, code == sandbox.DiskFull:
		return // the host lacks resources
	case code == sandbox.Unsupported, code == sandbox.NotFound, code == sandbox.Invalid:
		late = maxLate
	}
	var old *template
	now := time.Now()
	k.mu.Lock()
	if late == maxLate || begin.After(t.last) {
		t.late, t.last = t.late+late, now
	}
	if t.late >= maxLate && k.ready[kind] == t { // otherwise another restore has removed it
		k.fail(kind, now)
		old = k.forget(kind)
	}
	k.mu.Unlock()
	k.remove(old)
}

// take returns the template of a kind for a restore, after which the caller calls release. It returns nil if there
// is none.
func (k *Keeper) take(kind pool.Kind) *template {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.ready[kind]
	if t != nil {
		t.users++
		t.used = time.Now()
	}
	return t
}

func (k *Keeper) release(t *template) {
	k.mu.Lock()
	t.users--
	if t.users > 0 || !t.gone {
		t = nil
	}
	k.mu.Unlock()
	k.remove(t)
}

// forget forgets the template of a kind, and returns it if the caller must remove its files.
//
// Preconditions: k.mu is held.
func (k *Keeper) forget(kind pool.Kind) *template {
	t := k.ready[kind]
	delete(k.ready, kind)
	if t == nil || t.gone {
		return nil
	}
	if t.gone = true; t.users > 0 {
		return nil // the last of them removes it
	}
	return t
}

// remove removes the files of templates; nil is none.
func (k *Keeper) remove(list ...*template) {
	for _, t := range list {
		if t == nil {
			continue
		}
		if t.unstage != nil {
			t.unstage()
		}
		if err := os.RemoveAll(t.path); err != nil {
			k.Logger.Error("memory template not removed; the next server removes it", "error", err)
		}
	}
}

// keep adds a template, and returns the templates that the bounds leave no place for, those with the least demand first: the caller
// removes their files.
//
// Preconditions: k.mu is held.
func (k *Keeper) keep(kind pool.Kind, t *template, now time.Time) (old []*template, err error) {
	if t.bytes > k.cfg.MaxBytes {
		return []*template{t}, fmt.Errorf("it takes %s, and all templates may take %s", sandbox.ShowBytes(t.bytes), sandbox.ShowBytes(k.cfg.MaxBytes))
	}
	old = append(old, k.forget(kind)) // none but after a race with itself
	k.ready[kind], k.lastBytes = t, t.bytes
	demand := k.demand.Images(maxTemplates, now)
	for len(k.ready) > maxTemplates || k.bytes() > k.cfg.MaxBytes {
		least := k.least(demand, kind)
		if replaceMin*demand[least] > demand[kind] { // it is larger than was expected
			return append(old, k.forget(kind)), errors.New("templates with more demand need its place")
		}
		old = append(old, k.forget(least))
	}
	return old, nil
}

// bytes returns what all templates take.
//
// Preconditions: k.mu is held.
func (k *Keeper) bytes() (n int64) {
	for _, t := range k.ready {
		n += t.bytes
	}
	return n
}

// sizeOf returns the sum of the files in a directory.
func sizeOf(dir string) (n int64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		n += info.Size()
	}
	return n, nil
}
