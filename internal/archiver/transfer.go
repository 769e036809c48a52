package archiver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// archive stores the state of a paused sandbox, records that, and removes the local files unless it only copies. The upload does not keep others from the box: a
// resume ends it, and the record checks again.
func (s *Service) archive(b *box.Box, why string, copies bool) (err error) {
	sb := b.Sandbox()
	if sb.State != sandbox.Paused {
		return notPaused(&sb)
	}
	if !sb.ArchivedAt.IsZero() {
		return nil
	}
	if s.isAway(&sb) { // as with a database that was put back
		return sandbox.Errorf(sandbox.Conflict, "the saved state of sandbox %q is not on the disk of the server; resume the sandbox, which fetches the state if the object store has it", sb.Name)
	}
	begin := time.Now()
	defer func() {
		err = ended(b, err)
		s.observe(box.Archive, begin, err)
	}()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	go watch(ctx, b, sb.Saved, cancel)
	size, err := s.send(ctx, &parcel{owner: b.ID, workspace: sb.Workspace, id: sb.Saved, size: sb.SavedBytes})
	if err != nil {
		return cause(ctx, err)
	}
	if copies {
		a := s.deps.Quotas.Admission(sb.Workspace)
		return cause(ctx, s.deps.Quotas.Record(ctx, a, sb.Workspace, func(a quota.Admission) error {
			return s.deps.Records.Copied(ctx, b.ID, sb.Saved, size, time.Now(), a)
		}))
	}
	ev := sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventArchived, Message: sandbox.OneLine("its saved state was moved to the object store: " + why), Data: map[string]string{
		"took_ms": strconv.FormatInt(time.Since(begin).Milliseconds(), 10), "size_bytes": strconv.FormatInt(size, 10),
	}}
	err = b.Exclusively(ctx, box.Archive, func() error {
		if err := s.record(b, func(a quota.Admission) (sandbox.Sandbox, error) {
			return s.deps.Records.Archive(s.ctx, b.ID, sb.Saved, size, ev, a)
		}); err != nil {
			return err
		}
		s.removeLocal(b, sb.Saved)
		return nil
	})
	if err != nil {
		return cause(ctx, err)
	}
	return nil
}

// maySend returns nil unless a workspace has sent as much as its quota since unused data was removed: the bucket still has data
// that the workspace has removed, and data of uploads that failed. There may be many automatic checkpoints, so they may send half of the quota,
// and the other half is for everything else. Errors: QuotaExceeded.
func (s *Service) maySend(ctx context.Context, ws sandbox.WorkspaceID, automatic bool) error {
	limits, err := s.deps.Quotas.Limits(ctx, ws)
	if err != nil {
		return err
	}
	sent, err := s.deps.States.Sent(ctx, ws)
	if err != nil {
		return err
	}
	most := limits[quota.LimitArchive]
	bound := most
	if automatic {
		bound /= 2
	}
	if most <= 0 || sent < bound {
		return nil
	}
	// How much it is stays unsaid: it would tell which data of others the bucket has.
	e := sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has sent its quota of %s, %s, to the object store since unused data was removed there last, which happens once a day; try again later",
		quota.LimitArchive, sandbox.ShowBytes(most))
	e.RetryAfter = sweepEvery
	return e
}

// hasSent counts the bytes that an upload has sent, also when ctx has ended.
func (s *Service) hasSent(ctx context.Context, ws sandbox.WorkspaceID, n int64) error {
	if n == 0 {
		return nil
	}
	s.moved.bytes.WithLabelValues("sent").Add(float64(n))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	return s.deps.States.AddSent(ctx, ws, n)
}

// makeSpace removes released states of the workspace until a state fits into the quota. Errors: QuotaExceeded.
func (s *Service) makeSpace(ctx context.Context, p *parcel) error {
	for {
		r, err := s.deps.Quotas.Report(ctx, p.workspace)
		if err != nil {
			return err
		}
		own, err := s.deps.States.Stored(ctx, p.id) // of when it was archived before
		if err != nil {
			return err
		}
		r.Used.ArchiveBytes -= own
		full := r.Limits.AdmitsArchive(r.Used, p.size)
		if full == nil {
			return nil
		}
		ids, err := s.deps.States.Released(ctx, p.workspace, time.Now(), 10)
		if err != nil {
			return err
		}
		removed := 0
		for _, id := range ids {
			done, err := s.remove(ctx, id)
			if err != nil {
				return err
			}
			if done {
				removed++
			}
		}
		if removed == 0 {
			return full
		}
	}
}

// record records where the state of a box is.
func (s *Service) record(b *box.Box, write func(quota.Admission) (sandbox.Sandbox, error)) error {
	b.Lock()
	defer b.Unlock()
	if err := b.Over(); err != nil {
		return err
	}
	ws := b.View().Sandbox.Workspace
	return s.deps.Quotas.Record(s.ctx, s.deps.Quotas.Admission(ws), ws, func(a quota.Admission) error {
		row, err := write(a)
		if err == nil {
			b.Set(row)
		}
		return err
	})
}

