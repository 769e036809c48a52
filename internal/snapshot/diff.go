package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// diffWait bounds the wait for the diffs of others; diffTurn bounds the wait for other work on the same sandbox,
	// with the only place for diffs.
	diffWait, diffTurn = time.Minute, 10 * time.Second
	// diffMax bounds the changes of one answer.
	diffMax = 1000
	// OriginalMax bounds the size of a file of [Service.Original].
	OriginalMax = 16 << 20
)

// ChangeKind tells new names from changed and removed names.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Changed ChangeKind = "changed"
	Removed ChangeKind = "removed"
)

// Change is a name that differs between a sandbox and its image.
type Change struct {
	Kind ChangeKind
	// File is the name in the sandbox; of a removed name, in the image.
	File sandbox.SnapshotFile
	// Before is the name in the image, of a changed name; nil for others.
	Before *sandbox.SnapshotFile
}

// DiffQuery says which changes are asked for.
type DiffQuery struct {
	// Path is an absolute path; changes of it and below it are asked for. "" is the root.
	Path string
	// After is the place in the order where the answer before ended; "" begins.
	After string
	Limit int // 0 is 1000, the maximum
}

// DiffPage is a part of the changes: a directory before its entries, else by the bytes of their names.
type DiffPage struct {
	Changes []Change
	// Next is [DiffQuery.After] for the following part; "" for none. A page with Next may have few changes.
	Next string
}

func (q *DiffQuery) validate() error {
	if q.Limit < 0 || q.Limit > diffMax {
		return sandbox.InvalidField("limit", "must be 1 to %d", diffMax)
	}
	if q.Limit == 0 {
		q.Limit = diffMax
	}
	if err := checkDiffPath(q.Path); err != nil {
		return err
	}
	q.Path = path.Clean("/" + q.Path)
	return nil
}

func checkDiffPath(name string) error {
	switch {
	case len(name) > sandbox.SnapshotPathMax || strings.ContainsRune(name, 0):
		return sandbox.InvalidField("path", "must be at most %d bytes, none of them zero", sandbox.SnapshotPathMax)
	case name != "" && name[0] != '/':
		return sandbox.InvalidField("path", "must be absolute")
	}
	return nil
}

// Diff returns a part of the differences between the files of a running or paused sandbox and the
// root filesystem that it was made from: an image or a snapshot. It lists the writes of the sandbox:
// a file that it has written anew counts as changed even if it has the same content, and a directory
// only if its mode or owner differ. Of a removed directory, only the directory itself is returned. The
// diff has no files of /tmp, which is no part of a snapshot either. A running sandbox stands still while
// what it has written is read through, which takes about a second per gigabyte.
//
// Errors: Invalid, naming path, cursor or limit; NotFound; FileNotFound for a path that is neither in the
// sandbox nor in its image; NotRunning; Ended; Unsupported; QuotaExceeded; Unavailable; Timeout.
func (s *Service) Diff(ctx context.Context, c sandbox.Caller, ref string, q DiffQuery) (DiffPage, error) {
	if err := q.validate(); err != nil {
		return DiffPage{}, err
	}
	b, sb, err := s.sandboxOf(ctx, c, ref)
	if err != nil {
		return DiffPage{}, err
	}
	if b == nil || sb.State == sandbox.Provisioning {
		return DiffPage{}, box.StateError(&sb)
	}
	end, err := s.diffs.begin(c.Workspace)
	if err != nil {
		return DiffPage{}, err
	}
	defer end()
	if err := s.archives.Ready(ctx, b); err != nil { // before the place, which others wait for
		return DiffPage{}, err
	}
	leave, err := s.diffPlace(ctx, sb.Workspace)
	if err != nil {
		return DiffPage{}, err
	}
	defer leave() // at the end: the names take memory
	names := newLayerNames(q)
	if err := s.readNames(ctx, b, names); err != nil {
		return DiffPage{}, err
	}
	return s.compareNames(ctx, sb.ImageDigest, names)
}

// compareNames compares names with a root filesystem for at most [driver.NamesTimeout]: others wait for the place.
func (s *Service) compareNames(ctx context.Context, digest string, names *layerNames) (DiffPage, error) {
	limited, cancel := context.WithTimeout(ctx, driver.NamesTimeout)
	defer cancel()
	root, err := s.layers.Open(limited, digest)
	if err != nil {
		return DiffPage{}, err
	}
	defer root.Close()
	page, err := names.compare(limited, root)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return page, sandbox.Wrap(sandbox.Timeout, err, "the files of the sandbox could not be compared with its image within %s; ask for the changes below a path, or for fewer on a page", driver.NamesTimeout)
	}
	return page, err
}

// sandboxOf finds a sandbox if the driver can read what sandboxes have written.
func (s *Service) sandboxOf(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error) {
	if _, err := s.boxes.Snapshotter(); err != nil {
		return nil, sandbox.Sandbox{}, err
	}
	return s.sandboxes.Find(ctx, c, ref)
}

// readNames reads the names that a sandbox has written. It ends with ctx, and the reading soon after: the
// sandbox must not stand still for a caller who has gone.
func (s *Service) readNames(ctx context.Context, b *box.Box, into *layerNames) error {
	err := s.readAlone(ctx, b, into)
	if sb := b.Sandbox(); err != nil && (sb.State == sandbox.Destroying || sb.State.Ended()) {
		return box.StateError(&sb) // it ended meanwhile
	}
	return err
}

