package snapshot

import (
	"archive/tar"
	"cmp"
	"context"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// Limits of assemblies.
const (
	uploadMax        = 2 << 30 // bytes of the archive
	checkMax         = 4 << 30 // unpacked bytes of the archive that an upload checks
	uploadStep       = 8 << 20 // bytes between two checks of the quota
	assemblyLifetime = time.Hour
	assembliesMax    = 16 // begun and running assemblies of one workspace
	contentHashMax   = 128
)

// AssemblyRequest begins the assembly of a snapshot from an image, packages and files.
type AssemblyRequest struct {
	Request
	// Runtime is the reference of the image at the bottom.
	Runtime string
	// ContentHash identifies the whole content. If the workspace has a snapshot of the same
	// content, Begin returns that snapshot, unless Force is set.
	ContentHash string
	Force       bool
	// Dir is the directory of the files; "" is the image's working directory.
	Dir string
}

// Begun is the answer of [Assemblies.Begin]: an assembly that waits for its files, or a snapshot
// of the same content.
type Begun struct {
	// ID is the id that the snapshot will have.
	ID sandbox.SnapshotID
	// Existing is nil, or the snapshot of the same content: nothing is to be done.
	Existing *sandbox.Snapshot
}

// Contents are the contents of an assembly beside its files.
type Contents struct {
	// AptPackages are Debian packages, NpmPackages npm packages, PipPackages Python packages, to install in the image.
	AptPackages, NpmPackages, PipPackages []string
	// Env are default variables of the sandboxes made from it.
	Env map[string]string
	// Metadata, if not nil, replaces the metadata of the request.
	Metadata map[string]string
	// FilesRequired refuses an assembly without uploaded files. It is implied if there are neither
	// packages nor variables.
	FilesRequired bool
	// FilesIgnored leaves the uploaded files out: they only stand for none.
	FilesIgnored bool
	// WaitForQuota is how long the assembly may wait for capacity for its boxes.
	WaitForQuota time.Duration
}

func (c *Contents) packages() prepare.Packages {
	return prepare.Packages{APT: c.AptPackages, NPM: c.NpmPackages, PIP: c.PipPackages}
}

// Assemblies makes snapshots from an image, packages and uploaded files, in three calls: Begin,
// Upload and Finish. Assemblies, their files and their logs end with the server. It is safe for
// concurrent use.
type Assemblies struct {
	snapshots *Service
	prepare   *prepare.Service
	known     *known
	checks    *fairsem.Semaphore // of uploaded archives: a check takes processor time
}

// assembly is an assembly that was begun.
type assembly struct {
	caller  sandbox.Caller
	request AssemblyRequest
	begun   time.Time

	reserved  *quota.Reservation // for its boxes; nil if each box reserves for itself
	size      atomic.Int64       // bytes of files, and of the upload that is under way
	uploading sync.Mutex         // held by the upload that is under way

	mu     sync.Mutex
	files  *os.File    // nil until uploaded; guarded by mu
	closed bool        // it takes no more files; guarded by mu
	last   phase.Event // its phase; guarded by mu
	log    assemblyLog // guarded by mu
	ended  time.Time   // zero until it has succeeded or failed; guarded by mu
}

// report records the phase of the assembly.
func (a *assembly) report(e phase.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = e
	a.log.add(e)
}

// end records the result.
func (a *assembly) end(err error) {
	e := phase.Event{Phase: PhaseDone, Message: "sandboxes can be made from it"}
	if err != nil {
		e = phase.Event{Phase: PhaseFailed, Message: sandbox.Explain("the build failed", err)}
	}
	a.report(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = time.Now()
}

// open returns an error if the assembly takes no more files.
func (a *assembly) open() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return errAssemblyClosed()
	}
	return nil
}

func errAssemblyClosed() error {
	return sandbox.Errorf(sandbox.Conflict, "the build is being finished already, or its time is over")
}

// hasFiles reports whether files were uploaded.
func (a *assembly) hasFiles() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.files != nil || a.closed
}

func errNoArchive() error {
	return sandbox.InvalidField("archive", "no archive of files has come; upload the archive, then finish the build")
}

// close deletes the files.
func (a *assembly) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	if a.files != nil {
		_ = a.files.Close() // nothing was promised about them
		a.files = nil
	}
}