// removeLocal removes the local files of an archived sandbox, if its state is stored. The sweep removes the rest.
func (s *Service) removeLocal(b *box.Box, saved sandbox.CheckpointID) {
	ctx, cancel := context.WithTimeout(s.ctx, lookTimeout) // nothing else can be done with the sandbox meanwhile
	defer cancel()
	store, err := s.open(ctx)
	if err == nil {
		_, err = store.Get(ctx, saved)
	}
	if err == nil {
		dir := s.deps.Saved.Path(b.ID, saved)
		gone := filepath.Join(filepath.Dir(dir), archive.NewPrefix+string(saved)) // a directory that lacks files has another name
		if err = os.RemoveAll(gone); err == nil {                                 // of a removal that was interrupted
			err = os.Rename(dir, gone)
		}
		if err == nil {
			err = os.RemoveAll(gone)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && s.ctx.Err() == nil {
		s.log.Error("local files of an archived sandbox not removed, trying again later", "sandbox", b.ID, "checkpoint", saved, "error", err)
	}
	s.deps.Saved.RemoveOwner(b.ID)
	s.deps.Quotas.Released()
}

// Ready returns when the state of a sandbox, if it is paused, is on the disk of the server. Callers share the fetch, which ends when none waits any
// more. Errors: as of [Service.Fetch]; the context's.
func (s *Service) Ready(ctx context.Context, b *box.Box) error {
	if sb := b.View().Sandbox; !s.isAway(&sb) {
		return nil
	}
	return s.ready.Do(ctx, b.ID, func(ctx context.Context) error {
		return b.Exclusively(context.WithoutCancel(ctx), box.Fetch, func() error { return s.Fetch(ctx, b) }) // returns when the fetch has ended
	})
}

// Fetch brings the state of a paused sandbox to the disk of the server, unless it is there, and records that. The caller has exclusive
// use of the box, so that a state is fetched once however many callers wait. The fetch ends with ctx, or with the sandbox. A state that is missing on the disk is also fetched if the row does not
// say that it is archived: the database may be from a backup of before.
//
// Errors: QuotaExceeded; DiskFull; Unsupported when the stored state is missing or damaged; Unavailable; Ended; the context's.
func (s *Service) Fetch(ctx context.Context, b *box.Box) (err error) {
	sb := b.Sandbox()
	if !s.isAway(&sb) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.Context(), cancel)()
	archived := !sb.ArchivedAt.IsZero()
	begin := time.Now()
	err = ended(b, s.fetchPaused(ctx, &sb))
	if isGone(err) && !archived {
		return nil // the caller says what is missing
	}
	var size int64
	if err == nil && archived {
		size, err = s.deps.Saved.Size(s.deps.Saved.Path(b.ID, sb.Saved))
	}
	if err == nil && archived {
		ev := sandbox.Event{Time: time.Now().UTC(), Type: sandbox.EventFetched, Message: "its saved state was fetched from the object store", Data: map[string]string{
			"took_ms": strconv.FormatInt(time.Since(begin).Milliseconds(), 10), "size_bytes": strconv.FormatInt(size, 10),
		}}
		err = s.record(b, func(a quota.Admission) (sandbox.Sandbox, error) {
			return s.deps.Records.Fetched(s.ctx, b.ID, sb.Saved, size, ev, a)
		})
		if sandbox.CodeOf(err) == sandbox.QuotaExceeded { // it was not recorded
			s.removeLocal(b, sb.Saved)
		}
	}
	if err == nil || ctx.Err() == nil { // not abandoned
		s.observe(box.Fetch, begin, err)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Warn("state of an archived sandbox not fetched", "sandbox", b.ID, "checkpoint", sb.Saved, "error", err)
	}
	if isGone(err) {
		return sandbox.Wrap(sandbox.Unsupported, err, "%s; delete the sandbox, or take it back to one of its checkpoints", sandbox.Explain("its state cannot be fetched from the object store", err))
	}
	return err
}

// isAway reports whether a sandbox is paused and its state is, or may be, only in the object store.
func (s *Service) isAway(sb *sandbox.Sandbox) bool {
	if sb.State != sandbox.Paused || sb.Saved == "" {
		return false
	}
	if !sb.ArchivedAt.IsZero() {
		return true
	}
	if s.cfg.URL == "" {
		return false
	}
	_, err := os.Lstat(s.deps.Saved.Path(sb.ID, sb.Saved))
	return errors.Is(err, fs.ErrNotExist)
}

// fetchPaused writes the state of a paused sandbox to the disk.
func (s *Service) fetchPaused(ctx context.Context, sb *sandbox.Sandbox) error {
	if s.cfg.URL == "" {
		return sandbox.Errorf(sandbox.Unavailable, "the state of the sandbox is in an object store, and the server has none (archive.url); ask an administrator")
	}
	err := s.deps.Quotas.Record(ctx, quota.Admission{}, sb.Workspace, func(quota.Admission) error { // which frees the build cache
		return s.deps.Quotas.CheckDiskFor(ctx, sb.Workspace, 0, sb.SavedBytes)
	})
	if err != nil {
		return err
	}
	return s.fetch(ctx, &parcel{owner: sb.ID, workspace: sb.Workspace, id: sb.Saved, size: sb.SavedBytes})
}

// fetch writes a saved state to the disk.
func (s *Service) fetch(ctx context.Context, p *parcel) error {
	leave, err := s.fetches.Acquire(ctx, p.workspace, nil)
	if err != nil {
		return err
	}
	defer leave()
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	var place archive.Place
	if carrier, ok := s.deps.Driver.(driver.Carrier); ok {
		place = carrier.Place
	}
	if err := store.Fetch(ctx, p.id, s.deps.Saved.Path(p.owner, p.id), place); err != nil {
		switch {
		case isGone(err):
			return err
		case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
			return sandbox.Wrap(sandbox.DiskFull, err, "the server's disk is too full to fetch the state of the sandbox")
		}
		return s.unusable(ctx, err)
	}
	s.moved.bytes.WithLabelValues("fetched").Add(float64(p.size))
	return nil
}

// cause returns why a context ended, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (s *Service) observe(kind box.OperationKind, begin time.Time, err error) {
	if s.cfg.Observe != nil {
		s.cfg.Observe(kind, begin, err)
	}
}
