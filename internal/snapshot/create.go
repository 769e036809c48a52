package snapshot

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
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
	"golang.org/x/sys/unix"
)

// Request asks for a snapshot of a sandbox.
type Request struct {
	// Name groups snapshots; "" is a generated name. An empty Tag is latest.
	Name string
	Tag  string
	// Description, Message and Metadata mean nothing to the server.
	Description string
	Message     string
	Metadata    map[string]string
	// Public lets every workspace read it and make sandboxes from it.
	Public bool
}

// validate checks a request and fills its name and tag.
func (req *Request) validate() error {
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
	return sandbox.CheckMetadata(req.Description, req.Metadata)
}

// snapshot returns the snapshot with an id that the request asks for.
func (req *Request) snapshot(id sandbox.SnapshotID, c sandbox.Caller) sandbox.Snapshot {
	return sandbox.Snapshot{
		ID: id, Workspace: c.Workspace, Name: req.Name, Tag: req.Tag,
		Description: req.Description, Message: req.Message, Metadata: maps.Clone(req.Metadata), Public: req.Public,
		CreatedBy: c.User, CreatedAt: time.Now().UTC(),
	}
}

// Create makes a snapshot of the files of a running or paused sandbox, without memory and
// processes. A running sandbox stands still while its files are read. Create returns when the
// snapshot can be used; when ctx ends first the work continues.
//
// Errors: Invalid, naming the field; NotFound; NotRunning; Ended; Unsupported;
// QuotaExceeded; DiskFull; TooLarge; Unavailable.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, ref string, req Request) (sandbox.Snapshot, error) {
	if err := req.validate(); err != nil {
		return sandbox.Snapshot{}, err
	}
	if !s.work.Running() {
		return sandbox.Snapshot{}, box.ErrClosed
	}
	if _, err := s.boxes.Snapshotter(); err != nil {
		return sandbox.Snapshot{}, err
	}
	b, sb, err := s.sandboxes.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	if b == nil || sb.State == sandbox.Provisioning {
		return sandbox.Snapshot{}, box.StateError(&sb)
	}
	sn := req.snapshot(s.newID(), c)
	sn.Sandbox, sn.Image, sn.Parent = sb.ID, sb.Image, sb.Snapshot
	switch last, err := s.records.LastSnapshotOf(ctx, sb.ID); {
	case err == nil:
		sn.Parent = last.ID
	case sandbox.CodeOf(err) != sandbox.NotFound:
		return sandbox.Snapshot{}, err
	}
	audit.FromContext(ctx).Made("snapshot", string(sn.ID), sn.Name)
	return s.produce(ctx, sn, job{
		prepare: func() error { return s.archives.Ready(s.ctx, b) },
		write:   func(into *os.File) (string, error) { return s.writeFiles(b, into) },
		release: func(error) {},
	})
}

// job is the work of a snapshot.
type job struct {
	// prepare comes first and may take long.
	prepare func() error
	// write writes a layer into a file and returns the digest of the root filesystem below it.
	write func(into *os.File) (base string, err error)
	// release is called with the result, after the last use of what the job holds.
	release func(error)
}

// produce makes a snapshot in the background and waits for it.
func (s *Service) produce(ctx context.Context, sn sandbox.Snapshot, j job) (sandbox.Snapshot, error) {
	done := make(chan struct{})
	var out sandbox.Snapshot
	var err error
	if !s.work.Go(func() {
		defer close(done)
		defer func() { j.release(err) }()
		begin := time.Now()
		out, err = s.produceNow(sn, j)
		if s.cfg.Observe != nil {
			s.cfg.Observe(begin, err)
		}
	}) {
		j.release(box.ErrClosed)
		return sandbox.Snapshot{}, box.ErrClosed
	}
	select {
	case <-done:
		return out, err
	case <-ctx.Done():
		return sandbox.Snapshot{}, ctx.Err()
	}
}

// produceNow records the intent, does the work and records its result. A server that is killed in
// between leaves a row that Sweep of the next server deletes.
func (s *Service) produceNow(sn sandbox.Snapshot, j job) (_ sandbox.Snapshot, err error) {
	if err := s.quotas.CheckDisk(s.ctx, sn.Workspace); err != nil {
		return sandbox.Snapshot{}, err
	}
	// Preparation takes places of its own, and no place of a snapshot meanwhile.
	if err := j.prepare(); err != nil {
		return sandbox.Snapshot{}, err
	}
	done, err := s.places.Acquire(s.ctx, sn.Workspace, nil)
	if err != nil && s.ctx.Err() != nil {
		return sandbox.Snapshot{}, box.ErrClosed
	}
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer done()
	// Any number may have waited, and those before this have taken some of the disk.
	if err := s.saved.CheckFree(s.cfg.MinFreeDisk); err != nil {
		return sandbox.Snapshot{}, err
	}
	s.making.add(sn.ID)
	defer s.making.remove(sn.ID)
	if err := s.quotas.Record(s.ctx, s.quotas.Admission(sn.Workspace), sn.Workspace, func(a quota.Admission) error {
		return s.drafts.BeginSnapshot(s.ctx, sn, s.cfg.MaxSnapshots, s.cfg.MaxBytes, a)
	}); err != nil {
		return sandbox.Snapshot{}, err
	}
	defer func() {
		if err == nil {
			return
		}
		if errors.Is(err, unix.ENOSPC) {
			err = sandbox.Wrap(sandbox.DiskFull, err, "the host's disk has no space for the snapshot")
		}
		if aerr := s.drafts.AbandonSnapshot(s.ctx, sn.ID, sn.Digest); aerr != nil {
			s.log.Error("snapshot not forgotten, trying again soon", "snapshot", sn.ID, "error", aerr)
		}
	}()
	file, err := spool.Open(s.cfg.SpoolDir)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	defer func() { _ = file.Close() }()
	base, err := j.write(file)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	return s.commit(&sn, base, file)
}

// commit lays the layer in a file on a root filesystem and records the result. Until then Collect spares the
// result because it was just made. The digest of sn is the digest of the result, also if the record is refused.
func (s *Service) commit(sn *sandbox.Snapshot, base string, file *os.File) (sandbox.Snapshot, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return sandbox.Snapshot{}, err
	}
	img, err := s.layers.Stack(s.ctx, sn.Workspace, base, file)
	if err != nil {
		return sandbox.Snapshot{}, fmt.Errorf("snapshot %s: %w", sn.ID, err)
	}
	sn.Digest = img.Digest
	now := time.Now().UTC()
	result := sandbox.SnapshotResult{
		BaseDigest: base, Digest: img.Digest, SizeBytes: img.SizeBytes, LayerBytes: img.LayerBytes, FileCount: img.FileCount, Below: img.Below, CreatedAt: now,
	}
	ev := sandbox.Event{
		Sandbox: sn.Sandbox, Time: now, Type: sandbox.EventSnapshotCreated, Message: sandbox.OneLine("its files were saved as snapshot " + sn.Name + ":" + sn.Tag),
		Data: map[string]string{
			"snapshot": string(sn.ID), "name": sn.Name, "tag": sn.Tag, "size_bytes": strconv.FormatInt(result.SizeBytes, 10),
			"took_ms": strconv.FormatInt(now.Sub(sn.CreatedAt).Milliseconds(), 10),
		},
	}
	var made sandbox.Snapshot
	err = s.quotas.Record(s.ctx, s.quotas.Admission(sn.Workspace), sn.Workspace, func(a quota.Admission) (err error) {
		made, err = s.drafts.FinishSnapshot(s.ctx, sn.ID, result, s.cfg.MaxBytes, a, ev)
		return err
	})
	return made, err
}