// diffPlace waits for a place for a diff, which the caller gives back by leave.
func (s *Service) diffPlace(ctx context.Context, ws sandbox.WorkspaceID) (leave func(), err error) {
	wait, stop := context.WithTimeout(ctx, diffWait)
	defer stop()
	leave, err = s.diffPlaces.Acquire(wait, ws, nil)
	switch {
	case err == nil:
		return leave, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case wait.Err() != nil:
		return nil, sandbox.Wrap(sandbox.Unavailable, err, "other sandboxes are being read; try again soon")
	}
	return nil, err
}

// readAlone waits for other work on the sandbox as long as the caller, and at most diffTurn; then it reads, and
// returns when nothing more is read.
func (s *Service) readAlone(ctx context.Context, b *box.Box, into *layerNames) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait, stop := context.WithTimeout(ctx, diffTurn)
	defer stop()
	turn, end := context.WithCancelCause(s.ctx)
	defer end(nil)
	late := sandbox.Errorf(sandbox.Unavailable, "other work on the sandbox did not end within %s; try again soon", diffTurn)
	begin := context.AfterFunc(wait, func() { end(late) })
	err := b.Exclusively(turn, box.Snapshot, func() error {
		if !begin() {
			return late
		}
		defer context.AfterFunc(b.Context(), cancel)()
		switch sb := b.Sandbox(); sb.State {
		case sandbox.Running:
			defer b.BeginSave()() // the sandbox stands still, and connections may time out
			err := s.readRunning(ctx, b.ID, into)
			if ctx.Err() == nil && err != nil && box.LooksEnded(err) {
				return b.Explain(ctx, err) // the end of its box may be noticed later
			}
			return err
		case sandbox.Paused:
			if err := s.archives.Fetch(ctx, b); err != nil {
				return err
			}
			return s.readPaused(ctx, &sb, into)
		default:
			return box.StateError(&sb)
		}
	})
	if ctx.Err() == nil && errors.Is(context.Cause(turn), late) {
		return late
	}
	return err
}

// timeoutError explains the end of the time for reading.
func timeoutError(err error) error {
	return sandbox.Wrap(sandbox.Timeout, err, "the files that the sandbox has written could not be read within %s; make a snapshot of it, and compare that with another snapshot", driver.NamesTimeout)
}

func (s *Service) readRunning(ctx context.Context, id sandbox.ID, into *layerNames) error {
	reader, err := s.boxes.Snapshotter()
	if err != nil {
		return err
	}
	from, to := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := reader.WriteNames(ctx, id, to)
		if errors.Is(err, driver.ErrOmitted) {
			s.log.Warn("the difference of a sandbox lacks some names", "sandbox", id, "error", err)
			err = nil
		}
		_ = to.CloseWithError(err) // it does not fail
		wrote <- err
	}()
	err = into.read(from)
	_ = from.CloseWithError(err) // which ends the writer, too
	werr := <-wrote
	switch {
	case werr == nil || errors.Is(werr, err):
		return err
	case sandbox.CodeOf(werr) == sandbox.Timeout:
		return timeoutError(werr)
	}
	return errors.Join(err, werr)
}

// readPaused reads the files that were saved with the memory of a paused sandbox.
func (s *Service) readPaused(ctx context.Context, sb *sandbox.Sandbox, into *layerNames) error {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return err
	}
	layer, err := saver.OpenLayer(s.saved.Path(sb.ID, sb.Saved))
	switch code := sandbox.CodeOf(err); {
	case code == sandbox.NotFound || code == sandbox.Unsupported:
		return sandbox.Wrap(sandbox.NotRunning, err, "sandbox %q is paused, and its files were not saved beside its memory; resume it", sb.Name)
	case err != nil:
		return fmt.Errorf("files of paused sandbox %s: %w", sb.ID, err)
	}
	defer layer.Close()
	ctx, cancel := context.WithTimeout(ctx, driver.NamesTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = layer.Close() })() // ends the reading
	if err = into.read(layer); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return timeoutError(err)
	}
	return err
}

// Original returns the content of a regular file of the root filesystem that a sandbox was made from,
// an image or a snapshot, for comparison with the file in the sandbox. Symbolic links are not followed.
// The caller closes it. Errors: Invalid, naming path; NotFound; FileNotFound; TooLarge for more than
// [OriginalMax] bytes; Unsupported; QuotaExceeded; Unavailable.
func (s *Service) Original(ctx context.Context, c sandbox.Caller, ref, name string) (io.ReadCloser, sandbox.SnapshotFile, error) {
	none := sandbox.SnapshotFile{}
	_, sb, err := s.sandboxOf(ctx, c, ref)
	if err != nil {
		return nil, none, err
	}
	if name == "" {
		return nil, none, sandbox.InvalidField("path", "is missing")
	}
	if err := checkDiffPath(name); err != nil {
		return nil, none, err
	}
	if sb.ImageDigest == "" {
		return nil, none, box.StateError(&sb)
	}
	end, err := s.originals.begin(c.Workspace)
	if err != nil {
		return nil, none, err
	}
	root, err := s.layers.Open(ctx, sb.ImageDigest)
	if err != nil {
		end()
		return nil, none, err
	}
	stop := func() { root.Close(); end() }
	f, content, err := root.Content(name)
	switch {
	case err != nil:
	case content == nil && f.Target != "":
		err = sandbox.InvalidField("path", "is a symbolic link to %.300q in the image, not a file", f.Target)
	case content == nil:
		err = sandbox.InvalidField("path", "is not a regular file in the image")
	case f.Size > OriginalMax:
		err = sandbox.Errorf(sandbox.TooLarge, "%.300q has %d bytes in the image, the maximum is %d", f.Path, f.Size, OriginalMax)
	}
	if err != nil {
		stop()
		return nil, none, err
	}
	return endingReader{io.NopCloser(content), stop}, f, nil
}
