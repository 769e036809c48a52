package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
	"golang.org/x/sys/unix"
)

// SnapshotStore records snapshots; it is a part of [Store].
type SnapshotStore interface {
	// BeginSnapshot records that a snapshot is being made. Errors: QuotaExceeded when the
	// workspace has most snapshots, they take maxBytes, or its quota is used up.
	BeginSnapshot(ctx context.Context, sn sandbox.Snapshot, most int, maxBytes int64, a sandbox.Admission) error
	// FinishSnapshot makes a begun snapshot usable, gives it its tag and appends ev when its
	// sandbox is known. Errors: NotFound; QuotaExceeded when it does not fit the quota.
	FinishSnapshot(ctx context.Context, id sandbox.SnapshotID, g sandbox.Grown, a sandbox.Admission, ev sandbox.Event) (sandbox.Snapshot, error)
	// AbandonSnapshot deletes a begun snapshot; idempotent.
	AbandonSnapshot(ctx context.Context, id sandbox.SnapshotID) error
	// SnapshotsBegun returns the begun snapshots.
	SnapshotsBegun(ctx context.Context) ([]sandbox.SnapshotID, error)

	// Snapshot returns a snapshot of any workspace, deleted ones too. Errors: NotFound.
	Snapshot(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error)
	// SnapshotByTag returns the snapshot of a tag in a workspace, which slug names if it is
	// another one. Errors: NotFound.
	SnapshotByTag(ctx context.Context, ws sandbox.WorkspaceID, slug, name, tag string) (sandbox.Snapshot, error)
	// SnapshotByContent returns the snapshot of a workspace with a content hash. Errors: NotFound.
	SnapshotByContent(ctx context.Context, ws sandbox.WorkspaceID, hash string) (sandbox.Snapshot, error)
	// LastSnapshotOf returns the newest snapshot of a sandbox, deleted ones too. Errors: NotFound.
	LastSnapshotOf(ctx context.Context, id sandbox.ID) (sandbox.Snapshot, error)
	// Snapshots lists the snapshots of a workspace, with "" the public snapshots of all. Errors: Invalid.
	Snapshots(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error)
	// Lineage returns a snapshot and its ancestors, the newest first, deleted ones too.
	Lineage(ctx context.Context, id sandbox.SnapshotID, limit int) ([]sandbox.Snapshot, error)
	// TagSnapshot gives a snapshot a tag or, with "", removes its tag, and appends ev when its
	// sandbox is known. Errors: NotFound.
	TagSnapshot(ctx context.Context, id sandbox.SnapshotID, tag string, ev sandbox.Event) (sandbox.Snapshot, error)
	// DeleteSnapshot marks a snapshot as deleted at the time of ev, and appends ev when its
	// sandbox is known; idempotent.
	DeleteSnapshot(ctx context.Context, id sandbox.SnapshotID, ev sandbox.Event) error
	// DigestsInUse returns the root filesystems that live sandboxes and snapshots need.
	DigestsInUse(ctx context.Context) ([]string, error)
}

// Layers makes root filesystems out of others.
type Layers interface {
	prepare.Layers
	// Commit lays an uncompressed OCI layer, which is hostile, on the root filesystem
	// of a digest and returns the result, which the Images of the service
	// resolve by its digest from then on. The same inputs make the same result. Errors:
	// NotFound for base; Invalid; TooLarge.
	Commit(ctx context.Context, base string, layer io.Reader) (prepare.Layered, error)
	// Collect removes the root filesystems that nothing names and that are not among
	// the digests of inUse, but nothing that was just made, and returns the bytes freed.
	Collect(ctx context.Context, inUse func(context.Context) ([]string, error)) (freed int64, err error)
	// Files returns a part of the names in a root filesystem. Errors: NotFound;
	// Invalid, naming path or after.
	Files(ctx context.Context, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error)
	// Archive packs a directory or file of a root filesystem while it is read, as tar
	// or tar.gz: names are relative to the directory, a file is alone; owners, modes
	// and links are kept; devices, pipes and sockets left out. Closing it, and the end
	// of ctx, end the work. Errors: NotFound; Invalid, naming path.
	Archive(ctx context.Context, digest, path string, compress bool) (io.ReadCloser, error)
}

// SnapshotRequest asks for a snapshot of a sandbox.
type SnapshotRequest struct {
	// Name groups snapshots; "" has one made up. Tag is latest when empty.
	Name string
	Tag  string
	// Description, Message and Metadata are kept and shown.
	Description string
	Message     string
	Metadata    map[string]string
	// Public lets every workspace read it and make sandboxes from it.
	Public bool
}

