// Package warmbox keeps boxes started for sandboxes to come: it makes the boxes that package pool
// plans, and destroys the boxes that the pool gives up.
package warmbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// planInterval is the interval at which the pool is planned anew.
	planInterval = 5 * time.Second
	// createPause is the time after a create in which no warm box is made, so that the new sandbox's
	// first commands have the host for themselves; createPauseMax bounds the time for which creates
	// may delay a warm box.
	createPause    = 100 * time.Millisecond
	createPauseMax = time.Second
	// calmMax bounds the wait for a moment in which no sandbox is being started: also a server that is always busy has warm boxes.
	calmMax = time.Minute
	// attemptTimeout bounds one call to an agent that may not have started yet.
	attemptTimeout = 5 * time.Second
	// blankRehearsals is how often a program is run in a blank box: with each run the next takes less time.
	blankRehearsals = 5
	// failurePause is the time for which no box of a kind is made after a failure.
	failurePause = time.Minute
	// destroyTimeout bounds one attempt to destroy a box.
	destroyTimeout = 60 * time.Second
)

// Box is a box in the pool. Its agent answers, and nothing was ever run in it but its image's
// "true" and, for some built-in images, interpreters that have executed nothing, or programs that need no sandbox. In a blank box the agent
// alone was run. It is in the index of boxes without a view, so that no caller can find it and the sweep
// ignores it; it has no row, so that the next server's sweep destroys it.
type Box struct {
	*box.Box
	Handle driver.Handle
	Blank  bool // it has no root filesystem yet
	// Restored: it is from a memory template. Own: it was never in the pool.
	Restored, Own bool
	stop          func() // ends its watcher
	bringing      *bringing
}

// Furnish gives a blank box its root filesystem, and returns the number of layers for the first
// configuration of its agent. In other boxes it does nothing.
func (b *Box) Furnish(ctx context.Context, d driver.Driver, rootfs string) (layers int, err error) {
	if !b.Blank {
		return 0, nil
	}
	return d.(driver.Furnisher).Furnish(ctx, b.ID, rootfs)
}

// Origin is the name of the event data that says where the box is from.
func (b *Box) Origin() string {
	if b.Own {
		return "from_template"
	}
	return "from_pool"
}

// Assign gives a box to its sandbox, whose box it is by now: it connects the box to the network, and configures its agent
// and interpreters.
func (b *Box) Assign(ctx context.Context, d driver.Driver, networks Networks, cfg agentapi.Config, img *spec.Image, rootfs string) (err error) {
	if err := networks.Connect(ctx, b.Box); err != nil {
		return err
	}
	if cfg.Layers, err = b.Furnish(ctx, d, rootfs); err != nil {
		return err
	}
	if err := b.Agent.Configure(ctx, cfg); err != nil {
		return err
	}
	if environment.Prestarts(img) && !b.Blank {
		return environment.Announce(ctx, b.Box, img)
	}
	return nil
}

// Unwatch ends the watch for the end of the box: it belongs to a sandbox now.
func (b *Box) Unwatch() { b.stop() }

// Host makes the boxes and knows how busy the server is. It is safe for concurrent use.
type Host interface {
	// NewBox returns a box that no caller can find, which the sweep does not take for an orphan.
	NewBox(id sandbox.ID) *box.Box
	// Forget removes a box of NewBox.
	Forget(b *box.Box)
	// Spec describes the box of a sandbox to the driver.
	Spec(sb *sandbox.Sandbox, rootfs string) driver.Spec
	// Starting returns the number of sandboxes that are being started.
	Starting() int
	// StandingKinds returns the kinds of boxes to have without any demand: of a create that names nothing,
	// if the server has a default image, and of a create that names an image without wishes.
	StandingKinds(ctx context.Context) []pool.Kind
	// CheckFree returns an error unless so many bytes are free on the disk.
	CheckFree(least int64) error
}

// Store knows how much capacity is promised.
type Store interface {
	// Promised returns the sum of the limits of all sandboxes and builds.
	Promised(ctx context.Context) (quota.Promise, error)
}

// Images finds root filesystems.
type Images interface {
	// Resolve returns the image of a digest and the path of its root filesystem. Errors: NotFound.
	Resolve(ctx context.Context, digest string) (spec.Image, string, error)
	// Lookup returns the image of a digest, whose files need not be on the disk. Errors: NotFound.
	Lookup(ctx context.Context, digest string) (spec.Image, error)
}

