package lifecycle

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

// BuildStore keeps what builds take of quotas; it is a part of [Store].
type BuildStore interface {
	// BeginBuild records a build, each of whose boxes counts for as much of most as there
	// is room for, and returns that. Errors: QuotaExceeded when there is no room for least; a.Refuse.
	BeginBuild(ctx context.Context, id sandbox.ID, ws sandbox.WorkspaceID, least, most sandbox.Resources, a sandbox.Admission) (sandbox.Resources, error)
	// EndBuild forgets one. Idempotent.
	EndBuild(ctx context.Context, id sandbox.ID) error
	// EndBuilds forgets all but those that underWay reports.
	EndBuilds(ctx context.Context, underWay func(sandbox.ID) bool) error
}

// endBuildTime bounds how long the record of a build's end may take; the sweep has
// more time.
const endBuildTime = 30 * time.Second

// reservation is what the boxes of a build have of the quota of its workspace.
type reservation struct {
	// have limits each box.
	have sandbox.Resources
	// disk is the bytes for which they count.
	disk int64
	// release gives it back. Idempotent.
	release func()
}

// takeReservation takes a reservation for somebody in the line, or not in it where w is nil.
type takeReservation func(w *waiter) (reservation, error)

// placed returns a reservation with one of the places, which its release gives back, too.
// Where there is a place but no room in the quota, it waits in line for room for as long as
// it may, without a place; it has the room then while it waits for a place again. Waits, which
// may be nil, is told what it waits for. Errors: take's; those of places; as [Service.letIn].
func (s *Service) placed(ctx context.Context, places *fairsem.Semaphore, ws sandbox.WorkspaceID, patience time.Duration, waits func(string), take takeReservation) (got reservation, err error) {
	if waits == nil {
		waits = func(string) {}
	}
	turn := func() { waits("other images are being built") }
	leave, err := places.Acquire(ctx, ws, turn)
	if err != nil {
		return got, err
	}
	if got, err = take(nil); err != nil {
		leave()
		if patience <= 0 || !passes(err) {
			return got, err
		}
		waits("there is no room in the quota of the workspace, or on the server")
		if got, err = s.waitReserved(ctx, ws, patience, err, take); err != nil {
			return got, err
		}
		if leave, err = places.Acquire(ctx, ws, turn); err != nil {
			got.release()
			return got, err
		}
	}
	release := got.release
	got.release = func() { release(); leave() }
	return got, nil
}

// waitReserved returns the reservation of somebody who was refused with err and waits in line.
func (s *Service) waitReserved(ctx context.Context, ws sandbox.WorkspaceID, patience time.Duration, err error, take takeReservation) (got reservation, _ error) {
	err = s.waitInLine(ctx, entry{workspace: ws, patience: patience}, err, func(w *waiter) (err error) {
		got, err = take(w)
		return err
	})
	return got, err
}

// reserveFirst reserves what the boxes of a build have before its turn, where it may wait
// for that; nil where it may not: it takes what there is at its turn.
func (s *Service) reserveFirst(ctx context.Context, ws sandbox.WorkspaceID, patience time.Duration) (*reservation, error) {
	if patience <= 0 {
		return nil, nil
	}
	take := func(w *waiter) (reservation, error) { return s.reserve(ctx, ws, sandbox.Resources{}, w) }
	got, err := take(nil)
	if err != nil && passes(err) {
		got, err = s.waitReserved(ctx, ws, patience, err, take)
	}
	if err != nil {
		return nil, err
	}
	return &got, nil
}

// takeBuild takes the begun build of a snapshot, when there is room for it where it may wait
// for that. Until then it stays as it was begun. Errors: NotFound; QuotaExceeded; as [Service.letIn].
func (s *Service) takeBuild(ctx context.Context, c Caller, id sandbox.SnapshotID, patience time.Duration) (*build, error) {
	if _, err := s.begun.known(c, id); err != nil {
		return nil, err
	}
	room, err := s.reserveFirst(ctx, c.Workspace, patience)
	if err != nil {
		return nil, err
	}
	b, err := s.begun.take(c, id)
	if err != nil {
		room.giveBack()
		return nil, err
	}
	b.room = room
	return b, nil
}

// giveBack releases a reservation that may be nil.
func (r *reservation) giveBack() {
	if r != nil {
		r.release()
	}
}

// errDiskReserved is wrapped by the error for an install that needs disk which others
// under way hold.
var errDiskReserved = errors.New("builds under way hold the disk of the workspace")

// reserve takes from the quota of a workspace what one box of a build may have, until
// it is released: the boxes of a build come one after the other. Resources that are
// 0 are Config.Build's, or as much of that as the quota leaves to one sandbox. Its disk is
// what the workspace has left, when that is the default of a sandbox or other builds hold
// nothing of it. A server that is killed leaves a row that the next one forgets. W is as in
// takeReservation: nobody passes those of the workspace who wait.
//
// Errors: Invalid, naming the field, for what is beyond the maximum of a sandbox;
// QuotaExceeded.
func (s *Service) reserve(ctx context.Context, ws sandbox.WorkspaceID, asked sandbox.Resources, w *waiter) (reservation, error) {
	most, err := s.buildResources(ctx, ws, asked, sandbox.Resources{})
	if err != nil {
		return reservation{}, err
	}
	least := most
	least.DiskBytes = min(most.DiskBytes, s.cfg.Defaults.DiskBytes)
	a := s.admission(ws)
	s.gate.order(&a, ws, w)
	have, release, err := s.beginBuild(ctx, ws, least, most, a)
	return reservation{have, have.DiskBytes, release}, err
}

