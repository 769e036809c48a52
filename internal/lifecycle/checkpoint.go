package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/autocheckpoint"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/telemetry"
)

// Checkpoints are the named checkpoints of sandboxes. Its methods are safe for concurrent use.
type Checkpoints struct {
	suspender *suspender
	saver     *savedbox.Saver
	automatic *autocheckpoint.Keeper
	saved     *checkpoint.Store
	archives  *archiver.Service
	quotas    *quota.Controller
	store     eventlog.Store
	metrics   *telemetry.Metrics
	maxBytes  int64           // of all checkpoints of one sandbox
	ctx       context.Context // of the service
}

// Create saves the memory and files of a running or paused sandbox under a name; for ""
// it chooses a name. A running sandbox is stopped during the save and then continues.
//
// Errors: as for [Service.Pause]; Invalid, naming name; Exists if the sandbox has a checkpoint of
// that name; QuotaExceeded for too many checkpoints or too many bytes.
func (k *Checkpoints) Create(ctx context.Context, c sandbox.Caller, ref, name string) (sandbox.Checkpoint, error) {
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Name: name, CreatedBy: c.User}
	if name == "" {
		cp.Name = "checkpoint-" + string(cp.ID[len(cp.ID)-12:])
	} else if err := sandbox.CheckText("name", name, 1, sandbox.CheckpointName); err != nil {
		return sandbox.Checkpoint{}, err
	}
	b, err := k.suspender.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Checkpoint{}, err
	}
	cp.Sandbox = b.ID
	audit.FromContext(ctx).Made("checkpoint", string(cp.ID), cp.Name)
	err = k.saver.Exclusively(ctx, b.Box, box.Checkpoint, func() error { return k.checkpoint(b, &cp) })
	if err != nil {
		return sandbox.Checkpoint{}, err
	}
	return cp, nil
}

// checkpoint saves a box under cp's id and records cp.
func (k *Checkpoints) checkpoint(b *entry, cp *sandbox.Checkpoint) (err error) {
	begin := time.Now()
	if err := k.mayCheckpoint(b, cp.Name); err != nil {
		return err
	}
	defer func() { k.metrics.Operation(box.Checkpoint, begin, err) }()
	err = k.saved.Make(k.ctx, b.ID, cp.ID, func(path string) error { return k.saver.SaveTo(b.Box, path, driver.CheckpointOptions{Layer: true}) })
	if err != nil {
		return err
	}
	cp.ImageDigest = b.Sandbox().ImageDigest
	if cp.SizeBytes, err = k.saved.Size(k.saved.Path(b.ID, cp.ID)); err == nil {
		cp.CreatedAt = time.Now().UTC()
		ev := sandbox.Event{
			Sandbox: b.ID, Time: cp.CreatedAt, Type: sandbox.EventCheckpointCreated, Message: sandbox.OneLine(fmt.Sprintf("its state was saved as %q", cp.Name)),
			Data: map[string]string{
				"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name),
				"size_bytes": strconv.FormatInt(cp.SizeBytes, 10), "took_ms": milliseconds(time.Since(begin)),
			},
		}
		ws := b.Sandbox().Workspace
		err = k.quotas.Record(k.ctx, k.quotas.Admission(ws), ws, func(a quota.Admission) error {
			return k.saved.Records().Create(k.ctx, cp, sandbox.CheckpointsMax, ev, a)
		})
	}
	if err != nil && k.ctx.Err() == nil {
		// When it was recorded nevertheless, the row goes with the files.
		k.saved.Forget(k.ctx, *cp)
	}
	return err
}

// mayCheckpoint returns the errors that can be determined before the save.
func (k *Checkpoints) mayCheckpoint(b *entry, name string) error {
	if err := k.quotas.CheckDisk(k.ctx, b.Sandbox().Workspace); err != nil {
		return err
	}
	list, err := k.saved.Records().List(k.ctx, b.ID)
	if err != nil {
		return err
	}
	size, count := int64(0), 0
	for _, c := range list {
		if c.Automatic() {
			continue
		}
		count++
		size += c.SizeBytes
		if c.Name == name {
			return sandbox.Errorf(sandbox.Exists, "the sandbox has a checkpoint %q already", sandbox.Excerpt(name))
		}
	}
	if count >= sandbox.CheckpointsMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a sandbox has at most %d checkpoints; delete some", sandbox.CheckpointsMax)
	}
	if size >= k.maxBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the checkpoints of the sandbox take more than %s; delete some", sandbox.ShowBytes(k.maxBytes))
	}
	return nil
}

