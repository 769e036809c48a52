package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// CreateCheckpoint saves the memory and files of a running or paused sandbox under a name; for ""
// it chooses a name. A running sandbox is stopped during the save and then continues.
//
// Errors: as for [Service.Pause]; Invalid, naming name; Exists if the sandbox has a checkpoint of
// that name; QuotaExceeded for too many checkpoints or too many bytes.
func (s *Service) CreateCheckpoint(ctx context.Context, c sandbox.Caller, ref, name string) (sandbox.Checkpoint, error) {
	cp := sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Name: name, CreatedBy: c.User}
	if name == "" {
		cp.Name = "checkpoint-" + string(cp.ID[len(cp.ID)-12:])
	} else if err := sandbox.CheckText("name", name, 1, sandbox.CheckpointName); err != nil {
		return sandbox.Checkpoint{}, err
	}
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Checkpoint{}, err
	}
	cp.Sandbox = b.ID
	audit.FromContext(ctx).Made("checkpoint", string(cp.ID), cp.Name)
	err = b.Exclusively(ctx, box.Checkpoint, func() error { return s.checkpoint(b, &cp) })
	if err != nil {
		return sandbox.Checkpoint{}, err
	}
	return cp, nil
}

// checkpoint saves a box under cp's id and records cp.
func (s *Service) checkpoint(b *entry, cp *sandbox.Checkpoint) (err error) {
	begin := time.Now()
	if err := s.mayCheckpoint(b, cp.Name); err != nil {
		return err
	}
	defer func() { s.metrics.Operation(box.Checkpoint, begin, err) }()
	err = s.saved.Make(s.ctx, b.ID, cp.ID, func(path string) error { return s.saveTo(b, path, driver.CheckpointOptions{Layer: true}) })
	if err != nil {
		return err
	}
	cp.ImageDigest = b.Sandbox().ImageDigest
	if cp.SizeBytes, err = s.saved.Size(s.saved.Path(b.ID, cp.ID)); err == nil {
		cp.CreatedAt = time.Now().UTC()
		ev := sandbox.Event{
			Sandbox: b.ID, Time: cp.CreatedAt, Type: sandbox.EventCheckpointCreated, Message: sandbox.OneLine(fmt.Sprintf("its state was saved as %q", cp.Name)),
			Data: map[string]string{
				"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name),
				"size_bytes": strconv.FormatInt(cp.SizeBytes, 10), "took_ms": milliseconds(time.Since(begin)),
			},
		}
		ws := b.Sandbox().Workspace
		err = s.quotas.Record(s.ctx, s.quotas.Admission(ws), ws, func(a quota.Admission) error {
			return s.saved.Records().Create(s.ctx, *cp, sandbox.CheckpointsMax, ev, a)
		})
	}
	if err != nil && s.ctx.Err() == nil {
		// When it was recorded nevertheless, the row goes with the files.
		s.saved.Forget(s.ctx, *cp)
	}
	return err
}

// saveTo writes the state of a running or paused box. A running box continues afterwards.
func (s *Service) saveTo(b *entry, path string, opts driver.CheckpointOptions) error {
	switch sb := b.Sandbox(); sb.State {
	case sandbox.Running:
		return s.save(b, path, opts)
	case sandbox.Paused:
		return s.saved.Copy(s.saved.Path(b.ID, sb.Saved), path)
	default:
		return box.StateError(&sb)
	}
}

// mayCheckpoint returns the errors that can be determined before the save.
func (s *Service) mayCheckpoint(b *entry, name string) error {
	if err := s.quotas.CheckDisk(s.ctx, b.Sandbox().Workspace); err != nil {
		return err
	}
	list, err := s.saved.Records().List(s.ctx, b.ID)
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
	if size >= s.cfg.MaxCheckpointBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the checkpoints of the sandbox take more than %s; delete some", sandbox.ShowBytes(s.cfg.MaxCheckpointBytes))
	}
	return nil
}