// Progress returns the phase of an assembly of the caller: before Finish, while it runs and, until
// an hour after its begin, after its end. Errors: NotFound.
func (x *Assemblies) Progress(_ context.Context, c sandbox.Caller, id sandbox.SnapshotID) (phase.Event, error) {
	a, err := x.known.get(c, id)
	if err != nil {
		return phase.Event{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, nil
}

// Begin begins an assembly. Its files must be uploaded, and Finish called, within an hour.
//
// Errors: Invalid, naming the field; QuotaExceeded; Unsupported.
func (x *Assemblies) Begin(ctx context.Context, c sandbox.Caller, req AssemblyRequest) (Begun, error) {
	s := x.snapshots
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
	if !s.work.Running() {
		return Begun{}, box.ErrClosed
	}
	if _, err := s.boxes.Snapshotter(); err != nil {
		return Begun{}, err
	}
	if req.ContentHash != "" && !req.Force {
		existing, err := s.records.SnapshotByContent(ctx, c.Workspace, req.ContentHash)
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
	id := s.newID()
	a := &assembly{caller: c, request: req, begun: time.Now()}
	a.report(phase.Event{Phase: "begun", Message: "it waits for its files and its finish"})
	if err := x.known.add(id, a); err != nil {
		return Begun{}, err
	}
	audit.FromContext(ctx).Made("snapshot", string(id), req.Name)
	return Begun{ID: id}, nil
}

// Finish makes the snapshot: it installs the packages as for a sandbox, and unpacks the files as
// the user of the image. It returns when sandboxes can be made from the snapshot; when ctx ends
// first the work continues. An assembly that fails must begin again. While it waits for the quota
// it is not running yet; it can be finished again if there is no capacity or ctx ends meanwhile,
// and after Invalid for contents or a missing archive.
//
// Errors: NotFound; Conflict during an upload; Invalid, naming the field, "archive" if files are
// missing, also for an archive that is hostile; as [Service.Create].
func (x *Assemblies) Finish(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, contents Contents) (sandbox.Snapshot, error) {
	if err := prepare.Check(contents.packages()); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := sandbox.CheckEnv(contents.Env); err != nil {
		return sandbox.Snapshot{}, err
	}
	if err := cmp.Or(sandbox.CheckMetadata("", contents.Metadata), quota.CheckWait(contents.WaitForQuota)); err != nil {
		return sandbox.Snapshot{}, err
	}
	a, err := x.run(ctx, c, id, &contents)
	if err != nil {
		return sandbox.Snapshot{}, err
	}
	release := func(err error) { a.reserved.Release(); x.known.end(id, a, err) }
	sn := a.request.snapshot(id, c)
	sn.ContentHash, sn.Env, sn.Image = a.request.ContentHash, maps.Clone(contents.Env), a.request.Runtime
	if contents.Metadata != nil {
		sn.Metadata = maps.Clone(contents.Metadata)
	}
	// A caller who leaves now does not end the assembly, which is running.
	switch before, err := x.snapshots.records.SnapshotByTag(context.WithoutCancel(ctx), c.Workspace, "", sn.Name, sn.Tag); {
	case err == nil:
		sn.Parent = before.ID
	case sandbox.CodeOf(err) != sandbox.NotFound:
		release(err)
		return sandbox.Snapshot{}, err
	}
	var base string
	return x.snapshots.produce(ctx, sn, job{
		prepare: func() (err error) {
			base, err = x.base(a, contents.packages())
			return err
		},
		write: func(into *os.File) (string, error) {
			return base, x.writeFiles(a, base, contents.FilesIgnored, into)
		},
		release: release,
	})
}

// run starts a begun assembly that has what it needs when there is capacity for its boxes, if it
// may wait for that. Until then the assembly stays begun. Errors: NotFound; Conflict; Invalid,
// naming "archive"; QuotaExceeded; as [quota.Controller.Admit].
func (x *Assemblies) run(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, contents *Contents) (*assembly, error) {
	a, err := x.known.get(c, id)
	if err != nil {
		return nil, err
	}
	needsFiles := contents.FilesRequired || contents.packages().Empty() && len(contents.Env) == 0
	if needsFiles && !a.hasFiles() { // nobody waits for a quota in vain
		return nil, errNoArchive()
	}
	reserved, err := x.snapshots.quotas.ReserveAhead(ctx, c.Workspace, contents.WaitForQuota)
	if err != nil {
		return nil, err
	}
	a, err = x.known.run(c, id)
	if err != nil {
		reserved.Release()
		return nil, err
	}
	a.reserved = reserved
	return a, nil
}

// base makes the root filesystem below the files of an assembly and returns its digest.
func (x *Assemblies) base(a *assembly, packages prepare.Packages) (string, error) {
	ctx, ws := x.snapshots.ctx, a.caller.Workspace
	img, err := x.prepare.Base(ctx, "runtime", a.request.Runtime, ws, a.report)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return "", sandbox.InvalidField("runtime", "%s", sandbox.Explain("unknown runtime", err))
	}
	if err != nil {
		return "", err
	}
	if !packages.Empty() {
		if img, _, err = x.prepare.Install(ctx, ws, &img, packages, prepare.Reserved{Build: a.reserved}, a.report); err != nil {
			return "", err
		}
	}
	return img.Digest, nil
}

// writeFiles writes the files of an assembly, unless they are ignored, as a layer for its base.
func (x *Assemblies) writeFiles(a *assembly, base string, ignored bool, into *os.File) error {
	s := x.snapshots
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.WriteTimeout)
	defer cancel()
	a.report(phase.Event{Phase: "writing", Message: "its files"})
	a.mu.Lock()
	files := a.files
	a.mu.Unlock()
	if files == nil || ignored {
		return tar.NewWriter(into).Close()
	}
	if _, err := files.Seek(0, io.SeekStart); err != nil {
		return err
	}
	got := cmp.Or(a.reserved, &quota.Reservation{})
	if a.reserved == nil {
		var err error
		if *got, err = s.quotas.Reserve(ctx, a.caller.Workspace, sandbox.Resources{}); err != nil {
			return err
		}
		defer got.Release()
	}
	return s.boxes.WriteLayer(ctx, workbox.Spec{Base: base, Resources: got.Have}, into, func(ctx context.Context, w *workbox.Box) error {
		opts := agentapi.ArchiveOptions{Format: agentapi.FormatTarGzip, KeepLinks: true}
		return w.Explain(ctx, w.Files().UnpackArchive(ctx, cmp.Or(a.request.Dir, "."), files, opts))
	})
}
