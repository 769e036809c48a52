package autocheckpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// maxRollbacks is how many times a lost sandbox goes on from the same checkpoint.
	maxRollbacks = 5
	// rollbackPause is the wait before the second time; it doubles each time.
	rollbackPause = time.Second
)

// Host changes the state of boxes. It is safe for concurrent use.
type Host interface {
	// Boxes returns the boxes of all live sandboxes, and Box the box of one; nil for none.
	Boxes() []*box.Box
	Box(id sandbox.ID) *box.Box // see Boxes
	// Exclusively runs f, which saves a running box, as an operation on it, see [box.Box.Exclusively], when it is the turn of the box.
	Exclusively(ctx context.Context, b *box.Box, kind box.OperationKind, f func() error) error
	// Save writes the state of a running box to a path. The box goes on.
	Save(b *box.Box, path string) error
	// Working reports whether a command runs in the sandbox.
	Working(b *box.Box) bool
	// Fetch brings an automatic checkpoint to the disk, unless it is there. It returns it, or an earlier one, without a row, when no later one can be brought.
	Fetch(b *box.Box, cp sandbox.Checkpoint) (sandbox.Checkpoint, error)
	// GoBack replaces the state of a box by the checkpoint from, which lies on the root
	// filesystem of digest, and has it run.
	GoBack(b *box.Box, from sandbox.CheckpointID, digest string) error
	// End ends the sandbox.
	End(b *box.Box, cause sandbox.Cause)
	// AppendEvent appends an event of a sandbox.
	AppendEvent(ctx context.Context, ev sandbox.Event) error
}

// Keeper makes the automatic checkpoints of sandboxes, and has lost sandboxes go on from them.
type Keeper struct {
	host        Host
	saved       *checkpoint.Store
	quotas      *quota.Controller
	minFreeDisk int64
	work        *background.Group
	log         *slog.Logger

	mu     sync.Mutex
	failed map[sandbox.ID]bool // live sandboxes whose last attempt failed, which an event reports; guarded by mu
}

// NewKeeper returns a keeper that works in a group. It makes no checkpoint while less than
// minFreeDisk bytes are free.
func NewKeeper(host Host, saved *checkpoint.Store, quotas *quota.Controller, minFreeDisk int64, work *background.Group, log *slog.Logger) *Keeper {
	return &Keeper{host: host, saved: saved, quotas: quotas, minFreeDisk: minFreeDisk, work: work, log: log, failed: map[sandbox.ID]bool{}}
}

// ctx ends when the service closes.
func (k *Keeper) ctx() context.Context { return k.work.Context() }

// Running implements [Sandboxes].
func (k *Keeper) Running() []Sandbox {
	var list []Sandbox
	live := map[sandbox.ID]bool{}
	for _, b := range k.host.Boxes() {
		live[b.ID] = true
		sb := b.View().Sandbox
		if sb.CheckpointInterval == 0 || sb.State != sandbox.Running {
			continue
		}
		since := sb.StartedAt
		if sb.LastCheckpointAt.After(since) {
			since = sb.LastCheckpointAt
		}
		list = append(list, Sandbox{ID: sb.ID, Workspace: sb.Workspace, Interval: sb.CheckpointInterval, Since: since})
	}
	k.forgetFailures(live)
	return list
}

// forgetFailures forgets the failures of sandboxes that have ended.
func (k *Keeper) forgetFailures(live map[sandbox.ID]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.failed, func(id sandbox.ID, _ bool) bool { return !live[id] })
}

// Save implements [Sandboxes].
func (k *Keeper) Save(ctx context.Context, id sandbox.ID) {
	b := k.host.Box(id)
	if b == nil {
		return
	}
	err := k.host.Exclusively(ctx, b, box.Checkpoint, func() error { return k.save(b) })
	if err == nil {
		k.setFailed(id, false)
		return
	}
	if b.Context().Err() != nil || ctx.Err() != nil {
		return
	}
	k.log.Warn("automatic checkpoint not made, trying again in one interval", "sandbox", id, "error", err)
	if k.setFailed(id, true) {
		return // an event says so already
	}
	k.event(b, sandbox.EventCheckpointFailed, sandbox.Explain("an automatic checkpoint could not be made; an earlier checkpoint stays", err), nil)
}