// List returns the named checkpoints of a sandbox, the oldest first; a sandbox that has
// ended has none. Errors: NotFound.
func (k *Checkpoints) List(ctx context.Context, c sandbox.Caller, ref string) ([]sandbox.Checkpoint, error) {
	_, sb, err := k.suspender.finder.Entry(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	list, err := k.saved.Records().List(ctx, sb.ID)
	return slices.DeleteFunc(list, func(c sandbox.Checkpoint) bool { return c.Automatic() }), err
}

// Restore restores a checkpoint, by id or name, of a running or paused sandbox, and
// returns when the sandbox runs: with the same id and URL, and the memory and files of the
// checkpoint. The later state of the sandbox is lost; the checkpoint stays. If the checkpoint
// cannot be restored now, the sandbox stays paused with that state.
//
// Errors: as for [Service.Resume]; NotFound also for the checkpoint.
func (k *Checkpoints) Restore(ctx context.Context, c sandbox.Caller, ref, checkpoint string) (sandbox.Sandbox, error) {
	b, err := k.suspender.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	err = b.Exclusively(ctx, box.Restore, func() error {
		begin := time.Now()
		err := k.restoreTo(b, checkpoint)
		k.metrics.Operation(box.Restore, begin, err)
		return err
	})
	return b.Sandbox(), err
}

// restoreTo replaces the state of a box by a copy of the checkpoint, which belongs to the sandbox
// alone.
func (k *Checkpoints) restoreTo(b *entry, checkpoint string) error {
	cp, err := k.saved.Find(b.Context(), b.ID, checkpoint)
	if err != nil {
		return err
	}
	from, err := k.archives.Branch(b.Box, cp)
	if err != nil {
		return err
	}
	// After this a loss of the sandbox must not bring back what came after the checkpoint.
	if err := k.automatic.Drop(b.Box, "the sandbox goes back to another one"); err != nil {
		return err
	}
	if err := k.suspender.goBack(b, from, cp.ImageDigest); err != nil {
		return err
	}
	return k.store.AppendEvent(k.ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointRestored,
		Message: sandbox.OneLine(fmt.Sprintf("it went back to checkpoint %q", cp.Name)),
		Data:    map[string]string{"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name)},
	})
}

// Delete deletes a checkpoint by id or name. Errors: NotFound.
func (k *Checkpoints) Delete(ctx context.Context, c sandbox.Caller, ref, checkpoint string) error {
	b, err := k.suspender.stateful(ctx, c, ref)
	if err != nil {
		return err
	}
	return b.Exclusively(ctx, box.DeleteCheckpoint, func() error {
		cp, err := k.saved.Find(b.Context(), b.ID, checkpoint)
		if err != nil {
			return err
		}
		err = k.saved.Records().Delete(k.ctx, cp.ID, sandbox.Event{
			Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointDeleted,
			Message: sandbox.OneLine(fmt.Sprintf("checkpoint %q was deleted", cp.Name)), Data: map[string]string{"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name)},
		})
		if err != nil {
			return err
		}
		return k.saved.Remove(b.ID, cp.ID)
	})
}

// owners implements [checkpoint.Owners].
type owners struct {
	boxes *box.Index[*entry]
	store Transitions
}

func (o owners) Owner(id sandbox.ID) (checkpoint.Owner, bool) {
	b := o.boxes.ByID(id)
	if b == nil {
		return checkpoint.Owner{}, !o.boxes.Has(id)
	}
	if b.Busy() {
		return checkpoint.Owner{}, false
	}
	return checkpoint.Owner{Live: true, Saved: b.Sandbox().Saved}, true
}

func (o owners) SandboxByID(ctx context.Context, id sandbox.ID) (sandbox.Sandbox, error) {
	return o.store.SandboxByID(ctx, id)
}
