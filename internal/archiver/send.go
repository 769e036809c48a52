package archiver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/modbox/modbox/internal/archive"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/sandbox"
)

// parcel is a saved state that is sent or fetched.
type parcel struct {
	owner     sandbox.ID
	workspace sandbox.WorkspaceID
	id        sandbox.CheckpointID
	size      int64 // as the row has it
	// checkpoint says that a checkpoint has the state, and not a paused sandbox. Its files may be removed at any time.
	checkpoint bool
	automatic  bool // the checkpoint is automatic
}

// send stores a saved state within the bounds of its workspace, and returns the bytes of its files.
func (s *Service) send(ctx context.Context, p *parcel) (int64, error) {
	release, ok := s.lock(p.id)
	if !ok {
		return 0, errInUse
	}
	defer release()
	if err := s.maySend(ctx, p.workspace, p.automatic); err != nil { // before states are removed for nothing
		return 0, err
	}
	if err := s.makeSpace(ctx, p); err != nil {
		return 0, err
	}
	leave, err := s.uploads.Acquire(ctx, p.workspace, nil)
	if err != nil {
		return 0, err
	}
	defer leave()
	if err := s.bucket.Acquire(ctx, 1); err != nil { // a collection refuses uploads
		return 0, err
	}
	defer s.bucket.Release(1)
	if err := s.maySend(ctx, p.workspace, p.automatic); err != nil { // others have sent meanwhile
		return 0, err
	}
	dir, unpin, err := s.pin(ctx, p)
	if err != nil {
		return 0, err
	}
	st, sent, err := s.put(ctx, p, dir)
	if err != nil {
		err = s.unusable(ctx, err)
	}
	if err := errors.Join(err, s.hasSent(ctx, p.workspace, sent.SentBytes), unpin()); err != nil {
		return 0, err
	}
	// The owner does not learn it: it tells which data of others the bucket has.
	s.log.Info("saved state sent", "sandbox", p.owner, "checkpoint", p.id, "size_bytes", st.Size(), "sent_bytes", sent.SentBytes, "of_checkpoint", p.checkpoint, "automatic", p.automatic)
	return st.Size(), nil
}

// pin returns a directory with the files of a state, which stay there until unpin is called. An upload may take longer than the interval of automatic
// checkpoints: without the pin, none would ever end.
func (s *Service) pin(ctx context.Context, p *parcel) (dir string, unpin func() error, err error) {
	dir = s.deps.Saved.Path(p.owner, p.id)
	if !p.checkpoint {
		return dir, func() error { return nil }, nil
	}
	if p.automatic {
		if err := s.deps.Checkpoints.BeginCopy(ctx, p.id); err != nil {
			return "", nil, err
		}
	}
	pinned, unpin := s.deps.Saved.Fork()
	if err := s.deps.Saved.Copy(dir, pinned); err != nil { // by links
		if errors.Is(err, fs.ErrNotExist) {
			err = errNoFiles
		}
		return "", nil, errors.Join(err, unpin())
	}
	return pinned, unpin, nil
}

// put stores the files of a state in a directory.
func (s *Service) put(ctx context.Context, p *parcel, dir string) (st archive.State, sent object.Counts, err error) {
	store, err := s.open(ctx)
	if err != nil {
		return st, sent, err
	}
	src := archive.Source{Owner: p.owner, ID: p.id, Installation: s.cfg.Installation, Dir: dir, Unverified: p.automatic}
	if carrier, ok := s.deps.Driver.(driver.Carrier); ok {
		if src.Parts, err = carrier.Needs(src.Dir); err != nil {
			return st, sent, fmt.Errorf("archive the saved state %s: %w", p.id, err)
		}
	}
	return store.Put(ctx, src)
}
