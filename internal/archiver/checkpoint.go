package archiver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Checkpoints are the records of checkpoints and their copies. Their methods are safe for concurrent use. Internal/store has them.
type Checkpoints interface {
	// UncopiedCheckpoints returns the checkpoints of live sandboxes, named and automatic, that have no copy in the object store.
	UncopiedCheckpoints(ctx context.Context) ([]sandbox.Checkpoint, error)
	// BeginCopy records that the copy of an automatic checkpoint is being made, in place of an earlier one of the sandbox that was begun and not recorded. Errors: Conflict if the
	// checkpoint was replaced or deleted.
	BeginCopy(ctx context.Context, id sandbox.CheckpointID) error
	// CheckpointCopied records that a checkpoint of size bytes is in the object store. The copy of an automatic checkpoint replaces the earlier copy, also when a later
	// checkpoint has replaced the checkpoint meanwhile. Errors: Conflict if the checkpoint was deleted; QuotaExceeded.
	CheckpointCopied(ctx context.Context, id sandbox.CheckpointID, size int64, at time.Time, a quota.Admission) error
	// AutomaticCopy returns the automatic checkpoint of a sandbox whose copy is the latest; nil for none.
	AutomaticCopy(ctx context.Context, id sandbox.ID) (*sandbox.Checkpoint, error)
}

var (
	errNoFiles = sandbox.Errorf(sandbox.Conflict, "the files of the checkpoint are not on the disk of the server")
	// errGone is wrapped by errors that say that the files of a checkpoint are nowhere.
	errGone = errors.New("no copy can be fetched")
)

// copyCheckpoint copies a checkpoint of a live sandbox to the object store. The copy ends with the sandbox.
func (s *Service) copyCheckpoint(b *box.Box, cp *sandbox.Checkpoint) (err error) {
	if !s.onDisk(cp) {
		return errNoFiles
	}
	begin := time.Now()
	defer func() {
		err = ended(b, err)
		s.observe(box.Archive, begin, err)
	}()
	ws := b.View().Sandbox.Workspace
	size, err := s.send(b.Context(), &parcel{owner: b.ID, workspace: ws, id: cp.ID, size: cp.SizeBytes, checkpoint: true, automatic: cp.Automatic()})
	if err != nil {
		return err
	}
	err = s.deps.Quotas.Record(b.Context(), s.deps.Quotas.Admission(ws), ws, func(a quota.Admission) error {
		return s.deps.Checkpoints.CheckpointCopied(b.Context(), cp.ID, size, time.Now(), a)
	})
	if code := sandbox.CodeOf(err); code == sandbox.Conflict || code == sandbox.QuotaExceeded || b.Context().Err() != nil {
		if werr := s.withdraw(cp.ID); werr != nil && s.ctx.Err() == nil {
			s.log.Warn("a stored checkpoint that could not be recorded is not removed; the sweep removes it later", "sandbox", b.ID, "checkpoint", cp.ID, "error", werr)
		}
	}
	return err
}

// withdraw removes the description of a state without a record. It would count for no quota until the sweep finds that it is old: a workspace that deletes each checkpoint during its upload
// could fill the bucket.
func (s *Service) withdraw(id sandbox.CheckpointID) error {
	release, ok := s.lock(id)
	if !ok {
		return nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(s.ctx, lookTimeout)
	defer cancel()
	size, err := s.deps.States.Stored(ctx, id)
	if err != nil || size > 0 {
		return err
	}
	store, err := s.open(ctx)
	if err != nil {
		return err
	}
	return store.Remove(ctx, id)
}

func (s *Service) onDisk(cp *sandbox.Checkpoint) bool {
	_, err := os.Lstat(s.deps.Saved.Path(cp.Sandbox, cp.ID))
	return !errors.Is(err, fs.ErrNotExist)
}

// Branch copies a checkpoint of a live sandbox as [checkpoint.Store.Branch] does. Files that are not on the disk are fetched first, and stay. The caller has
// exclusive use of the box. Errors: as of [checkpoint.Store.Branch]; DiskFull; Unavailable, also when the stored files are missing or damaged.
func (s *Service) Branch(b *box.Box, cp sandbox.Checkpoint) (sandbox.CheckpointID, error) {
	if err := s.fetchCheckpoint(b, &cp); err != nil {
		return "", err
	}
	return s.deps.Saved.Branch(b.Context(), cp)
}

// FetchAutomatic brings the automatic checkpoint of a lost sandbox to the disk, unless it is there, and returns it. If its upload had not ended when the disk was lost, FetchAutomatic
// brings and returns the earlier automatic checkpoint that has a copy, which has no row. It tries again until the sandbox ends while the bucket cannot be reached or the disk is full. The caller has exclusive use of the box.
func (s *Service) FetchAutomatic(b *box.Box, cp sandbox.Checkpoint) (sandbox.Checkpoint, error) {
	_, err := backoff.Retry(b.Context(), func() (struct{}, error) {
		err := s.fetchCheckpoint(b, &cp)
		if !errors.Is(err, errGone) {
			return struct{}{}, err
		}
		if awayErr := lookForStore(b.Context(), &s.cfg); awayErr != nil { // a directory may not be mounted
			return struct{}{}, awayErr
		}
		earlier, lookErr := s.deps.Checkpoints.AutomaticCopy(b.Context(), b.ID)
		switch {
		case lookErr != nil:
			return struct{}{}, lookErr
		case earlier == nil || earlier.ID == cp.ID:
			return struct{}{}, backoff.Permanent(err)
		}
		cp = *earlier
		return struct{}{}, s.fetchCheckpoint(b, &cp)
	}, retry.Pauses(time.Second, time.Minute), retry.Forever(), backoff.WithNotify(func(err error, wait time.Duration) {
		s.log.Warn("automatic checkpoint of a lost sandbox not fetched, trying again", "sandbox", b.ID, "checkpoint", cp.ID, "error", err, "wait", wait)
	}))
	return cp, err
}

// lookForStore returns an error unless the bucket has a store.
func lookForStore(ctx context.Context, cfg *Config) error {
	objects, err := object.OpenWithKeyFile(ctx, cfg.URL, cfg.KeyFile, object.Options{})
	if err != nil {
		return err
	}
	return objects.Close()
}

// fetchCheckpoint brings the files of a checkpoint to the disk, unless they are there. Its row counts them already. Errors: DiskFull; Unavailable, with errGone if no other attempt
// succeeds; Ended.
func (s *Service) fetchCheckpoint(b *box.Box, cp *sandbox.Checkpoint) error {
	if s.cfg.URL == "" || s.onDisk(cp) {
		return nil
	}
	begin := time.Now()
	err := ended(b, s.fetch(b.Context(), &parcel{owner: b.ID, workspace: b.View().Sandbox.Workspace, id: cp.ID, size: cp.SizeBytes}))
	s.observe(box.Fetch, begin, err)
	if isGone(err) {
		err = sandbox.Wrap(sandbox.Unavailable, errors.Join(errGone, err),
			"the files of checkpoint %q are not on the server's disk, and the object store has no complete copy of them (archive.copies); ask an administrator, or restore another checkpoint", cp.Name)
	}
	return err
}