// Templates restores boxes from memory templates. Package template has one.
type Templates interface {
	// Has reports whether there is a template of a kind.
	Has(kind pool.Kind) bool
	// Restore restores the box b of a spec, which does not exist, from the template of its image and resources: as a box
	// of the pool is. It returns nil without an error when there is none, or it is of no use, and nothing of the box
	// remains; after an error something may remain.
	Restore(ctx context.Context, b *box.Box, s driver.Spec, img *spec.Image) (driver.Handle, error)
}

// Networks connects boxes to the networks of their sandboxes.
type Networks interface {
	// Connect connects the box of a sandbox to its network, if it has one.
	Connect(ctx context.Context, b *box.Box) error
}

// Config are the settings of warm boxes.
type Config struct {
	// Promise limits the sum of all sandboxes, builds and warm boxes.
	Promise func() quota.Promise
	// MinFreeDisk is the number of bytes that must be free for another warm box.
	MinFreeDisk int64
	// StartTimeout bounds the making of one box.
	StartTimeout time.Duration
}

// Deps are the parts that the keeper uses. All must be set.
type Deps struct {
	Pool   *pool.Pool[Box]
	Host   Host
	Store  Store
	Images Images
	Driver driver.Driver
	// Templates may be nil.
	Templates Templates
	Work      *background.Group
	Owner     *sandbox.Ownership // of the shards of sandboxes that are made of the boxes; nil for all
	Logger    *slog.Logger
}

// Keeper fills the pool.
type Keeper struct {
	Deps
	cfg Config
	ctx context.Context // of Work
	// failed has the time at which no box of a kind could be made, by kind.
	failed sync.Map

	mu     sync.Mutex
	making map[pool.Kind]int // boxes that are being made; guarded by mu
	// fetched has the kinds whose files the driver gets, and true for the kinds whose files it has. Guarded by mu.
	fetched map[pool.Kind]bool
	arrived chan struct{} // receives when the driver has got files
}

// New returns a keeper, which works until the context of the work ends.
func New(cfg Config, deps Deps) *Keeper {
	return &Keeper{Deps: deps, cfg: cfg, ctx: deps.Work.Context(), making: map[pool.Kind]int{}, fetched: map[pool.Kind]bool{}, arrived: make(chan struct{}, 1)}
}

// Reserve takes a box of the pool for a sandbox of a kind, as [pool.Pool.Reserve] does. It takes no blank box when there is
// a template of the kind: a box from that saves the start of interpreters or programs.
func (k *Keeper) Reserve(ctx context.Context, w sandbox.WorkspaceID, kind pool.Kind) *pool.Reservation[Box] {
	k.dropUseless()
	if k.Templates != nil && k.Templates.Has(kind) {
		return k.Pool.ReserveOwn(ctx, w, kind)
	}
	r := k.Pool.Reserve(ctx, w, kind)
	if r != nil && r.Box().Kind.IsBlank() && !k.mayFurnish(ctx, kind) {
		if !r.Cancel() {
			k.Work.Go(func() { k.Destroy(r.Box()) })
		}
		return nil
	}
	if r != nil {
		r.Box().Value.bringing.endUnless(kind.Digest)
	}
	return r
}

// Run fills the pool until the service closes.
func (k *Keeper) Run() {
	ticker := time.NewTicker(planInterval)
	defer ticker.Stop()
	k.Work.Go(k.giveWay)
	k.Plan()
	for {
		k.Fill()
		select {
		case <-k.Pool.Wake():
		case <-ticker.C:
			k.Plan()
		case <-k.arrived:
			k.Plan()
		case <-k.ctx.Done():
			return
		}
	}
}

// dropUseless gives up the boxes of the pool on hosts that get no new sandboxes.
func (k *Keeper) dropUseless() {
	d, ok := k.Driver.(driver.Placer)
	if !ok {
		return
	}
	for _, b := range k.Pool.Boxes() {
		if !d.TakesSandbox(b.Value.ID) && k.Pool.Remove(b) {
			k.Work.Go(func() { k.Destroy(b) }) // which may wait for a worker that is away
		}
	}
}

