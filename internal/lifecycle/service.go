package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/autocheckpoint"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/lookup"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/usage"
	"github.com/modbox/modbox/internal/warmbox"
	"github.com/modbox/modbox/internal/workbox"
	"github.com/prometheus/client_golang/prometheus"
)

// Store records sandboxes. Its methods are safe for concurrent use, and a write
// is done as a whole or not at all. Internal/store has one.
type Store interface {
	quota.Store
	execution.Store
	usage.Store
	lookup.Store
	environment.Store
	network.Store
	// CreateSandbox records a new sandbox with its event and idempotency key,
	// unless the key was used before or a live sandbox of the workspace has the
	// name and is not replaced: then it answers that one. Errors: QuotaExceeded.
	CreateSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (sandbox.Recorded, error)
	// CreateForks records the children of a fork whose names are free. Errors: QuotaExceeded unless
	// the quota fits all of them.
	CreateForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]sandbox.Recorded, error)
	// SetBox records what a provisioning sandbox is made of. Errors: NotFound,
	// Conflict when it is not provisioning any more.
	SetBox(ctx context.Context, id sandbox.ID, digest string, handle []byte) (sandbox.Sandbox, error)
	// Transition moves a sandbox from one state to the other, with the changes that
	// mutate makes, and appends ev. Errors: NotFound, Conflict when it is not in state from.
	Transition(ctx context.Context, id sandbox.ID, from, to sandbox.State, mutate func(*sandbox.Sandbox), ev sandbox.Event) (sandbox.Sandbox, error)

	// ResumeSandbox moves a paused sandbox to resuming as Transition does, if the quota fits it.
	// Errors: as Transition; QuotaExceeded.
	ResumeSandbox(ctx context.Context, id sandbox.ID, mutate func(*sandbox.Sandbox), ev sandbox.Event, a quota.Admission) (sandbox.Sandbox, error)

	// LiveSandboxes returns all that have not ended.
	LiveSandboxes(ctx context.Context) ([]sandbox.Sandbox, error)

	// AppendEvent appends an event without a change of state.
	AppendEvent(ctx context.Context, ev sandbox.Event) error
	// Purge forgets at most limit idempotency keys that expired before now and,
	// unless endedBefore is zero, at most limit sandboxes that ended and snapshots
	// that were deleted before it and that no other names. It returns how many of
	// these two went.
	Purge(ctx context.Context, now, endedBefore time.Time, limit int) (int64, error)
}

// Images knows the images that sandboxes are made from.
type Images interface {
	prepare.Images
	// ForgetBuilt forgets what a workspace has built. Idempotent.
	ForgetBuilt(ctx context.Context, ws sandbox.WorkspaceID) error
	// Owned returns the bytes on disk of the images that a workspace has built, and of
	// what its builds have left beside them.
	Owned(ws sandbox.WorkspaceID) (images, left int64, err error)
	// EvictBuildCache removes of what the builds of a workspace have left as much as frees so
	// many bytes, and reports whether it could.
	EvictBuildCache(ctx context.Context, ws sandbox.WorkspaceID, add int64) (bool, error)
}

// Catalogue chooses images for sandboxes.
type Catalogue interface {
	// Choose returns the image that a request of a workspace names. Errors: Invalid, naming the
	// field.
	Choose(ctx context.Context, ws sandbox.WorkspaceID, want catalogue.Wanted) (catalogue.Choice, error)
	// DefaultImage returns the default image of the server. Errors: Invalid if there is none.
	DefaultImage(ctx context.Context) (spec.Image, error)
}

// Layers makes, reads and removes root filesystems.
type Layers interface {
	prepare.Layers
	snapshot.Layers
}

// Deps are the dependencies of the service; all but Gateways, Streams, Layers and Metrics must be
// set. The service uses them until Close and does not close them.
type Deps struct {
	Store Store
	// Checkpoints records the saved states of sandboxes, Snapshots and Drafts record snapshots, and
	// Switches knows the disabled images, all in the same database as Store.
	Checkpoints checkpoint.Records
	Snapshots   snapshot.Records
	Drafts      snapshot.Drafts
	Switches    prepare.Switches

	Driver driver.Driver
	Images Images
	// Catalogue chooses the images of sandboxes.
	Catalogue Catalogue
	Logger    *slog.Logger
	// Gateways makes the other end of the interfaces of sandboxes; without it, or a driver that
	// plugs interfaces in, no sandbox has a network.
	Gateways network.Gateways
	// Streams keeps the output of executions; without it there are none.
	Streams *stream.Store
	// Quarantine keeps saved states that the store does not know; without it they are in
	// the directory "quarantine" beside Config.CheckpointDir.
	Quarantine *quarantine.Store
	// Layers makes the root filesystems of snapshots, and of paused sandboxes whose
	// memory cannot be brought back; without it there are none.
	Layers Layers
	// Metrics, when set, gets the service's metrics registered.
	Metrics prometheus.Registerer
}