// setFailed notes whether the last attempt at a checkpoint of a sandbox failed, and returns
// whether the attempt before did.
func (k *Keeper) setFailed(id sandbox.ID, failed bool) (before bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before = k.failed[id]
	delete(k.failed, id)
	if failed {
		k.failed[id] = true
	}
	return before
}

// save makes the automatic checkpoint of a box. The one before is removed afterwards.
func (k *Keeper) save(b *box.Box) error {
	sb := b.Sandbox()
	if sb.CheckpointInterval == 0 || sb.State != sandbox.Running {
		return nil
	}
	if !sb.LastActivityAt.After(sb.LastCheckpointAt) && !k.host.Working(b) {
		return nil // nothing changed since the checkpoint
	}
	if err := errors.Join(k.saved.CheckFree(k.minFreeDisk), k.quotas.CheckDisk(k.ctx(), sb.Workspace)); err != nil {
		return err
	}
	begin := time.Now()
	last := b.Activity.Last()
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: b.ID, ImageDigest: sb.ImageDigest, CreatedBy: sb.CreatedBy}
	before, err := k.kept(b.Context(), b.ID)
	if err != nil {
		return err
	}
	err = k.saved.Make(k.ctx(), b.ID, cp.ID, func(path string) error { return k.host.Save(b, path) })
	if err != nil {
		return err
	}
	if cp.SizeBytes, err = k.saved.Size(k.saved.Path(b.ID, cp.ID)); err == nil {
		// Activity between the checkpoint and its record counts as after the checkpoint.
		cp.CreatedAt = begin.UTC()
		if last.After(begin) {
			cp.CreatedAt = last
		}
		err = k.quotas.Record(k.ctx(), k.quotas.Admission(sb.Workspace), sb.Workspace, func(ad quota.Admission) error {
			return k.saved.Records().ReplaceAutomatic(k.ctx(), cp, ad)
		})
	}
	if err != nil {
		return err // the sweep removes the files, unless they were recorded nevertheless
	}
	k.show(b, func(sb *sandbox.Sandbox) { sb.LastCheckpointAt = cp.CreatedAt })
	if before != nil {
		k.saved.DiscardOrLog(k.ctx(), b.ID, before.ID)
	}
	return nil
}

// kept returns the automatic checkpoint of a sandbox; nil for none.
func (k *Keeper) kept(ctx context.Context, id sandbox.ID) (*sandbox.Checkpoint, error) {
	list, err := k.saved.Records().List(ctx, id)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Automatic() {
			return &list[i], nil
		}
	}
	return nil, nil
}

// Drop deletes the automatic checkpoint of a box, if it has one. The caller has the box
// exclusively.
func (k *Keeper) Drop(b *box.Box, why string) error {
	cp, err := k.kept(b.Context(), b.ID)
	if err != nil || cp == nil {
		return err
	}
	err = k.saved.Records().Delete(k.ctx(), cp.ID, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointDeleted,
		Message: "its automatic checkpoint was deleted: " + why, Data: map[string]string{"checkpoint": string(cp.ID)},
	})
	if err != nil {
		return err
	}
	k.show(b, func(sb *sandbox.Sandbox) { sb.LastCheckpointAt = time.Time{} })
	k.saved.DiscardOrLog(k.ctx(), b.ID, cp.ID)
	return nil
}

// SetInterval records the interval of the automatic checkpoints of a box. The caller has the
// box exclusively.
func (k *Keeper) SetInterval(b *box.Box, d time.Duration) error {
	if b.Sandbox().CheckpointInterval == d {
		return nil
	}
	message := fmt.Sprintf("it gets an automatic checkpoint every %s", d)
	if d == 0 {
		message = "it gets no automatic checkpoints"
	}
	if err := k.recordInterval(b, d, message); err != nil {
		return err
	}
	if d == 0 {
		return k.Drop(b, "automatic checkpoints were switched off")
	}
	return nil
}

