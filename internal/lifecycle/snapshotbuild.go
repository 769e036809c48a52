package lifecycle

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/spool"
	"github.com/modbox/modbox/internal/workbox"
)

// Limits of builds.
const (
	buildUploadMax   = 2 << 30 // bytes of the archive
	buildUploadStep  = 8 << 20 // bytes after which it is looked whether there is room for more
	buildLifetime    = time.Hour
	buildsMax        = 16 // begun builds of one workspace
	contentHashMax   = 128
	buildFilesFormat = agentapi.FormatTarGzip
)

// BuildRequest begins the build of a snapshot out of files and packages.
type BuildRequest struct {
	SnapshotRequest
	// Runtime is the reference of the image to build on.
	Runtime string
	// ContentHash identifies everything that the build is made of. When the workspace
	// has a snapshot of the same, that one is answered, unless Force.
	ContentHash string
	Force       bool
	// Dir is where the files go; "" is the image's working directory.
	Dir string
}

// Begun is a build that waits for its files, or the snapshot that makes it needless.
type Begun struct {
	// ID is the id that the snapshot will have.
	ID sandbox.SnapshotID
	// Key is a secret that allows to upload the files and nothing else.
	Key string
	// Existing, when not nil, has the same content: nothing is to be done.
	Existing *sandbox.Snapshot
}

// BuildContents is what a build is made of beside its files.
type BuildContents struct {
	// AptPackages are Debian packages, NpmPackages those of npm, as in [CreateRequest].
	AptPackages, NpmPackages []string
	// Env are default variables of the sandboxes made from it.
	Env map[string]string
	// Metadata, when not nil, replaces that of the request.
	Metadata map[string]string
	// WaitForQuota is as in [CreateRequest], for the boxes of the build.
	WaitForQuota time.Duration
}

// build is one that was begun. It is lost with the server, and so are its files.
type build struct {
	caller  sandbox.Caller
	request BuildRequest
	key     string
	begun   time.Time

	room      *quota.Reservation // what its boxes have; nil when each takes its own at its turn
	size      atomic.Int64       // bytes of files, and of the upload that is under way
	uploading sync.Mutex         // held by the upload that is under way

	mu    sync.Mutex
	files *os.File           // nil until uploaded; guarded by mu
	over  bool               // it takes no files any more; guarded by mu
	last  sandbox.ImageEvent // what it is at; guarded by mu
	log   buildLog           // guarded by mu
	ended time.Time          // guarded by mu; zero until it is done or has failed
}

// report says what the build is at.
func (b *build) report(e sandbox.ImageEvent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = e
	b.log.add(e)
}

// end says what came of it.
func (b *build) end(err error) {
	e := sandbox.ImageEvent{Phase: sandbox.BuildDone, Message: "sandboxes can be made from it"}
	if err != nil {
		e = sandbox.ImageEvent{Phase: sandbox.BuildFailed, Message: fail("", err, "the build failed").cause.Message}
	}
	b.report(e)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = time.Now()
}

// open returns an error when the build takes no files any more.
func (b *build) open() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return overError()
	}
	return nil
}

func overError() error {
	return sandbox.Errorf(sandbox.Conflict, "the build is being finished already, or its time is over")
}

// close forgets the files.
func (b *build) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.files != nil {
		_ = b.files.Close() // nothing was promised about them
		b.files = nil
	}
}