// Checkpoints returns the named checkpoints of a sandbox, the oldest first; a sandbox that has
// ended has none. Errors: NotFound.
func (s *Service) Checkpoints(ctx context.Context, c sandbox.Caller, ref string) ([]sandbox.Checkpoint, error) {
	_, sb, err := s.Entry(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	list, err := s.saved.Records().List(ctx, sb.ID)
	return slices.DeleteFunc(list, func(c sandbox.Checkpoint) bool { return c.Automatic() }), err
}

// RestoreCheckpoint restores a checkpoint, by id or name, of a running or paused sandbox, and
// returns when the sandbox runs: with the same id and URL, and the memory and files of the
// checkpoint. The later state of the sandbox is lost; the checkpoint stays. If the checkpoint
// cannot be restored now, the sandbox stays paused with that state.
//
// Errors: as for [Service.Resume]; NotFound also for the checkpoint.
func (s *Service) RestoreCheckpoint(ctx context.Context, c sandbox.Caller, ref, checkpoint string) (sandbox.Sandbox, error) {
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	err = b.Exclusively(ctx, box.Restore, func() error {
		begin := time.Now()
		err := s.restoreTo(b, checkpoint)
		s.metrics.Operation(box.Restore, begin, err)
		return err
	})
	return b.Sandbox(), err
}

// restoreTo replaces the state of a box by a copy of the checkpoint, which belongs to the sandbox
// alone.
func (s *Service) restoreTo(b *entry, checkpoint string) error {
	cp, err := s.saved.Find(b.Context(), b.ID, checkpoint)
	if err != nil {
		return err
	}
	from, err := s.saved.Branch(b.Context(), cp)
	if err != nil {
		return err
	}
	// After this a loss of the sandbox must not bring back what came after the checkpoint.
	if err := s.automatic.Drop(b.Box, "the sandbox goes back to another one"); err != nil {
		return err
	}
	if err := s.goBack(b, from, cp.ImageDigest); err != nil {
		return err
	}
	return s.store.AppendEvent(s.ctx, sandbox.Event{
		Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointRestored,
		Message: sandbox.OneLine(fmt.Sprintf("it went back to checkpoint %q", cp.Name)),
		Data:    map[string]string{"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name)},
	})
}

// goBack replaces the state of a running or paused box by the checkpoint from, which belongs to the
// box alone and is based on the root filesystem of digest, and resumes the box.
func (s *Service) goBack(b *entry, from sandbox.CheckpointID, digest string) error {
	switch sb := b.Sandbox(); sb.State {
	case sandbox.Paused:
	case sandbox.Running:
		if err := s.abandon(b, from, digest); err != nil {
			return err
		}
	default:
		return box.StateError(&sb)
	}
	s.executions.ForgetTyped(b.Box)
	return s.resumeFrom(b, from, digest, sandbox.MemoryPrefer)
}

// abandon discards the running state of a box in favor of the checkpoint from, which is based on
// the root filesystem of digest. The sandbox stays pausing until it is resumed from that
// checkpoint, so that no other sandbox can take its share of the quota. After the intent is
// recorded, a restarted server finds the sandbox paused with the checkpoint.
func (s *Service) abandon(b *entry, from sandbox.CheckpointID, digest string) error {
	err := s.move(b, sandbox.Pausing, func(sb *sandbox.Sandbox) { sb.Saved, sb.ImageDigest = from, digest },
		sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventPausing, Message: "it is being taken back to a checkpoint"})
	if err != nil {
		return err
	}
	s.unwatch(b)
	if b.Sandbox().Saved != from {
		// The record of an earlier pause had its effect after all: that comes first.
		return errors.Join(sandbox.Errorf(sandbox.Unavailable, "the sandbox was being paused; try again"), s.settle(b))
	}
	if err := s.destroyNow(b); err != nil {
		return err // settled later, the same way
	}
	if err := s.usage.Record(s.ctx, b.Box); err != nil {
		s.log.Error("usage of a sandbox not recorded, trying again soon", "sandbox", b.ID, "error", err)
	}
	b.Agent.Reset()
	return nil
}

// DeleteCheckpoint deletes a checkpoint by id or name. Errors: NotFound.
func (s *Service) DeleteCheckpoint(ctx context.Context, c sandbox.Caller, ref, checkpoint string) error {
	b, err := s.stateful(ctx, c, ref)
	if err != nil {
		return err
	}
	return b.Exclusively(ctx, box.DeleteCheckpoint, func() error {
		cp, err := s.saved.Find(b.Context(), b.ID, checkpoint)
		if err != nil {
			return err
		}
		err = s.saved.Records().Delete(s.ctx, cp.ID, sandbox.Event{
			Sandbox: b.ID, Time: time.Now().UTC(), Type: sandbox.EventCheckpointDeleted,
			Message: sandbox.OneLine(fmt.Sprintf("checkpoint %q was deleted", cp.Name)), Data: map[string]string{"checkpoint": string(cp.ID), "name": sandbox.OneLine(cp.Name)},
		})
		if err != nil {
			return err
		}
		return s.saved.Remove(b.ID, cp.ID)
	})
}

// owners implements [checkpoint.Owners].
type owners struct{ *Service }

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
