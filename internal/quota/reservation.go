package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// endBuildTime bounds the deletion of a reservation; the sweep has more time.
const endBuildTime = 30 * time.Second

// Reservation is the part of the quota of a workspace that the boxes of a build or an install
// have.
type Reservation struct {
	// Have limits each box.
	Have sandbox.Resources
	// Disk is the bytes that the boxes count for.
	Disk int64

	release func()
}

// Release gives the reservation back. Idempotent; nil is no reservation.
func (r *Reservation) Release() {
	if r != nil && r.release != nil {
		r.release()
	}
}

// ErrDiskReserved is wrapped by the error for an install that needs disk which other builds of
// the workspace have reserved.
var ErrDiskReserved = errors.New("builds under way hold the disk of the workspace")

// reserveFunc takes a reservation for the waiter w, or for a request that does not wait.
type reserveFunc func(w *waiter) (Reservation, error)

// ReserveWithPlace is Reserve together with one of the places, which the release also gives back.
// While a place is free but the quota is exhausted, it waits in the admission queue for maxWait,
// without a place; then it holds the reservation while it waits for a place again. Waits, which may
// be nil, is called with the reason for waiting. Errors: as Reserve; as
// [fairsem.Semaphore.Acquire]; as [Controller.Admit].
func (c *Controller) ReserveWithPlace(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, asked sandbox.Resources, maxWait time.Duration, waits func(string)) (got Reservation, err error) {
	if waits == nil {
		waits = func(string) {}
	}
	take := func(w *waiter) (Reservation, error) { return c.reserve(ctx, ws, asked, w) }
	others := func() { waits("other images are being built") }
	leave, err := places.Acquire(ctx, ws, others)
	if err != nil {
		return got, err
	}
	if got, err = take(nil); err != nil {
		leave()
		if maxWait <= 0 || !passes(err) {
			return got, err
		}
		waits("the quota of the workspace or the server's capacity is used up")
		if got, err = c.waitReserved(ctx, ws, maxWait, err, take); err != nil {
			return got, err
		}
		if leave, err = places.Acquire(ctx, ws, others); err != nil {
			got.Release()
			return got, err
		}
	}
	release := got.release
	got.release = func() { release(); leave() }
	return got, nil
}

// waitReserved returns the reservation of a request that was refused with err and waits.
func (c *Controller) waitReserved(ctx context.Context, ws sandbox.WorkspaceID, maxWait time.Duration, err error, take reserveFunc) (got Reservation, _ error) {
	err = c.queue.wait(ctx, Request{Workspace: ws, MaxWait: maxWait}, err, func(w *waiter) (err error) {
		got, err = take(w)
		return err
	})
	return got, err
}

// ReserveAhead reserves what the boxes of a build have before the build has a place, where the
// build may wait for that. With maxWait 0 it returns nil: the build reserves when it has a
// place. Errors: as Reserve; as [Controller.Admit].
func (c *Controller) ReserveAhead(ctx context.Context, ws sandbox.WorkspaceID, maxWait time.Duration) (*Reservation, error) {
	if maxWait <= 0 {
		return nil, nil
	}
	take := func(w *waiter) (Reservation, error) { return c.reserve(ctx, ws, sandbox.Resources{}, w) }
	got, err := take(nil)
	if err != nil && passes(err) {
		got, err = c.waitReserved(ctx, ws, maxWait, err, take)
	}
	if err != nil {
		return nil, err
	}
	return &got, nil
}

// Reserve reserves the resources of a box of a build until the release; the boxes of a build run
// one after the other. Resources that are 0 are those in Config.Build, or as much of them as the
// quota allows a sandbox. The disk is the rest of the workspace's quota, if that is at least the
// default of a sandbox or other builds reserve nothing. It does not overtake waiting requests of
// the workspace. A killed server leaves a row, which the next server deletes.
//
// Errors: Invalid, naming the field, for resources beyond the maximum of a sandbox; QuotaExceeded.
func (c *Controller) Reserve(ctx context.Context, ws sandbox.WorkspaceID, asked sandbox.Resources) (Reservation, error) {
	return c.reserve(ctx, ws, asked, nil)
}

// reserve is Reserve for the waiter w, or for a request that does not wait.
func (c *Controller) reserve(ctx context.Context, ws sandbox.WorkspaceID, asked sandbox.Resources, w *waiter) (Reservation, error) {
	most, err := c.buildResources(ctx, ws, asked, sandbox.Resources{})
	if err != nil {
		return Reservation{}, err
	}
	least := most
	least.DiskBytes = min(most.DiskBytes, c.cfg.Defaults.DiskBytes)
	a := c.Admission(ws)
	c.queue.order(&a, ws, w)
	have, release, err := c.begin(ctx, ws, least, most, a)
	return Reservation{Have: have, Disk: have.DiskBytes, release: release}, err
}