// Plan plans the boxes of the pool anew, and destroys the boxes beyond the plan.
func (k *Keeper) Plan() {
	k.dropUseless()
	k.Pool.Plan(time.Now(), k.Host.StandingKinds(k.ctx)...)
	planned := k.Pool.Planned()
	k.mu.Lock()
	maps.DeleteFunc(k.fetched, func(kind pool.Kind, has bool) bool { return has && !slices.Contains(planned, kind) })
	k.mu.Unlock()
	for _, kind := range planned {
		if kind.IsBlank() {
			continue
		}
		if _, err := k.Images.Lookup(k.ctx, kind.Digest); err != nil {
			k.Pool.Drop(kind) // the image was removed
		}
	}
	for _, b := range k.Pool.Surplus(time.Now()) {
		k.Destroy(b)
	}
	for _, b := range k.Pool.Boxes() {
		k.bring(b)
	}
}

// Fill makes the boxes that the pool lacks, one after the other.
func (k *Keeper) Fill() {
	for {
		kind, ok := k.Pool.Missing()
		if !ok || !k.AwaitCalm() {
			return
		}
		if k.failedLately(kind) || !k.fetch(kind) || !k.add(kind) {
			k.Pool.Skip(kind) // others may be smaller, and its other boxes stay
		}
	}
}

// add makes a box for the pool. It reports false when the host has no space for it, or it could not be made.
func (k *Keeper) add(kind pool.Kind) bool {
	release, ok := k.ReserveSpace(kind)
	if !ok {
		return false
	}
	defer release()
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.StartTimeout)
	defer cancel()
	b, err := k.make(ctx, kind, k.Templates)
	if err != nil {
		k.fail(kind, err)
		return false
	}
	if !k.Pool.Add(b) {
		k.Destroy(b)
		return true
	}
	k.yield() // a sandbox may wait since before it was there
	k.bring(b)
	return true
}

// failedLately reports whether a box of a kind could not be made a moment ago.
func (k *Keeper) failedLately(kind pool.Kind) bool {
	at, ok := k.failed.Load(kind)
	if ok && time.Since(at.(time.Time)) < failurePause {
		return true
	}
	k.failed.Delete(kind)
	return false
}

// ReserveSpace reports whether there may be another box that no sandbox has: such boxes may only use free disk, and capacity
// that is not promised. If so, the box counts until release.
func (k *Keeper) ReserveSpace(kind pool.Kind) (release func(), ok bool) {
	others := k.count(kind, 1) // two that are made at the same time see each other
	release = sync.OnceFunc(func() { k.count(kind, -1) })
	if !k.fits(kind, others) {
		release()
		return nil, false
	}
	return release, true
}

// count adds n to the boxes of a kind that are being made, and returns what there were.
func (k *Keeper) count(kind pool.Kind, n int) map[pool.Kind]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := maps.Clone(k.making)
	if k.making[kind] += n; k.making[kind] == 0 {
		delete(k.making, kind)
	}
	return before
}

// fits reports whether a box fits beside what is promised, the pool, and the others that are being made.
func (k *Keeper) fits(kind pool.Kind, others map[pool.Kind]int) bool {
	if k.Host.CheckFree(k.cfg.MinFreeDisk) != nil {
		return false
	}
	promised, err := k.Store.Promised(k.ctx)
	if err != nil {
		if k.ctx.Err() == nil {
			k.Logger.Error("capacity for the pool not known", "error", err)
		}
		return false
	}
	for _, boxes := range []map[pool.Kind]int{k.Pool.Ready(), others} {
		for kind, n := range boxes {
			promised.Add(kind.Resources, n)
		}
	}
	return k.cfg.Promise().Admits(promised, kind.Resources, 1) == nil
}

// AwaitCalm waits for a moment at which the making of a box delays no create, for a minute at most, and reports false
// when the service closes.
func (k *Keeper) AwaitCalm() bool {
	begin := time.Now()
	for {
		busy := k.Host.Starting() > 0 && time.Since(begin) < calmMax || k.Pool.SinceCreate() < createPause && time.Since(begin) < createPauseMax
		if !busy {
			return k.ctx.Err() == nil
		}
		select {
		case <-time.After(createPause / 4):
		case <-k.ctx.Done():
			return false
		}
	}
}

// MakeNew makes a box as for the pool, but never from a template. After an error the box is destroyed.
func (k *Keeper) MakeNew(kind pool.Kind) (*pool.Box[Box], error) { return k.make(k.ctx, kind, nil) }