// reserveInstall is reserve for a box in which something is installed that nobody can
// ask a size for: it has as much of Config.Build as is left. Own is what the sandboxes
// that wait for it count for already and do not use meanwhile: it counts for what it has
// beyond that, and is refused only where builds under way hold the disk for which there
// is room otherwise. Without, it is when less than the default of a sandbox is left.
// Errors: QuotaExceeded, with own one that wraps errDiskReserved.
func (s *Service) reserveInstall(ctx context.Context, ws sandbox.WorkspaceID, own sandbox.Resources) (reservation, error) {
	want, err := s.buildResources(ctx, ws, sandbox.Resources{}, own)
	if err != nil {
		return reservation{}, err
	}
	var most, least sandbox.Resources
	for _, r := range resourceTable {
		*r.of(&most) = max(0, *r.of(&want)-*r.of(&own))
		*r.of(&least) = min(*r.of(&most), *r.of(&s.cfg.Defaults))
	}
	waited := own != (sandbox.Resources{})
	a := s.admission(ws)
	if waited {
		least = sandbox.Resources{DiskBytes: least.DiskBytes}
	} else {
		s.gate.order(&a, ws, nil)
	}
	beyond, release, err := s.beginBuild(ctx, ws, least, most, a)
	switch {
	case err != nil && waited && sandbox.DiskShort(err) > 0:
		return reservation{}, errors.Join(errDiskReserved, err)
	case sandbox.CodeOf(err) == sandbox.QuotaExceeded && waited: // the server has promised all its disk
		beyond, release, err = s.beginBuild(ctx, ws, sandbox.Resources{}, most, a)
	}
	if err != nil {
		return reservation{}, err
	}
	got := reservation{disk: beyond.DiskBytes, release: release}
	for _, r := range resourceTable {
		*r.of(&got.have) = min(*r.of(&want), *r.of(&own)+*r.of(&beyond))
	}
	return got, nil
}

// buildResources returns what a box of a build may have at most, beside all that the
// workspace has but own and other builds. Errors: Invalid, naming the field.
func (s *Service) buildResources(ctx context.Context, ws sandbox.WorkspaceID, asked, own sandbox.Resources) (have sandbox.Resources, err error) {
	q, err := s.Quota(ctx, ws)
	if err != nil {
		return have, err
	}
	if err := checkMax(ws, q.Limits, asked); err != nil {
		return have, err
	}
	have = s.cfg.Build
	cut(q.Limits, &have)
	// Nobody asked for that much: a quota that is less in all is no reason to refuse.
	if most := q.Limits[sandbox.LimitMemory]; most > 0 {
		have.MemoryBytes = min(have.MemoryBytes, max(most, sandbox.MemoryMin))
	}
	if most := q.Limits[sandbox.LimitCPU]; most > 0 {
		have.CPUMilli = min(have.CPUMilli, max(most, sandbox.CPUMilliMin))
	}
	for _, r := range resourceTable {
		if n := *r.of(&asked); n > 0 {
			*r.of(&have) = n
		}
	}
	if most := q.Limits[sandbox.LimitDisk]; most > 0 { // what builds have left makes room
		left := most - q.Used.Disk.Total() + q.Used.Disk.Builds + q.Used.Disk.BuildCache + own.DiskBytes
		have.DiskBytes = min(have.DiskBytes, max(left, sandbox.DiskMin))
	}
	return have, nil
}

// beginBuild takes as much of most as there is room for, and returns what that is.
// Errors: QuotaExceeded when there is less than least.
func (s *Service) beginBuild(ctx context.Context, ws sandbox.WorkspaceID, least, most sandbox.Resources, a sandbox.Admission) (got sandbox.Resources, release func(), err error) {
	id := sandbox.NewID()
	s.reserved.add(id) // so that the sweep does not take it for one that is over
	got, err = s.store.BeginBuild(ctx, id, ws, least, most, a)
	if err != nil {
		s.reserved.remove(id)
		return got, nil, err
	}
	return got, sync.OnceFunc(func() {
		s.reserved.remove(id)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endBuildTime)
		defer cancel()
		if err := s.store.EndBuild(ctx, id); err != nil {
			s.log.Error("a build that is over counts for the quota, trying again soon", "workspace", ws, "error", err)
		}
		s.gate.room.Send()
	}), nil
}

// sweepBuilds forgets builds that are over, and those of servers before this one.
func (s *Service) sweepBuilds() {
	if err := s.store.EndBuilds(s.ctx, s.reserved.has); err != nil {
		s.logSweep("forget builds that are over", err)
	}
}