// ReserveInstall reserves resources for a box that installs packages, whose size no caller can ask
// for: the box gets the part of Config.Build that the quota still has. Own is the resources of the
// sandboxes that wait for the install, which they do not use meanwhile: only the rest is added to the
// workspace's use, and the reservation is refused only if other builds have reserved the disk that
// would be free otherwise. Without own, it is refused if the quota has less than the default of a
// sandbox. Errors: QuotaExceeded, which with own may wrap [ErrDiskReserved].
func (c *Controller) ReserveInstall(ctx context.Context, ws sandbox.WorkspaceID, own sandbox.Resources) (Reservation, error) {
	want, err := c.buildResources(ctx, ws, sandbox.Resources{}, own)
	if err != nil {
		return Reservation{}, err
	}
	var most, least sandbox.Resources
	for _, f := range Fields {
		*f.Of(&most) = max(0, *f.Of(&want)-*f.Of(&own))
		*f.Of(&least) = min(*f.Of(&most), *f.Of(&c.cfg.Defaults))
	}
	waited := own != (sandbox.Resources{})
	a := c.Admission(ws)
	if waited {
		least = sandbox.Resources{DiskBytes: least.DiskBytes}
	} else {
		c.queue.order(&a, ws, nil)
	}
	beyond, release, err := c.begin(ctx, ws, least, most, a)
	switch {
	case err != nil && waited && DiskShort(err) > 0:
		return Reservation{}, errors.Join(ErrDiskReserved, err)
	case sandbox.CodeOf(err) == sandbox.QuotaExceeded && waited: // the server has promised all its disk
		beyond, release, err = c.begin(ctx, ws, sandbox.Resources{}, most, a)
	}
	if err != nil {
		return Reservation{}, err
	}
	got := Reservation{Disk: beyond.DiskBytes, release: release}
	for _, f := range Fields {
		*f.Of(&got.Have) = min(*f.Of(&want), *f.Of(&own)+*f.Of(&beyond))
	}
	return got, nil
}

// buildResources returns what a box of a build may have at most, beside all that the workspace
// has except own and other builds. Errors: Invalid, naming the field.
func (c *Controller) buildResources(ctx context.Context, ws sandbox.WorkspaceID, asked, own sandbox.Resources) (have sandbox.Resources, err error) {
	q, err := c.Report(ctx, ws)
	if err != nil {
		return have, err
	}
	if err := CheckMax(ws, q.Limits, asked); err != nil {
		return have, err
	}
	have = c.cfg.Build
	Cut(q.Limits, &have)
	// No caller asked for that much: a quota that is less in all is no reason to refuse.
	if most := q.Limits[LimitMemory]; most > 0 {
		have.MemoryBytes = min(have.MemoryBytes, max(most, sandbox.MemoryMin))
	}
	if most := q.Limits[LimitCPU]; most > 0 {
		have.CPUMilli = min(have.CPUMilli, max(most, sandbox.CPUMilliMin))
	}
	for _, f := range Fields {
		if n := *f.Of(&asked); n > 0 {
			*f.Of(&have) = n
		}
	}
	if most := q.Limits[LimitDisk]; most > 0 { // the build cache can be evicted
		left := most - q.Used.Disk.Total() + q.Used.Disk.Builds + q.Used.Disk.BuildCache + own.DiskBytes
		have.DiskBytes = min(have.DiskBytes, max(left, sandbox.DiskMin))
	}
	return have, nil
}

// begin reserves as much of most as fits, and returns that. Errors: QuotaExceeded when less than
// least fits.
func (c *Controller) begin(ctx context.Context, ws sandbox.WorkspaceID, least, most sandbox.Resources, a Admission) (got sandbox.Resources, release func(), err error) {
	id := c.cfg.Owner.NewID() // which says to other servers whose reservation it is
	c.reserved.add(id)        // first, so that EndStale spares the row
	got, err = c.store.BeginBuild(ctx, id, ws, least, most, a)
	if err != nil {
		c.reserved.remove(id)
		return got, nil, err
	}
	return got, sync.OnceFunc(func() {
		c.reserved.remove(id)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBuildTime)
		defer cancel()
		if err := c.store.EndBuild(ctx, id); err != nil {
			c.log.Error("a build that is over counts for the quota, trying again soon", "workspace", ws, "error", err)
		}
		c.Released()
	}), nil
}

// EndStale deletes the reservations of builds that have ended, and the reservations of earlier
// servers of the same shards. Reservations in the shards of other servers may be of builds that they run.
func (c *Controller) EndStale(ctx context.Context) error {
	list, err := c.store.Builds(ctx)
	if err != nil {
		return fmt.Errorf("list reservations of builds: %w", err)
	}
	stale := slices.DeleteFunc(list, func(id sandbox.ID) bool { return !c.cfg.Owner.Ranges().Has(id) || c.reserved.has(id) })
	for _, id := range stale {
		if err := c.store.EndBuild(ctx, id); err != nil {
			return fmt.Errorf("delete reservation %s of a build: %w", id, err)
		}
	}
	if len(stale) > 0 {
		c.Released()
	}
	return nil
}

// ids is a set of ids. Safe for concurrent use.
type ids struct {
	mu  sync.Mutex
	set map[sandbox.ID]bool // guarded by mu
}

func (s *ids) add(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set == nil {
		s.set = map[sandbox.ID]bool{}
	}
	s.set[id] = true
}

func (s *ids) remove(id sandbox.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.set, id)
}

func (s *ids) has(id sandbox.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set[id]
}
