// Package prepare makes the root filesystems that sandboxes and builds start from: it pulls and
// builds images, and installs Debian and npm packages in them. All requests for the same image
// share one task, and workspaces take turns.
package prepare

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/workbox"
)

// Images knows the images that sandboxes are made from.
type Images interface {
	// Resolve returns the image that ref means and the absolute path of its root
	// filesystem. Errors: NotFound, naming ref.
	Resolve(ctx context.Context, ref string) (spec.Image, string, error)
	// Built returns the image that a workspace has built under a reference. Errors: NotFound.
	Built(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error)
	// Stale reports whether the image of ref must not be used before Ensure has
	// asked the registry for it. It answers at once.
	Stale(ref string, who registry.Puller) bool
	// Ensure is Resolve, and makes the image when it is known and not here, which
	// may take minutes. It reports progress, one call at a time. A private image is pulled
	// with who's login.
	Ensure(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, string, error)
	// Update asks the registry that ref names for the image, and pulls it when
	// it is not here. Errors: NotFound, Forbidden, Unavailable and others, with the registry's words.
	Update(ctx context.Context, ref string, who registry.Puller, progress func(phase.Event)) (spec.Image, error)
}

// Switches knows which images are switched off.
type Switches interface {
	// ImageDisabled reports whether an administrator has disabled a built-in image.
	ImageDisabled(ctx context.Context, id sandbox.ImageID) (bool, error)
}

// Layers makes root filesystems out of others.
type Layers interface {
	workbox.Holder
	// CommitCached lays an uncompressed OCI layer, which is hostile, on the root filesystem of a
	// digest. The result is found by its key, and removed when nobody asked for it for a while
	// and nothing uses it, or the workspace needs the space. Errors: CheckSpace's, and then nothing is
	// stored; NotFound for base; Invalid; TooLarge.
	CommitCached(ctx context.Context, as CacheEntry, base string, layer io.Reader) (Layered, error)
	// Cached returns the newest result of CommitCached with the key, unless it is older
	// than maxAge (0 for any age). It counts for the workspace from then on as left
	// by its builds; with "" it counts for nobody. Errors: NotFound.
	Cached(ctx context.Context, ws sandbox.WorkspaceID, key string, maxAge time.Duration) (spec.Image, string, error)
}

// CacheEntry describes a root filesystem to store in the build cache.
type CacheEntry struct {
	Key string
	// Workspace is the workspace for which it counts as left by its builds.
	Workspace sandbox.WorkspaceID
	// CheckSpace returns an error if add bytes more may not be stored for it. CommitCached calls it
	// without a lock, and again if other layers were stored meanwhile.
	CheckSpace func(ctx context.Context, add int64) error
}

// Layered is a root filesystem that Layers made.
type Layered struct {
	Digest    string
	SizeBytes int64 // of the root filesystem on disk
	// LayerBytes is the size of the layer alone, compressed.
	LayerBytes int64
	FileCount  int64 // names in the root filesystem
	// Below are the root filesystems below it that count for the workspace of a snapshot.
	Below []sandbox.RootFS
}

// Config are the settings of preparation.
type Config struct {
	// MaxTasks is how many images are pulled or built of a recipe at once, and, apart from them,
	// how many installs of packages run at once.
	MaxTasks int
	// ImageTimeout bounds the making of one image.
	ImageTimeout time.Duration
	// MaxAge is how old an install may be to be used again; 0 or less for any age.
	MaxAge time.Duration
	// PipIndexURL is the index of Python packages; "" is the index of the image's configuration.
	PipIndexURL string
	// SpoolDir is the directory of files under way; "" is the system's.
	SpoolDir string
	// NetworkCA holds certificates (PEM) that boxes with network trust; nil for none.
	NetworkCA []byte
	// CheckFree returns why nothing may be added to the disk.
	CheckFree func() error
}

// Deps are the parts that the service uses.
type Deps struct {
	Images   Images
	Switches Switches
	// Layers stores the results of installs; without it there are none.
	Layers Layers
	Boxes  *workbox.Maker
	// Isolated says that commands in boxes cannot reach the host.
	Isolated bool
	Quotas   *quota.Controller
	Work     *background.Group
	Logger   *slog.Logger
}

// Service makes root filesystems. It is safe for concurrent use.
type Service struct {
	cfg      Config
	images   Images
	switches Switches
	layers   Layers // nil for none
	boxes    *workbox.Maker
	// isolated is Deps.Isolated: a driver for tests would install packages on the machine of the tests.
	isolated bool
	quotas   *quota.Controller
	work     *background.Group
	ctx      context.Context // of work
	log      *slog.Logger

	pulls    *fairsem.Semaphore // of images that are pulled, or built of a recipe
	installs *fairsem.Semaphore // of packages in a work box
	tasks    tasks
	times    *prometheus.HistogramVec // of tasks
	checks   packageChecks
	packages packageList
}

// New returns a service.
func New(cfg Config, deps Deps) *Service {
	return &Service{
		cfg: cfg, images: deps.Images, switches: deps.Switches, layers: deps.Layers, boxes: deps.Boxes, isolated: deps.Isolated, quotas: deps.Quotas,
		work: deps.Work, ctx: deps.Work.Context(), log: deps.Logger,
		pulls: fairsem.New(cfg.MaxTasks), installs: fairsem.New(cfg.MaxTasks),
		times:  newTaskTimes(),
		tasks:  tasks{byKey: map[string]*task{}},
		checks: packageChecks{answers: map[[2]string]packageAnswer{}},
	}
}

// AcquireInstall waits for the turn of a workspace to install packages. Errors: the context's;
// QuotaExceeded when too many of the workspace wait.
func (s *Service) AcquireInstall(ctx context.Context, ws sandbox.WorkspaceID) (release func(), err error) {
	return s.installs.Acquire(ctx, ws, nil)
}