// BuildProgress says what a build of the caller is at: which phase, and what it is
// about. It waits for its finish, is being made or, until an hour after it was
// begun, is over. Errors: NotFound.
func (s *Service) BuildProgress(_ context.Context, c sandbox.Caller, id sandbox.SnapshotID) (sandbox.ImageEvent, error) {
	b, err := s.begun.known(c, id)
	if err != nil {
		return sandbox.ImageEvent{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, nil
}

// BeginBuild begins a build, which has an hour for its files to be uploaded, by
// [Service.UploadBuild], and for [Service.FinishBuild]. A server that restarts
// forgets it.
//
// Errors: Invalid, naming the field; QuotaExceeded; Unsupported.
func (s *Service) BeginBuild(ctx context.Context, c sandbox.Caller, req BuildRequest) (Begun, error) {
	if err := req.validate(); err != nil {
		return Begun{}, err
	}
	if req.Runtime == "" {
		return Begun{}, sandbox.InvalidField("runtime", "must name the image to build on")
	}
	if err := sandbox.CheckText("runtime", req.Runtime, 1, sandbox.ImageRefMax); err != nil {
		return Begun{}, err
	}
	if len(req.ContentHash) > contentHashMax {
		return Begun{}, sandbox.InvalidField("content_hash", "must be at most %d characters", contentHashMax)
	}
	if err := s.ready(); err != nil {
		return Begun{}, err
	}
	if _, err := s.workboxes.Snapshotter(); err != nil {
		return Begun{}, err
	}
	if req.ContentHash != "" && !req.Force {
		existing, err := s.store.SnapshotByContent(ctx, c.Workspace, req.ContentHash)
		if err == nil {
			return Begun{Existing: &existing}, nil
		}
		if sandbox.CodeOf(err) != sandbox.NotFound {
			return Begun{}, err
		}
	}
	if err := s.quotas.CheckDisk(ctx, c.Workspace); err != nil {
		return Begun{}, err
	}
	id, key := sandbox.NewSnapshotID(), rand.Text()
	b := &build{caller: c, request: req, key: key, begun: time.Now()}
	b.report(sandbox.ImageEvent{Phase: "begun", Message: "it waits for its files and its finish"})
	if err := s.begun.add(id, b); err != nil {
		return Begun{}, err
	}
	audit.FromContext(ctx).Made("snapshot", string(id), req.Name)
	return Begun{ID: id, Key: key}, nil
}

// UploadBuild takes the files of a build, a tar.gz whose names are relative to
// where they go, in place of those uploaded before. They are looked at when the
// build is finished. Errors: NotFound; Conflict while another upload is under way; TooLarge; those of r.
func (s *Service) UploadBuild(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, r io.Reader) error {
	b, err := s.begun.find(func(at sandbox.SnapshotID, b *build) bool { return at == id && b.caller.Workspace == c.Workspace })
	if err != nil {
		return err
	}
	return s.upload(ctx, b, r)
}

// UploadBuildByKey is UploadBuild for whoever has the build's key.
func (s *Service) UploadBuildByKey(ctx context.Context, key string, r io.Reader) error {
	b, err := s.begun.find(func(_ sandbox.SnapshotID, b *build) bool { return b.key == key })
	if err != nil {
		return err
	}
	return s.upload(ctx, b, r)
}

func (s *Service) upload(ctx context.Context, b *build, r io.Reader) error {
	if !b.uploading.TryLock() { // each may take as much of the disk as all files of a build may
		return sandbox.Errorf(sandbox.Conflict, "the files of this build are being uploaded already")
	}
	defer b.uploading.Unlock()
	file, err := spool.Open(s.cfg.SpoolDir)
	if err != nil {
		return err
	}
	n, err := s.receive(ctx, b, file, r)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return errors.Join(overError(), file.Close())
	}
	if b.files != nil {
		_ = b.files.Close() // replaced
	}
	b.files = file
	b.size.Store(n)
	return nil
}

// receive copies the files of a build into the spool as far as there is room for
// them, and returns how many bytes they are. Those that it replaces stay until then.
func (s *Service) receive(ctx context.Context, b *build, into *os.File, r io.Reader) (n int64, err error) {
	before := b.size.Load()
	defer func() {
		if err != nil {
			b.size.Store(before)
		}
	}()
	for {
		// What comes later would count for nobody.
		if err := b.open(); err != nil {
			return n, err
		}
		if err := s.quotas.CheckDiskReserved(ctx, b.caller.Workspace, 0); err != nil {
			return n, err
		}
		part, err := io.CopyN(into, r, buildUploadStep)
		n += part
		b.size.Store(before + n)
		switch {
		case n > buildUploadMax:
			return n, sandbox.Errorf(sandbox.TooLarge, "the files of a build must be at most %s", sandbox.ShowBytes(buildUploadMax))
		case errors.Is(err, io.EOF):
			return n, ctx.Err()
		case err != nil:
			return n, err
		}
	}
}

// FinishBuild makes the snapshot of a build: its dependencies and packages are
// installed as for a sandbox, its files unpacked as the image's user, and both
// kept. It returns when sandboxes can be made from it; when ctx ends first the
// work goes on. A build that fails must be begun again; while it waits for the quota it is
// only begun, also when ctx ends then or there is no room.
//
// Errors: NotFound; Invalid, naming the field, also for an archive that is
// hostile; as [Service.CreateSnapshot].
func (s *Service) FinishBuild(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, contents BuildContents) (sandbox.Snapshot, error) {
	if err := prepare.CheckNames(contents.AptPackages, contents.NpmPackages); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := sandbox.CheckEnv(contents.Env); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := cmp.Or(checkMetadata("", contents.Metadata), checkWait(contents.WaitForQuota)); err != nil {
		return sandbox.Snapshot{}, err
	}
	b, err := s.takeBuild(ctx, c, id, contents.WaitForQuota)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	release := func(err error) { b.room.Release(); s.begun.release(id, b, err) }
	sn := b.request.snapshot(c)
	sn.ID, sn.ContentHash, sn.Env, sn.Image = id, b.request.ContentHash, maps.Clone(contents.Env), b.request.Runtime
	if contents.Metadata != nil {
		sn.Metadata = maps.Clone(contents.Metadata)
	}
	switch before, err := s.store.SnapshotByTag(ctx, c.Workspace, "", sn.Name, sn.Tag); {
	case err == nil:
		sn.Parent = before.ID
	case sandbox.CodeOf(err) != sandbox.NotFound:
		release(err)
		return sandbox.Snapshot{}, err
	}
	var base string
	makeBase := func() (err error) {
		base, err = s.buildBase(b, contents)
		return err
	}
	return s.grow(ctx, sn, makeBase, func(into *os.File) (string, error) { return base, s.runBuild(b, base, into) }, release)
}

// buildBase has made what the files of a build are laid on and returns its digest.
func (s *Service) buildBase(b *build, contents BuildContents) (string, error) {
	img, _, err := s.prepare.Ensure(s.ctx, b.request.Runtime, prepare.Puller(b.caller.Workspace), b.report)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return "", sandbox.InvalidField("runtime", "%s", fail("", err, "unknown runtime").cause.Message)
	}
	if err != nil {
		return "", err
	}
	if err := s.checkEnabled(s.ctx, "runtime", &img); err != nil {
		return "", err
	}
	if d := (prepare.Packages{APT: contents.AptPackages, NPM: contents.NpmPackages}); !d.Empty() {
		if img, _, err = s.prepare.Install(s.ctx, b.caller.Workspace, &img, d, prepare.Reserved{Build: b.room}, b.report); err != nil {
			return "", err
		}
	}
	return img.Digest, nil
}

// runBuild writes the files of a build as a layer for its base.
func (s *Service) runBuild(b *build, base string, into *os.File) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.ImageTimeout)
	defer cancel()
	b.report(sandbox.ImageEvent{Phase: "writing", Message: "its files"})
	b.mu.Lock()
	files := b.files
	b.mu.Unlock()
	if files == nil {
		return tar.NewWriter(into).Close()
	}
	if _, err := files.Seek(0, io.SeekStart); err != nil {
		return err
	}
	got := cmp.Or(b.room, &quota.Reservation{})
	if b.room == nil {
		var err error
		if *got, err = s.quotas.Reserve(ctx, b.caller.Workspace, sandbox.Resources{}); err != nil {
			return err
		}
		defer got.Release()
	}
	return s.workboxes.WriteLayer(ctx, workbox.Spec{Base: base, Resources: got.Have}, into, func(ctx context.Context, w *workbox.Box) error {
		opts := agentapi.ArchiveOptions{Format: buildFilesFormat, KeepLinks: true}
		return w.Explain(ctx, w.Files().UnpackArchive(ctx, cmp.Or(b.request.Dir, "."), files, opts))
	})
}