// validate checks a request and fills its name and tag.
func (req *SnapshotRequest) validate() error {
	if req.Name == "" {
		id := sandbox.NewID()
		req.Name = "snapshot-" + string(id[len(id)-12:])
	}
	req.Tag = cmp.Or(req.Tag, sandbox.DefaultTag)
	if err := sandbox.CheckSnapshotName(req.Name); err != nil {
		return err
	}
	if err := sandbox.CheckSnapshotTag(req.Tag); err != nil {
		return err
	}
	if len(req.Message) > sandbox.DescriptionMax {
		return sandbox.InvalidField("message", "must be at most %d bytes", sandbox.DescriptionMax)
	}
	return checkMetadata(req.Description, req.Metadata)
}

// CreateSnapshot saves the files of a running or paused sandbox, without memory
// and processes, as something that sandboxes can be made from. A running one
// stands still for the moment in which its files are read. It returns when the
// snapshot can be used; when ctx ends first the work goes on.
//
// Errors: Invalid, naming the field; NotFound; NotRunning; Ended; Unsupported;
// QuotaExceeded; DiskFull; TooLarge; Unavailable.
func (s *Service) CreateSnapshot(ctx context.Context, c sandbox.Caller, ref string, req SnapshotRequest) (sandbox.Snapshot, error) {
	if err := req.validate(); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := s.ready(); err != nil {
		return sandbox.Snapshot{}, err
	}
	if _, err := s.workboxes.Snapshotter(); err != nil {
		return sandbox.Snapshot{}, err
	}
	b, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	if b == nil || sb.State == sandbox.Provisioning {
		return sandbox.Snapshot{}, box.StateError(&sb)
	}
	sn := req.snapshot(c)
	sn.Sandbox, sn.Image, sn.Parent = sb.ID, sb.Image, sb.Snapshot
	switch last, err := s.store.LastSnapshotOf(ctx, sb.ID); {
	case err == nil:
		sn.Parent = last.ID
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return sandbox.Snapshot{}, err
	}
	audit.FromContext(ctx).Made("snapshot", string(sn.ID), sn.Name)
	return s.grow(ctx, sn, func() error { return nil }, func(into *os.File) (string, error) { return s.readLayer(b, into) }, func(error) {})
}

// snapshot is what a request says about one.
func (req *SnapshotRequest) snapshot(c sandbox.Caller) sandbox.Snapshot {
	return sandbox.Snapshot{
		ID: sandbox.NewSnapshotID(), Workspace: c.Workspace, Name: req.Name, Tag: req.Tag,
		Description: req.Description, Message: req.Message, Metadata: maps.Clone(req.Metadata), Public: req.Public,
		CreatedBy: c.User, CreatedAt: time.Now().UTC(),
	}
}

// grow makes a snapshot in the background and waits for it. prepare comes first
// and may take long; layer writes what is laid on a root filesystem into a file and
// returns that one's digest; release is called with what came of it, when nothing
// of it is needed any more.
func (s *Service) grow(ctx context.Context, sn sandbox.Snapshot, prepare func() error, layer func(*os.File) (base string, err error), release func(error)) (sandbox.Snapshot, error) {
	done := make(chan struct{})
	var out sandbox.Snapshot
	var err error
	if !s.work.Go(func() {
		defer close(done)
		defer func() { release(err) }()
		begin := time.Now()
		out, err = s.growNow(sn, prepare, layer)
		s.metrics.op(box.Snapshot, begin, err)
	}) {
		release(box.ErrClosed)
		return sandbox.Snapshot{}, box.ErrClosed
	}
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return sandbox.Snapshot{}, ctx.Err()
	}
}

// growNow records the intent, does the work and records its result. A server
// that dies in between leaves a row that the next one forgets.
func (s *Service) growNow(sn sandbox.Snapshot, prepare func() error, layer func(*os.File) (base string, err error)) (_ sandbox.Snapshot, err error) {
	if err := s.quotas.CheckDisk(s.ctx, sn.Workspace); err != nil {
		return sandbox.Snapshot{}, err
	}
	// What is prepared has places of its own: none of these is held meanwhile.
	if err := prepare(); err != nil {
		return sandbox.Snapshot{}, err
	}
	done, err := s.snapshots.places.Acquire(s.ctx, sn.Workspace, nil)
	if err != nil && s.ctx.Err() != nil {
		return sandbox.Snapshot{}, box.ErrClosed
	}
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer done()
	// Only now is it known what those before it take: any number may have waited.
	if err := s.saved.Enough(s.cfg.MinFreeDisk); err != nil {
		return sandbox.Snapshot{}, err
	}
	s.snapshots.making.add(sn.ID)
	defer s.snapshots.making.remove(sn.ID)
	if err := s.quotas.Record(s.ctx, s.quotas.Admission(sn.Workspace), sn.Workspace, func(a sandbox.Admission) error {
		return s.store.BeginSnapshot(s.ctx, sn, s.cfg.MaxSnapshots, s.cfg.MaxSnapshotBytes, a)
	}); err != nil {
		return sandbox.Snapshot{}, err
	}
	defer func() {
		if err == nil {
			return
		}
		if errors.Is(err, unix.ENOSPC) {
			err = sandbox.Wrap(sandbox.DiskFull, err, "the host's disk has no room for the snapshot")
		}
		if aerr := s.store.AbandonSnapshot(s.ctx, sn.ID); aerr != nil {
			s.log.Error("snapshot not forgotten, trying again soon", "snapshot", sn.ID, "error", aerr)
		}
	}()
	file, err := spool.Open(s.cfg.SpoolDir)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer func() { _ = file.Close() }()
	base, err := layer(file)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	return s.commit(&sn, base, file)
}

