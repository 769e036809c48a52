package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/worker"
)

// Create implements [driver.Driver].
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Handle, error) {
	return d.makeBox(ctx, spec, "", func(boxes *remote.Driver) (driver.Handle, error) { return boxes.Create(ctx, spec) })
}

// Restore implements [driver.Checkpointer]. The checkpoint must be staged.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Handle, error) {
	return d.makeBox(ctx, spec, dir, func(boxes *remote.Driver) (driver.Handle, error) { return boxes.Restore(ctx, spec, dir) })
}

// makeBox makes a box at its place.
func (d *Driver) makeBox(ctx context.Context, spec driver.Spec, checkpoint string, make func(*remote.Driver) (driver.Handle, error)) (driver.Handle, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, release, _, err := search{d, spec, checkpoint, map[*member]bool{}}.hold(ctx, "")
	if err != nil {
		return nil, err
	}
	defer release()
	inner, err := make(p.member.boxes)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.box = true
	p.made++
	h := handle{worker: p.member.record.ID, memory: p.memory, inner: inner}
	if m := p.member; m.boxesMax > 1 {
		h.shared = shared{m.boxesMax, m.class.resources, m.class.rootfs}
	}
	return h.encode(), nil
}

// Start implements [driver.Driver].
func (d *Driver) Start(ctx context.Context, id sandbox.ID) error {
	boxes, err := d.on(id)
	if err != nil {
		return err
	}
	return boxes.Start(ctx, id)
}

// Recover implements [driver.Driver]. It succeeds if the worker is away.
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, h driver.Handle) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	parsed := parseHandle(h)
	if parsed.worker == "" && d.cfg.Supplier != nil {
		return sandbox.Errorf(sandbox.Invalid, "the handle of box %s does not name its worker", id)
	}
	d.mu.Lock()
	m := d.byID(parsed.worker)
	if parsed.worker == "" && len(d.members) > 0 {
		m = d.members[0] // the box is of a server with one worker
	}
	if m == nil || m.gone() {
		var err error = errLost
		if m != nil {
			err = d.away(m)
		}
		d.mu.Unlock()
		exit, _ := lost(err)
		return sandbox.Wrap(sandbox.NotFound, driver.EndedError{Exit: exit}, "the worker of box %s was removed or lost", id)
	}
	p := d.places[id]
	if p != nil && p.member != m {
		d.mu.Unlock()
		return sandbox.Errorf(sandbox.NotFound, "box %s is on another worker", id)
	}
	if p == nil {
		p = d.add(id, m, parsed.memory)
	}
	if worker.Supplied(m.record.ID) && m.boxesMax == 0 { // Settle knows its workspace
		m.class, m.boxesMax = class{resources: parsed.shared.Resources, rootfs: parsed.shared.RootFS}, parsed.shared.Boxes
	}
	p.holds++
	away, known := d.away(m) != nil || m.slow, p.box
	d.mu.Unlock()
	var err error
	if !away || !known {
		err = d.recoverOn(ctx, m, id, parsed.inner, away, known)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.holds--
	if err == nil {
		p.box = true
		p.made++
	}
	d.dropUnused(id, p)
	return err
}

// recoverOn recovers a box on a worker, as soon as it is back if it is away. known is whether its driver knows the box.
func (d *Driver) recoverOn(ctx context.Context, m *member, id sandbox.ID, h driver.Handle, away, known bool) error {
	if !away {
		_, err := within(ctx, d.patience, func(ctx context.Context) (struct{}, error) { return struct{}{}, m.boxes.Recover(ctx, id, h) })
		if !errors.Is(err, driver.ErrAway) || ctx.Err() != nil {
			return err
		}
		d.mu.Lock()
		m.slow = true // the others do not wait as long
		d.mu.Unlock()
	}
	if !known {
		remote.Adopt(m.boxes, id, h)
	}
	return nil
}

// Wait implements [driver.Driver]. It goes on while the worker is away.
func (d *Driver) Wait(ctx context.Context, id sandbox.ID) (driver.Exit, error) {
	boxes, err := d.on(id)
	if err != nil && (boxes == nil || errors.Is(err, errLost)) {
		return lost(err)
	}
	exit, err := boxes.Wait(ctx, id)
	if ctx.Err() == nil {
		_, after := d.on(id)
		switch {
		case errors.Is(after, errLost): // the worker was removed meanwhile, which destroyed the box
			return lost(after)
		case err != nil && d.cfg.Supplier != nil && sandbox.CodeOf(after) == sandbox.NotFound: // the box was destroyed, and its worker removed
			return driver.Exit{Cause: sandbox.CauseDestroyed}, nil
		}
	}
	return exit, err
}