// make makes a box that is ready for a sandbox, from a template if templates has one of the kind. It waits for files until ctx ends. After an error the
// box is destroyed.
func (k *Keeper) make(ctx context.Context, kind pool.Kind, templates Templates) (*pool.Box[Box], error) {
	var img *spec.Image
	var rootfs string
	if !kind.IsBlank() {
		found, path, err := k.Images.Resolve(k.ctx, kind.Digest)
		if err != nil {
			return nil, err
		}
		img, rootfs = &found, path
	}
	described := k.Host.Spec(&sandbox.Sandbox{ID: k.Owner.NewID(), Resources: kind.Resources}, rootfs)
	staged, err := driver.Stage(ctx, k.Driver, "", described, "")
	if err != nil {
		return nil, err
	}
	defer staged()
	ctx, cancel := context.WithTimeout(k.ctx, k.cfg.StartTimeout)
	defer cancel()
	b := k.Host.NewBox(described.ID)
	watching, stop := context.WithCancel(b.Context())
	warm := &pool.Box[Box]{Kind: kind, Value: Box{Box: b, Blank: kind.IsBlank(), stop: stop, bringing: &bringing{}}}
	if img != nil && templates != nil {
		warm.Value.Handle, err = templates.Restore(ctx, b, described, img)
		warm.Value.Restored = warm.Value.Handle != nil
	}
	if err == nil && !warm.Value.Restored {
		if warm.Value.Handle, err = k.Driver.Create(ctx, described); err == nil {
			err = k.start(ctx, b, img)
		}
	}
	if err != nil {
		k.Destroy(warm)
		return nil, fmt.Errorf("box %s: %w", b.ID, err)
	}
	warm.Started = time.Now()
	k.Work.Go(func() { k.watch(watching, warm) })
	return warm, nil
}

// start starts a box and returns when its agent answers and has run a command: the first command in
// a box takes half as long again as the commands after it. The interpreters
// or programs that the image starts before it has a sandbox have started by then. A blank box has no image.
func (k *Keeper) start(ctx context.Context, b *box.Box, img *spec.Image) error {
	if err := k.Driver.Start(ctx, b.ID); err != nil {
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
	if img == nil {
		for range blankRehearsals {
			if err := rehearse(ctx, b, "/.modbox/agent", "-h"); err != nil {
				return err
			}
		}
		return nil
	}
	if environment.Prestarts(img) {
		if err := environment.Prestart(ctx, b, img); err != nil {
			return err
		}
	}
	return rehearse(ctx, b, "true")
}

// rehearse runs a program to its end, whatever that is. It fails only when ctx ends.
func rehearse(ctx context.Context, b *box.Box, argv ...string) error {
	rehearsal, err := b.Agent.Exec(ctx, agentapi.Command{Argv: argv})
	if err != nil {
		return ctx.Err() // an image without that program is as good
	}
	defer func() { _ = rehearsal.Close() }() // nothing is lost
	for err == nil {
		_, err = rehearsal.Next()
	}
	return ctx.Err()
}

// watch gives a box up that ends while it is in the pool. The next plan replaces it, and not this
// function: of boxes that end at once it would make others without end.
func (k *Keeper) watch(ctx context.Context, warm *pool.Box[Box]) {
	_, _ = k.Driver.Wait(ctx, warm.Value.ID) // an error also makes the box useless
	if ctx.Err() == nil && k.Pool.Remove(warm) {
		k.Logger.Warn("a box of the pool has ended", "box", warm.Value.ID)
		k.Destroy(warm)
	}
}

// Destroy destroys a box that is no longer in the pool. If that fails, the box is an orphan, which
// the sweep destroys.
func (k *Keeper) Destroy(warm *pool.Box[Box]) {
	b := &warm.Value
	b.stop()
	b.bringing.endUnless("")
	_ = b.Agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), destroyTimeout)
	defer cancel()
	if err := k.Driver.Destroy(ctx, b.ID); err != nil {
		k.Logger.Error("box of the pool not destroyed, trying again soon", "box", b.ID, "error", err)
	}
	b.Cancel()
	k.Host.Forget(b.Box)
}

// Drain closes the pool and destroys its boxes, except boxes that are out of reach. The next server destroys what remains. The work of the
// group must have ended.
func (k *Keeper) Drain(ctx context.Context) {
	for _, b := range k.Pool.Close() {
		if ctx.Err() != nil {
			return
		}
		if !driver.OutOfReach(k.Driver, b.Value.ID) {
			k.Destroy(b)
		}
	}
}
