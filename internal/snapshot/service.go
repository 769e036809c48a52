// Package snapshot makes and keeps snapshots: root filesystems under a name and a tag, from which
// sandboxes start. A snapshot is taken of the files of a sandbox, or assembled from an image,
// packages and uploaded files.
//
// A row is written before the work begins and says that the snapshot is not finished; Sweep
// deletes the rows that a killed server left. Deleted snapshots stay in the lineage of others.
// Sweep removes the root filesystems that neither sandboxes nor snapshots need.
package snapshot

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// Records records finished snapshots. Its methods are safe for concurrent use, and a write is
// done as a whole or not at all.
type Records interface {
	// Snapshot returns a snapshot of any workspace, also a deleted one. Errors: NotFound.
	Snapshot(ctx context.Context, id sandbox.SnapshotID) (sandbox.Snapshot, error)
	// SnapshotByTag returns the snapshot of a tag in a workspace, which slug names if it is
	// another workspace. Errors: NotFound.
	SnapshotByTag(ctx context.Context, ws sandbox.WorkspaceID, slug, name, tag string) (sandbox.Snapshot, error)
	// SnapshotByContent returns the snapshot of a workspace with a content hash. Errors: NotFound.
	SnapshotByContent(ctx context.Context, ws sandbox.WorkspaceID, hash string) (sandbox.Snapshot, error)
	// LastSnapshotOf returns the newest snapshot of a sandbox, also a deleted one. Errors: NotFound.
	LastSnapshotOf(ctx context.Context, id sandbox.ID) (sandbox.Snapshot, error)
	// Snapshots lists the snapshots of a workspace, with "" the public snapshots of all. Errors: Invalid.
	Snapshots(ctx context.Context, ws sandbox.WorkspaceID, f sandbox.SnapshotFilter) (sandbox.SnapshotPage, error)
	// Lineage returns a snapshot and its ancestors, the newest first, with deleted snapshots.
	Lineage(ctx context.Context, id sandbox.SnapshotID, limit int) ([]sandbox.Snapshot, error)
	// TagSnapshot gives a snapshot a tag or, with "", removes its tag, and appends ev when its
	// sandbox is known. Errors: NotFound.
	TagSnapshot(ctx context.Context, id sandbox.SnapshotID, tag string, ev sandbox.Event) (sandbox.Snapshot, error)
	// DeleteSnapshot marks a snapshot as deleted at the time of ev, and appends ev when its
	// sandbox is known; idempotent.
	DeleteSnapshot(ctx context.Context, id sandbox.SnapshotID, ev sandbox.Event) error
}

// Drafts records snapshots that are being made, as [Records] does, and lists the root
// filesystems that must stay.
type Drafts interface {
	// BeginSnapshot records that a snapshot is being made. Errors: QuotaExceeded when the
	// workspace has most snapshots, they take maxBytes, or its quota is used up.
	BeginSnapshot(ctx context.Context, sn sandbox.Snapshot, most int, maxBytes int64, a quota.Admission) error
	// FinishSnapshot makes a begun snapshot usable, gives it its tag and appends ev when its
	// sandbox is known. Errors: NotFound; QuotaExceeded when the snapshots of the workspace would take more than
	// maxBytes, or it does not fit the quota.
	FinishSnapshot(ctx context.Context, id sandbox.SnapshotID, r sandbox.SnapshotResult, maxBytes int64, a quota.Admission, ev sandbox.Event) (sandbox.Snapshot, error)
	// AbandonSnapshot deletes a begun snapshot, and releases its root filesystem, "" for none; idempotent.
	AbandonSnapshot(ctx context.Context, id sandbox.SnapshotID, digest string) error
	// SnapshotsBegun returns the begun snapshots.
	SnapshotsBegun(ctx context.Context) ([]sandbox.SnapshotID, error)
	// DigestsInUse returns the root filesystems that live sandboxes and snapshots need.
	DigestsInUse(ctx context.Context) ([]string, error)
}

// Layers makes, reads and removes root filesystems.
type Layers interface {
	// Commit lays an uncompressed OCI layer, which is hostile, on the root filesystem of a
	// digest. [Images] resolves the result by its digest from then on. The same inputs make the
	// same result. Errors: NotFound for base; Invalid; TooLarge.
	Commit(ctx context.Context, base string, layer io.Reader) (prepare.Layered, error)
	// Stack is Commit for a snapshot of a workspace, whose root filesystem needs the base and has no copy of it.
	Stack(ctx context.Context, ws sandbox.WorkspaceID, base string, layer io.Reader) (prepare.Layered, error)
	// Collect removes the root filesystems that have no name and are not among the digests of
	// inUse, except those just made, and returns the bytes freed.
	Collect(ctx context.Context, inUse func(context.Context) ([]string, error)) (freed int64, err error)
	// Open opens a root filesystem, which the caller closes. Errors: NotFound.
	Open(ctx context.Context, digest string) (Rootfs, error)
	// Files returns a part of the names in a root filesystem. Errors: NotFound; FileNotFound;
	// Invalid, naming path or after.
	Files(ctx context.Context, digest string, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error)
	// Archive packs a directory or file of a root filesystem while it is read, as tar or tar.gz.
	// Names are relative to the directory; a file is the only entry. Owners, modes and links are
	// in the archive; devices, pipes and sockets are not. Closing it, and the end of ctx, end the
	// work. Errors: NotFound; FileNotFound; Invalid, naming path.
	Archive(ctx context.Context, digest, path string, compress bool) (io.ReadCloser, error)
}