// Service makes every state change of a sandbox. All methods may be called concurrently, between
// Start and Close; before and after, methods that change something return Unavailable. Errors carry
// codes of package sandbox; another workspace's sandbox is NotFound, as if it did not exist.
type Service struct {
	*lookup.Finder[*entry]

	cfg    Config
	store  Store
	driver driver.Driver
	images Images
	// catalogue chooses the images of sandboxes.
	catalogue    Catalogue
	environments *environment.Service
	networks     *network.Service
	log          *slog.Logger
	metrics      *telemetry.Metrics

	guest      *guest.Calls
	executions *execution.Service
	quotas     *quota.Controller
	disk       *quotaDisk
	usage      *usage.Recorder

	boxes        *box.Index[*entry]
	pool         *pool.Pool[warmbox.Box]
	warm         *warmbox.Keeper
	saved        *checkpoint.Store
	automatic    *autocheckpoint.Keeper
	savedSweeper *checkpoint.Sweeper
	quarantine   *quarantine.Store
	layers       Layers // nil for none
	snapshots    *snapshot.Service
	calls        *agentapi.Memory // of all boxes' agents
	slots        chan struct{}    // holds one element per sandbox being started
	workboxes    *workbox.Maker
	prepare      *prepare.Service
	events       *eventlog.Queue

	work *background.Group // between Start and Close
	ctx  context.Context   // of work
}

// Memory returns the budget for the memory of calls into sandboxes, by workspace. Other memory that
// requests use in this process counts there as well.
func (s *Service) Memory() *agentapi.Memory { return s.calls }

// Guest returns the calls into running sandboxes.
func (s *Service) Guest() *guest.Calls { return s.guest }

// Executions returns the commands that outlive their requests.
func (s *Service) Executions() *execution.Service { return s.executions }

// Environments returns the environments of sandboxes.
func (s *Service) Environments() *environment.Service { return s.environments }

// Networks returns the networks and published ports of sandboxes.
func (s *Service) Networks() *network.Service { return s.networks }

// Note queues an event to be recorded soon. It waits, until ctx ends, while the queue is full.
func (s *Service) Note(ctx context.Context, ev sandbox.Event) { s.events.Add(ctx, ev) }

// Usage returns the total usage of a sandbox up to now, or up to its end. Errors: NotFound.
func (s *Service) Usage(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Usage, error) {
	b, sb, err := s.Find(ctx, c, ref)
	if err != nil {
		return sandbox.Usage{}, err
	}
	return s.usage.Of(ctx, sb.ID, b)
}

// Quotas returns the admission control of the service: quotas, and what waits for them.
func (s *Service) Quotas() *quota.Controller { return s.quotas }

// callMemory bounds what calls to the agents of all boxes hold unread, and their
// input. It is the default of Config.callMemory.
const callMemory = 256 << 20

