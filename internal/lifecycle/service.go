package lifecycle

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/prometheus/client_golang/prometheus"
)

// Config are the service's settings. Zero values mean the defaults that the comments name.
type Config struct {
	// Defaults are the resources of a sandbox when neither its request nor its
	// image says; 512 MiB of memory, one core and 2 GiB of disk.
	Defaults sandbox.Resources
	// Max is what one sandbox may ask for; 8 GiB of memory, eight cores and 64 GiB of disk.
	Max sandbox.Resources
	// MaxSandboxes is how many sandboxes may be provisioning or running at once; 0 means no limit.
	MaxSandboxes int
	// CreateConcurrency is how many sandboxes are started at the same time; 16.
	CreateConcurrency int
	// ImageTimeout is how long an image may take to be had; 10 minutes.
	ImageTimeout time.Duration
	// StartTimeout is how long a box may take from its creation until its agent is configured; 30 s.
	StartTimeout time.Duration
	// ReadinessTimeout is how long the readiness probe may fail; 2 minutes.
	ReadinessTimeout time.Duration
	// SweepInterval is how often stuck and orphaned things are looked for; 5 s.
	SweepInterval time.Duration
	// SandboxURL returns the URL for a host label, told to the sandbox as
	// MODBOX_SANDBOX_URL; nil for none.
	SandboxURL func(label string) string
}

// Images knows the images that sandboxes are made from.
type Images interface {
	// Resolve returns the image that ref means and the absolute path of its root
	// filesystem. Errors: NotFound, naming ref.
	Resolve(ctx context.Context, ref string) (sandbox.Image, string, error)
	// ByID returns the image with that id. Errors: NotFound.
	ByID(ctx context.Context, id sandbox.ImageID) (sandbox.Image, error)
	// List returns all images; the one with IsDefault is used when a request names none.
	List(ctx context.Context) ([]sandbox.Image, error)
}

// Deps are what the service stands on; all but Metrics must be set.
type Deps struct {
	Store  Store
	Driver driver.Driver
	Images Images
	Logger *slog.Logger
	// Metrics, when set, gets the service's metrics registered.
	Metrics prometheus.Registerer
}

// Service makes every state change of a sandbox. All methods may be called
// concurrently. Errors carry codes of package sandbox; another workspace's
// sandbox is NotFound.
type Service struct {
	cfg  Config
	deps Deps
}

// Store is where sandboxes are recorded.
type Store interface{}

// New returns a service that does nothing until Start.
func New(cfg Config, deps Deps) (*Service, error) { return &Service{cfg: cfg, deps: deps}, nil }

var errSkeleton = sandbox.Errorf(sandbox.Unsupported, "not implemented yet")

// Start recovers the sandboxes of an earlier server, then runs the background loops.
func (s *Service) Start(ctx context.Context) error { return errSkeleton }

// Close stops the background work; sandboxes keep running.
func (s *Service) Close(ctx context.Context) error { return errSkeleton }

// Create records a sandbox and returns at once, in state provisioning.
func (s *Service) Create(ctx context.Context, c Caller, req CreateRequest) (sb sandbox.Sandbox, created bool, err error) {
	return sandbox.Sandbox{}, false, errSkeleton
}

// Get returns the sandbox that ref, an id or a name, means.
func (s *Service) Get(ctx context.Context, c Caller, ref string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errSkeleton
}

// List returns a page of the caller's sandboxes.
func (s *Service) List(ctx context.Context, c Caller, f Filter) (Page, error) {
	return Page{}, errSkeleton
}

// Wait returns when the sandbox has reached want or ended, or timeout has passed.
func (s *Service) Wait(ctx context.Context, c Caller, ref string, want sandbox.State, timeout time.Duration) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errSkeleton
}

// Destroy ends a sandbox and returns when nothing of it is left.
func (s *Service) Destroy(ctx context.Context, c Caller, ref string, cause sandbox.CauseCode) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errSkeleton
}

// Events returns a sandbox's events with Seq after the given one.
func (s *Service) Events(ctx context.Context, c Caller, ref string, after int64, limit int, descending bool) ([]sandbox.Event, error) {
	return nil, errSkeleton
}

// Stats measures a running sandbox.
func (s *Service) Stats(ctx context.Context, c Caller, ref string) (sandbox.Stats, error) {
	return sandbox.Stats{}, errSkeleton
}

// Images lists the images.
func (s *Service) Images(ctx context.Context, c Caller) ([]sandbox.Image, error) {
	return nil, errSkeleton
}

// ByLabel returns the sandbox with that host label, in any state.
func (s *Service) ByLabel(ctx context.Context, label string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errSkeleton
}

// Dial connects to a port of a running sandbox.
func (s *Service) Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error) {
	return nil, errSkeleton
}