// Rootfs is an open root filesystem.
type Rootfs interface {
	// Stat describes the file with an absolute path, without following symbolic links. Errors: Invalid,
	// naming path; FileNotFound.
	Stat(name string) (sandbox.SnapshotFile, error)
	// Content describes a file as Stat does, and returns the content of a regular file, nil for others.
	Content(name string) (sandbox.SnapshotFile, io.Reader, error)
	// Files returns a part of the names, as [Layers.Files].
	Files(ctx context.Context, q sandbox.SnapshotFileQuery) (sandbox.SnapshotFilePage, error)
	// Close closes it.
	Close()
}

// Images finds root filesystems.
type Images interface {
	// Resolve returns the image of a digest and the path of its root filesystem. Errors: NotFound.
	Resolve(ctx context.Context, digest string) (spec.Image, string, error)
}

// Sandboxes finds sandboxes. lifecycle.Service implements it.
type Sandboxes interface {
	// Find returns the sandbox that ref, an id or a name, means to the caller, and its box
	// unless it has ended. Errors: NotFound.
	Find(ctx context.Context, c sandbox.Caller, ref string) (*box.Box, sandbox.Sandbox, error)
}

// Config are the settings of snapshots.
type Config struct {
	// MaxSnapshots is how many snapshots a workspace may have, MaxBytes how much they may take.
	MaxSnapshots int
	MaxBytes     int64
	// MinFreeDisk is how many bytes must be free on the disk for a new snapshot.
	MinFreeDisk int64
	// WriteTimeout bounds the unpacking of the files of an assembly.
	WriteTimeout time.Duration
	// SpoolDir is the directory of files under way; "" is the system's.
	SpoolDir string
	// Observe, if set, is called with the begin and the result of each snapshot that was made.
	Observe func(begin time.Time, err error)
}

// Deps are the parts that the service uses. It does not close them.
type Deps struct {
	Records   Records
	Drafts    Drafts
	Sandboxes Sandboxes
	Images    Images
	// Layers makes the root filesystems; without it there are no snapshots.
	Layers Layers
	Saved  *checkpoint.Store
	Boxes  *workbox.Maker
	// Archives fetches the states of archived sandboxes.
	Archives *archiver.Service
	Prepare  *prepare.Service
	Quotas   *quota.Controller
	Work     *background.Group
	// Owner has the shards of the ids of snapshots; nil for all.
	Owner  *sandbox.Ownership
	Logger *slog.Logger
}

// Service makes, finds, reads and deletes snapshots. It is safe for concurrent use. A snapshot of
// another workspace that is not public is NotFound, like a snapshot that does not exist.
type Service struct {
	cfg       Config
	records   Records
	drafts    Drafts
	sandboxes Sandboxes
	images    Images
	layers    Layers // nil for none
	saved     *checkpoint.Store
	boxes     *workbox.Maker
	archives  *archiver.Service
	quotas    *quota.Controller
	owner     *sandbox.Ownership
	work      *background.Group
	ctx       context.Context // of work
	log       *slog.Logger

	assemblies *Assemblies
	readers    *readers
	diffs      *readers
	originals  *readers // downloads, whose clients may be slow
	diffPlaces *fairsem.Semaphore
	signer     signer
	places     *fairsem.Semaphore
	making     underWay
	// collectNow says that a snapshot was deleted since root filesystems were collected.
	collectNow atomic.Bool
	collected  atomic.Int64 // when root filesystems were collected, in Unix nanoseconds; 0 for never
}

// workers is how many snapshots are made at the same time: each may take much memory, disk and
// processor time.
const workers = 2

// diffWorkers is how many diffs are made at the same time, each with up to 64 MiB of names: fewer sandboxes than
// the driver reads, so that snapshots and checkpoints can be made meanwhile.
const diffWorkers = 1

// diffsOfWorkspace is how many requests of a workspace read, or wait for it, at a time. Nothing bounds the requests
// of all workspaces together: the requests that wait take turns by workspace, and a bound would refuse other workspaces.
const diffsOfWorkspace = 2

// New returns a service.
func New(cfg Config, deps Deps) *Service {
	s := &Service{
		cfg: cfg, records: deps.Records, drafts: deps.Drafts, sandboxes: deps.Sandboxes, images: deps.Images, layers: deps.Layers,
		saved: deps.Saved, boxes: deps.Boxes, archives: deps.Archives, quotas: deps.Quotas, owner: deps.Owner, work: deps.Work, ctx: deps.Work.Context(), log: deps.Logger,
		readers: newReaders("snapshots", readersOfWorkspace, readersMax), diffs: newReaders("sandboxes for diffs", diffsOfWorkspace, 0),
		originals: newReaders("files of images", readersOfWorkspace, readersMax), diffPlaces: fairsem.New(diffWorkers), signer: newSigner(), places: fairsem.New(workers),
	}
	s.assemblies = &Assemblies{snapshots: s, prepare: deps.Prepare, known: newKnown(), checks: fairsem.New(workers)}
	return s
}

// Assemblies returns the part of the service that makes snapshots from files and packages.
func (s *Service) Assemblies() *Assemblies { return s.assemblies }

// newID returns the id of a snapshot of this server: other servers leave its record alone while it is made.
func (s *Service) newID() sandbox.SnapshotID { return sandbox.SnapshotID(s.owner.NewID()) }