// New returns a service that does nothing until Start. It fails when a setting
// makes no sense or something is missing in deps.
func New(cfg Config, deps Deps) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Checkpoints == nil || deps.Snapshots == nil || deps.Drafts == nil || deps.Switches == nil || deps.Driver == nil || deps.Images == nil || deps.Catalogue == nil || deps.Logger == nil {
		return nil, errors.New("lifecycle: the parts of the store, driver, images, catalogue and logger must all be given")
	}
	s := &Service{
		cfg: cfg, store: deps.Store, driver: deps.Driver, images: deps.Images, catalogue: deps.Catalogue, log: deps.Logger,
		layers: deps.Layers, quarantine: deps.Quarantine,
		boxes: box.NewIndex[*entry](), pool: pool.New[warmbox.Box](cfg.PoolSize), slots: make(chan struct{}, cfg.CreateConcurrency),
		calls: agentapi.NewMemory(cfg.callMemory),
	}
	s.calls.SetAnswerTimeout(cfg.AnswerTimeout)
	s.guest = guest.New(s, s.driver, cfg.commandTimeout)
	s.work = background.New()
	s.ctx = s.work.Context()
	s.events = eventlog.New(s.ctx, s.store, s.log)
	s.Finder = lookup.New(s.ctx, s.boxes, lookup.Store(s.store), lookup.Adopter[*entry](adopter{s}))
	if s.saved, err = checkpoint.Open(cfg.CheckpointDir, deps.Driver, deps.Checkpoints, deps.Logger); err != nil {
		s.work.Cancel()
		return nil, err
	}
	s.disk = &quotaDisk{images: s.images, saved: s.saved, log: s.log}
	s.quotas = quota.New(quota.Config{
		Quota: cfg.Quota, Defaults: cfg.Defaults, Build: cfg.Build, Max: cfg.Max, MaxSandboxes: cfg.MaxSandboxes, Promise: cfg.Promise,
		MinFreeDisk: cfg.MinFreeDisk, SandboxFreeDisk: cfg.SandboxFreeDisk,
	}, s.store, s.disk, s.log)
	s.usage = usage.New(s.store, s.driver, s.log)
	s.executions = execution.New(execution.Config{
		StreamMax: cfg.StreamMaxBytes, StreamTotal: cfg.StreamTotalBytes, Retention: cfg.StreamRetention, MaxEnded: cfg.MaxEndedExecutions,
		AnswerTimeout: cfg.agentTimeout,
	}, execution.Deps{
		Store: s.store, Sandboxes: s, Guest: s.guest, Images: s.images, Streams: deps.Streams, Work: s.work, Logger: s.log,
	})
	s.disk.executions = s.executions
	s.newNetworks(deps.Gateways)
	s.newPreparation(deps.Switches)
	s.newSnapshots(deps)
	s.warm = warmbox.New(warmbox.Config{Promise: cfg.Promise, MinFreeDisk: cfg.MinFreeDisk, StartTimeout: cfg.StartTimeout}, warmbox.Deps{
		Pool: s.pool, Host: unlisted{s}, Store: s.store, Images: s.images, Driver: s.driver, Work: s.work, Logger: s.log,
	})
	s.automatic = autocheckpoint.NewKeeper(automaticHost{s}, s.saved, s.quotas, cfg.MinFreeDisk, s.work, s.log)
	if s.quarantine == nil && cfg.CheckpointDir != "" {
		s.quarantine = quarantine.New(filepath.Join(filepath.Dir(cfg.CheckpointDir), "quarantine"))
	}
	s.savedSweeper = checkpoint.NewSweeper(s.saved, s.quarantine, owners{s})
	if s.metrics, err = telemetry.New(deps.Metrics, s.boxes.Count, s.pool, quota.NewCollector(s.store, cfg.Promise)); err != nil {
		s.work.Cancel()
		return nil, err
	}
	return s, nil
}

// newNetworks makes the services that configure agents and connect sandboxes.
func (s *Service) newNetworks(gateways network.Gateways) {
	cfg := environment.Config{SandboxURL: s.cfg.SandboxURL, Domain: s.cfg.Domain, NetworkCA: s.cfg.NetworkCA}
	if gateways != nil {
		cfg.Nameserver = gateways.Nameserver().String()
	}
	s.environments = environment.New(cfg, s.store, s.images, s.guest)
	s.networks = network.New(s.cfg.StartTimeout, network.Deps{
		Store: s.store, Sandboxes: s, Agents: s.environments, Driver: s.driver, Gateways: gateways, Work: s.work, Logger: s.log,
	})
}

// newPreparation makes the services that make root filesystems.
func (s *Service) newPreparation(switches prepare.Switches) {
	var layers prepare.Layers // not a nil Layers in an interface
	var holder workbox.Holder
	if s.layers != nil {
		layers, holder = s.layers, s.layers
	}
	s.workboxes = workbox.NewMaker(workbox.Config{Defaults: s.cfg.Build, StartTimeout: s.cfg.StartTimeout}, workbox.Deps{
		Host: unlisted{s}, Networks: s.networks, Environments: s.environments, Driver: s.driver, Images: s.images, Holder: holder, Logger: s.log,
	})
	s.prepare = prepare.New(prepare.Config{
		MaxTasks: s.cfg.MaxBuilds, ImageTimeout: s.cfg.ImageTimeout, MaxAge: s.cfg.PackagesMaxAge, PipIndexURL: s.cfg.PipIndexURL, SpoolDir: s.cfg.SpoolDir,
		NetworkCA: s.cfg.NetworkCA, CheckFree: func() error { return s.saved.CheckFree(s.cfg.MinFreeDisk) },
	}, prepare.Deps{
		Images: s.images, Switches: switches, Layers: layers, Boxes: s.workboxes, Isolated: s.driver.Capabilities().Isolated, Quotas: s.quotas,
		Work: s.work, Logger: s.log,
	})
}