// lost returns how a box ended whose worker was removed, or the error of a box that is not known.
func lost(err error) (driver.Exit, error) {
	switch {
	case errors.Is(err, errOOM):
		return driver.Exit{Cause: sandbox.CauseOOM, Detail: lossOf(err)}, nil
	case errors.Is(err, errLost):
		return driver.Exit{Cause: sandbox.CauseWorkerLost, Lost: true, Detail: lossOf(err)}, nil
	}
	return driver.Exit{}, err
}

// Destroy implements [driver.Driver]. A box that this driver does not know is destroyed on all workers that are connected.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.mu.Lock()
	p := d.places[id]
	if p == nil || !p.box {
		d.mu.Unlock()
		_, err := eachMember(ctx, d, func(ctx context.Context, m *member) (struct{}, error) { return struct{}{}, m.boxes.Destroy(ctx, id) })
		return err
	}
	m, made, err := p.member, p.made, d.away(p.member)
	d.mu.Unlock()
	if err == nil {
		err = m.boxes.Destroy(ctx, id)
	}
	if err != nil && !errors.Is(err, errLost) && !(supplied{d}).vacated(m) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.made == made {
		p.box = false
		d.dropUnused(id, p)
	}
	return nil
}

// memberTimeout bounds the answer of a worker to a call that all workers get. One that hangs counts as away.
const memberTimeout = 30 * time.Second

// eachMember calls f for all workers that are not away at the same time, and returns the results of the workers for which it succeeds. Errors:
// of f for any worker, except for workers that turn out to be away; [driver.ErrAway] if all are away.
func eachMember[T any](ctx context.Context, d *Driver, f func(context.Context, *member) (T, error)) ([]T, error) {
	list := d.reachable()
	results, errs := make([]T, len(list)), make([]error, len(list))
	var all sync.WaitGroup
	for i, m := range list {
		all.Go(func() {
			results[i], errs[i] = within(ctx, memberTimeout, func(ctx context.Context) (T, error) { return f(ctx, m) })
			if errs[i] != nil && (supplied{d}).vacated(m) {
				errs[i] = driver.ErrAway
			}
		})
	}
	all.Wait()
	var succeeded []T
	var failed []error
	for i, err := range errs {
		switch {
		case err == nil:
			succeeded = append(succeeded, results[i])
		case !errors.Is(err, driver.ErrAway):
			failed = append(failed, fmt.Errorf("worker %s: %w", list[i].record.ID, err))
		}
	}
	if len(succeeded)+len(failed) == 0 {
		return nil, driver.ErrAway
	}
	return succeeded, errors.Join(failed...)
}

// partly returns the error of eachMember if there is no result. Else it logs it, once a minute: the boxes of a worker that fails are missing, as the boxes
// of a worker that is away.
func partly[T any](d *Driver, what string, results []T, err error) error {
	if err == nil || len(results) == 0 {
		return err
	}
	d.mu.Lock()
	known := time.Since(d.failed) < time.Minute
	if !known {
		d.failed = time.Now()
	}
	d.mu.Unlock()
	if !known {
		d.log.Error("a worker fails; its boxes are missing", "in", what, "error", err)
	}
	return nil
}

// removeObsolete destroys the boxes of a list of a worker that are meanwhile on another.
func (d *Driver) removeObsolete(ctx context.Context, m *member, ids []sandbox.ID) {
	for _, id := range ids {
		d.mu.Lock()
		p := d.places[id]
		obsolete := p != nil && p.member != m
		if obsolete {
			p.holds++ // so that the box does not move to m meanwhile
		}
		d.mu.Unlock()
		if !obsolete {
			continue
		}
		d.log.Warn("destroying a box that is on another worker meanwhile", "box", id)
		if err := m.boxes.Destroy(ctx, id); err != nil && d.life.Err() == nil {
			d.log.Error("an obsolete box is not destroyed", "box", id, "error", err)
		}
		d.mu.Lock()
		p.holds--
		d.dropUnused(id, p)
		d.mu.Unlock()
	}
}