// recordInterval records the interval of a box with an event, and shows it.
func (k *Keeper) recordInterval(b *box.Box, d time.Duration, message string) error {
	b.Lock()
	defer b.Unlock()
	err := k.saved.Records().SetInterval(k.ctx(), b.ID, d, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointInterval, Message: message,
	})
	if err != nil {
		return err
	}
	sb := b.View().Sandbox
	sb.CheckpointInterval = d
	b.Set(sb)
	return nil
}

// show changes the view of a box as its row was changed.
func (k *Keeper) show(b *box.Box, change func(*sandbox.Sandbox)) {
	b.Lock()
	defer b.Unlock()
	sb := b.View().Sandbox
	change(&sb)
	b.Set(sb)
}

func (k *Keeper) event(b *box.Box, typ sandbox.EventType, message string, data map[string]string) {
	err := k.host.AppendEvent(k.ctx(), sandbox.Event{Sandbox: b.ID, Time: time.Now().UTC(), Type: typ, Message: message, Data: data})
	if err != nil {
		k.log.Error("event not recorded", "sandbox", b.ID, "type", typ, "error", err)
	}
}

// Lost has a sandbox whose processes were lost go on from its automatic checkpoint, in the
// background; without one it ends with cause.
func (k *Keeper) Lost(b *box.Box, cause sandbox.Cause) {
	if b.Sandbox().CheckpointInterval == 0 {
		k.host.End(b, cause)
		return
	}
	handle := b.View().Sandbox.Handle
	k.work.Go(func() {
		err := b.Exclusively(b.Context(), box.Restore, func() error {
			if !b.Runs(handle) {
				return nil // an operation before this has brought it back, or has it paused
			}
			return k.rollBack(b, cause)
		})
		if err != nil && b.Context().Err() == nil {
			k.log.Error("lost sandbox not brought back", "sandbox", b.ID, "state", b.Sandbox().State, "error", err)
		}
	})
}

// rollBack brings a lost box back from its automatic checkpoint, or ends its sandbox. The
// caller has the box exclusively.
func (k *Keeper) rollBack(b *box.Box, cause sandbox.Cause) error {
	cp, from, err := k.prepare(b)
	if b.Context().Err() != nil { // it has ended, or the server ends
		return b.Context().Err()
	}
	if err != nil {
		k.log.Warn("lost sandbox cannot be brought back", "sandbox", b.ID, "error", err)
		cause.Message = sandbox.Explain(cause.Message+"; it could not go on from its automatic checkpoint", err)
	}
	if err != nil || cp == nil {
		k.host.End(b, cause)
		return nil
	}
	if err := k.host.GoBack(b, from, cp.ImageDigest); err != nil {
		return err
	}
	at := cp.CreatedAt.UTC().Format(time.RFC3339)
	k.event(b, sandbox.EventRolledBack, sandbox.OneLine(cause.Message+"; it goes on from its automatic checkpoint of "+at),
		map[string]string{"checkpoint": string(cp.ID), "checkpoint_at": at, "cause": string(cause.Code)})
	return nil
}

// prepare makes a copy of the automatic checkpoint of a lost box, and returns both; nil
// without one.
func (k *Keeper) prepare(b *box.Box) (cp *sandbox.Checkpoint, from sandbox.CheckpointID, err error) {
	if cp, err = k.kept(b.Context(), b.ID); err != nil || cp == nil {
		return nil, "", err
	}
	fetched, err := k.host.Fetch(b, *cp) // before the count: while an object store is away, a server may be started often
	if err != nil {
		return nil, "", err
	}
	n, err := k.saved.Records().CountRestore(k.ctx(), cp.ID)
	if err != nil {
		return nil, "", err
	}
	if n > maxRollbacks {
		return nil, "", sandbox.Errorf(sandbox.Unavailable, "it was lost %d times since then", n)
	}
	if n > 1 {
		select {
		case <-time.After(rollbackPause << (n - 2)):
		case <-b.Context().Done():
			return nil, "", b.Context().Err()
		}
	}
	from, err = k.saved.Branch(b.Context(), fetched)
	if fetched.ID != cp.ID { // an earlier one, which no row keeps
		err = errors.Join(err, k.saved.Remove(b.ID, fetched.ID))
	}
	return &fetched, from, err
}