// newSnapshots makes the service of snapshots.
func (s *Service) newSnapshots(deps Deps) {
	var layers snapshot.Layers // not a nil Layers in an interface
	if s.layers != nil {
		layers = s.layers
	}
	s.snapshots = snapshot.New(snapshot.Config{
		MaxSnapshots: s.cfg.MaxSnapshots, MaxBytes: s.cfg.MaxSnapshotBytes, MinFreeDisk: s.cfg.MinFreeDisk, WriteTimeout: s.cfg.ImageTimeout,
		SpoolDir: s.cfg.SpoolDir, Observe: func(begin time.Time, err error) { s.metrics.Operation(box.Snapshot, begin, err) },
	}, snapshot.Deps{
		Records: deps.Snapshots, Drafts: deps.Drafts, Sandboxes: s, Images: s.images, Layers: layers, Saved: s.saved, Boxes: s.workboxes,
		Prepare: s.prepare, Quotas: s.quotas, Work: s.work, Logger: s.log,
	})
	s.disk.snapshots = s.snapshots
}

// WorkBoxes returns the maker of boxes without a sandbox, for builds.
func (s *Service) WorkBoxes() *workbox.Maker { return s.workboxes }

// Work returns the group of the work between Start and Close, which waits for it.
func (s *Service) Work() *background.Group { return s.work }

// Snapshots returns the service of snapshots.
func (s *Service) Snapshots() *snapshot.Service { return s.snapshots }

// Prepare returns the service that makes root filesystems: pulls, and installs of packages.
func (s *Service) Prepare() *prepare.Service { return s.prepare }

// Start takes over the sandboxes of the previous server (see the package comment) and begins the
// background work. It returns when every running sandbox can be used again; the end of lost
// sandboxes goes on in the background. When it fails, or ctx ends, the service is as good as
// closed.
func (s *Service) Start(ctx context.Context) error {
	if !s.work.Start() {
		return errors.New("lifecycle: started twice")
	}
	if err := s.recover(ctx); err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return err
	}
	if err := s.quotas.EndStale(ctx); err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return err
	}
	if err := s.executions.Recover(ctx); err != nil {
		_ = s.Close(context.WithoutCancel(ctx))
		return err
	}
	if err := s.saved.Tidy(s.driver, s.quarantine); err != nil {
		s.log.Error("files of earlier servers not removed", "error", err)
	}
	s.work.Go(s.sweepLoop)
	s.work.Go(func() { autocheckpoint.New(s.automatic, s.cfg.AutoCheckpoints, time.Second).Run(s.ctx) })
	s.work.Go(s.events.Run)
	if s.pool.Size() > 0 {
		s.work.Go(s.warm.Run)
	}
	return nil
}

// Close stops all background work, in the middle of it where needed, and waits
// for its end or for ctx's, with ctx's error. Sandboxes keep running: the next
// server's Start takes them over. The boxes of the pool are destroyed. Idempotent.
func (s *Service) Close(ctx context.Context) error {
	was := s.work.Stop()
	s.quotas.StopWaiting()
	if was {
		s.usage.SaveActivity(ctx, s.boxes.Boxes(), 0)
		s.usage.Save(ctx, s.boxes.Boxes(), 0, 0)
	}
	s.work.Cancel()
	for _, b := range s.boxes.All() {
		b.Lock()
		if b.timer != nil {
			b.timer.Stop()
		}
		b.Unlock()
		_ = b.Agent.Close() // does not fail
		b.Link.Disconnect(true)
	}
	s.metrics.Unregister()
	if err := s.work.Wait(ctx); err != nil {
		return err
	}
	s.warm.Drain(ctx)
	return nil
}

// ready returns an error unless the service is between Start and Close.
func (s *Service) ready() error {
	if !s.work.Running() {
		return box.ErrClosed
	}
	return nil
}