// commit lays the layer in a file on base and records the result. What was just
// made is not taken for garbage until then.
func (s *Service) commit(sn *sandbox.Snapshot, base string, file *os.File) (sandbox.Snapshot, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return sandbox.Snapshot{}, err
	}
	img, err := s.layers.Commit(s.ctx, base, file)
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("snapshot %s: %w", sn.ID, err)
	}
	now := time.Now().UTC()
	g := sandbox.Grown{
		BaseDigest: base, Digest: img.Digest, SizeBytes: img.SizeBytes, LayerBytes: img.LayerBytes, FileCount: img.FileCount, CreatedAt: now,
	}
	ev := sandbox.Event{
		Sandbox: sn.Sandbox, Time: now, Type: sandbox.EventSnapshotCreated, Message: sandbox.OneLine("its files were saved as snapshot " + sn.Name + ":" + sn.Tag),
		Data: map[string]string{
			"snapshot": string(sn.ID), "name": sn.Name, "tag": sn.Tag, "size_bytes": strconv.FormatInt(g.SizeBytes, 10),
			"took_ms": milliseconds(now.Sub(sn.CreatedAt)),
		},
	}
	var made sandbox.Snapshot
	err = s.quotas.Record(s.ctx, s.quotas.Admission(sn.Workspace), sn.Workspace, func(a sandbox.Admission) (err error) {
		made, err = s.store.FinishSnapshot(s.ctx, sn.ID, g, a, ev)
		return err
	})
	return made, err
}

// readLayer writes what a sandbox has written into a file and returns the
// digest of the root filesystem below.
func (s *Service) readLayer(b *entry, into *os.File) (base string, err error) {
	reader, err := s.workboxes.Snapshotter()
	if err != nil {
		return "", err
	}
	err = b.Exclusively(s.ctx, box.Snapshot, func() error {
		sb := b.Sandbox()
		base = sb.ImageDigest
		ctx, cancel := context.WithTimeout(b.Context(), saveTimeout)
		defer cancel()
		switch sb.State {
		case sandbox.Running:
			defer b.BeginSave()() // the sandbox stands still; connections time out when that takes long
			return reader.WriteLayer(ctx, b.ID, into)
		case sandbox.Paused:
			return s.readPaused(ctx, reader, &sb, into)
		default:
			return box.StateError(&sb)
		}
	})
	return base, err
}

// readPaused is readLayer for a paused sandbox. Where the files were not saved
// beside the memory, what was saved is brought to life under another id, without
// network and unknown to anybody, and thrown away.
func (s *Service) readPaused(ctx context.Context, reader driver.Snapshotter, sb *sandbox.Sandbox, into io.Writer) error {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return err
	}
	path := s.saved.Path(sb.ID, sb.Saved)
	layer, err := saver.OpenLayer(path)
	if err == nil {
		_, err = io.Copy(into, layer)
		return errors.Join(err, layer.Close())
	}
	if code := sandbox.CodeOf(err); code != sandbox.NotFound && code != sandbox.Unsupported {
		return fmt.Errorf("files of paused sandbox %s: %w", sb.ID, err)
	}
	if err := saver.CanRestore(path); err != nil {
		return sandbox.Wrap(sandbox.Unsupported, err, "%s", sandbox.Explain("what was saved cannot be read on this host", err))
	}
	_, rootfs, err := s.images.Resolve(ctx, sb.ImageDigest)
	if err != nil {
		return fmt.Errorf("image of sandbox %s: %w", sb.ID, err)
	}
	hidden := s.newBox(sandbox.NewID())
	s.boxes.reserve(hidden) // so that the sweep does not take it for an orphan
	defer s.boxes.remove(hidden)
	defer hidden.Cancel()
	spec := s.spec(sb, rootfs)
	spec.ID = hidden.ID
	if _, err := saver.Restore(ctx, spec, path); err != nil {
		return fmt.Errorf("restore sandbox %s for a snapshot: %w", sb.ID, err)
	}
	err = reader.WriteLayer(ctx, hidden.ID, into)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
	defer cancel()
	if derr := s.driver.Destroy(end, hidden.ID); derr != nil {
		s.log.Error("box of a snapshot not removed, trying again soon", "box", hidden.ID, "error", derr) // the sweep does
	}
	return err
}