// List implements [driver.Driver]. It destroys the boxes on a worker that are meanwhile on another.
func (d *Driver) List(ctx context.Context) ([]sandbox.ID, error) {
	lists, err := eachMember(ctx, d, func(ctx context.Context, m *member) ([]sandbox.ID, error) {
		ids, err := m.boxes.List(ctx)
		d.removeObsolete(ctx, m, ids)
		return ids, err
	})
	if err := partly(d, "list of boxes", lists, err); err != nil {
		return nil, err
	}
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// DiskUse implements [driver.DiskMeter].
func (d *Driver) DiskUse() (map[sandbox.ID]int64, error) {
	uses, err := eachMember(d.life, d, func(_ context.Context, m *member) (map[sandbox.ID]int64, error) {
		use, err := m.boxes.DiskUse()
		d.mu.Lock()
		defer d.mu.Unlock()
		for id := range use { // a worker knows nothing of boxes elsewhere
			if p := d.places[id]; p != nil && p.member != m {
				delete(use, id)
			}
		}
		return use, err
	})
	if err := partly(d, "disk use", uses, err); err != nil {
		return nil, err
	}
	sum := map[sandbox.ID]int64{}
	for _, use := range uses {
		for id, n := range use {
			sum[id] += n
		}
	}
	return sum, nil
}

// Dial implements [driver.Driver].
func (d *Driver) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	boxes, err := d.on(id)
	if err != nil {
		return nil, err
	}
	return boxes.Dial(ctx, id, port)
}

// Stats implements [driver.Driver].
func (d *Driver) Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error) {
	boxes, err := d.on(id)
	if err != nil {
		return sandbox.Stats{}, err
	}
	return boxes.Stats(ctx, id)
}

// Usage implements [driver.Meter].
func (d *Driver) Usage(ctx context.Context, id sandbox.ID) (driver.Usage, error) {
	boxes, err := d.on(id)
	if err != nil {
		return driver.Usage{}, err
	}
	return boxes.Usage(ctx, id)
}

// Checkpoint implements [driver.Checkpointer].
func (d *Driver) Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts driver.CheckpointOptions) error {
	boxes, err := d.on(id)
	if err != nil {
		return err
	}
	return boxes.Checkpoint(ctx, id, dir, opts)
}

// ReserveSave implements [driver.SaveReserver].
func (d *Driver) ReserveSave(ctx context.Context, id sandbox.ID, w sandbox.WorkspaceID) (release func(), err error) {
	boxes, err := d.on(id)
	if err != nil {
		return nil, err
	}
	return boxes.ReserveSave(ctx, id, w)
}

// OpenLayer implements [driver.Checkpointer].
func (d *Driver) OpenLayer(dir string) (io.ReadCloser, error) {
	return d.cfg.Remote.Saved.OpenLayer(dir)
}

// Verify implements [driver.Checkpointer].
func (d *Driver) Verify(ctx context.Context, dir string) (memory, files error) {
	return d.cfg.Remote.Saved.Verify(ctx, dir)
}

// WriteLayer implements [driver.Snapshotter].
func (d *Driver) WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error {
	boxes, err := d.on(id)
	if err != nil {
		return err
	}
	return boxes.WriteLayer(ctx, id, w)
}

// WriteNames implements [driver.Snapshotter].
func (d *Driver) WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error {
	boxes, err := d.on(id)
	if err != nil {
		return err
	}
	return boxes.WriteNames(ctx, id, w)
}

// Furnish implements [driver.Furnisher].
func (d *Driver) Furnish(ctx context.Context, id sandbox.ID, rootfs string) (int, error) {
	boxes, err := d.on(id)
	if err != nil {
		return 0, err
	}
	return boxes.Furnish(ctx, id, rootfs)
}

// Plug implements [driver.Networker].
func (d *Driver) Plug(ctx context.Context, id sandbox.ID, nic driver.NIC) error {
	boxes, err := d.on(id)
	if err != nil {
		_ = nic.File.Close()
		return err
	}
	return boxes.Plug(ctx, id, nic)
}

// Unplug implements [driver.Networker].
func (d *Driver) Unplug(ctx context.Context, id sandbox.ID) error {
	boxes, err := d.on(id)
	if err != nil {
		return err
	}
	return boxes.Unplug(ctx, id)
}
