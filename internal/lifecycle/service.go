package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/autocheckpoint"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/diskuse"
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
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/recovery"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/timelimit"
	"github.com/modbox/modbox/internal/usage"
	"github.com/modbox/modbox/internal/warmbox"
	"github.com/modbox/modbox/internal/workbox"
	"github.com/prometheus/client_golang/prometheus"
)

// Store records sandboxes. Its methods are safe for concurrent use. Internal/store has one.
type Store interface {
	Creations
	Transitions
	Rows
	recovery.Store
}

// Images knows the images that sandboxes are made from.
type Images interface {
	prepare.Images
	diskuse.Images
	template.Images
	execution.Images
}

// Catalogue chooses images for sandboxes.
type Catalogue interface {
	creation.Catalogue
	// DefaultImage returns the default image of the server. Errors: Invalid if there is none.
	DefaultImage(ctx context.Context) (spec.Image, error)
}

// Layers makes, reads and removes root filesystems.
type Layers interface {
	creation.Images
	prepare.Layers
	snapshot.Layers
}

// Deps are the dependencies of the service; all but Gateways, Streams, Layers, Uploads and Metrics
// must be set. The service uses them until Close and does not close them.
type Deps struct {
	Store Store
	// Owner has the shards of new sandboxes; nil for all shards.
	Owner *sandbox.Ownership
	// Lookup finds the rows of sandboxes. Quotas, Usage, Networks, Environments and Executions record
	// other facts about sandboxes and workspaces. They are in the same database as Store.
	Lookup       lookup.Store
	Quotas       quota.Store
	Usage        usage.Store
	Networks     network.Store
	Environments environment.Store
	Executions   execution.Store
	// Checkpoints records the saved states of sandboxes, Snapshots and Drafts record snapshots, and
	// Switches knows the disabled images, all in the same database as Store.
	Checkpoints checkpoint.Records
	Snapshots   snapshot.Records
	Drafts      snapshot.Drafts
	Switches    prepare.Switches
	// Archives, States and Copies record what is in the object store, in the same database; they are needed with Config.Archive.URL.
	Archives archiver.Records
	// Starts counts the starts that may begin again, in the same database.
	Starts recovery.Starts
	States archiver.States
	Copies archiver.Checkpoints

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
	// StoredOutput stores the output of ended executions; nil for none.
	StoredOutput execution.Stored
	// Quarantine keeps saved states that the store does not know; nil is "quarantine" beside Config.CheckpointDir.
	Quarantine *quarantine.Store
	// Layers makes the root filesystems of snapshots, and of paused sandboxes without memory; without it there are none.
	Layers Layers
	// Scans enforces the policies of workspaces for code; nil enforces none.
	Scans *codescan.Service
	// Audit records the outputs of executions; nil records none.
	Audit *audit.Log
	// Uploads are files of workspaces on the disk beside the files of assemblies; nil for none.
	Uploads diskuse.Uploads
	// Calls bounds the memory of the calls to the agents of all boxes. Other parts of the process may share it.
	Calls *agentapi.Memory
	// ObserveCalls observes the calls to agents; nil for none.
	ObserveCalls agentapi.Observer
	// Metrics, when set, gets the service's metrics registered.
	Metrics prometheus.Registerer
}

// Service makes every state change of a sandbox. All methods may be called concurrently, between
// Start and Close; before and after, methods that change something return Unavailable. Errors carry
// codes of package sandbox; another workspace's sandbox is NotFound, as if it did not exist.
//
// Its parts make the changes: states records them; ender ends sandboxes; starter starts boxes, and package savedbox saves and revives them;
// suspender pauses and resumes; registrar and provisioner create; forker forks; package recovery and sweeper
// repair. New makes the parts in that order, and a part calls only parts that New made before, with two
// exceptions: a timer calls the expirer, and the watcher asks the automatic checkpoints about a lost box.
type Service struct {
	*lookup.Finder[*entry]

	cfg       Config
	log       *slog.Logger
	metrics   *telemetry.Metrics
	work      *background.Group // between Start and Close
	recovered atomic.Bool       // Start has taken over all sandboxes
	ctx       context.Context   // of work

	// Sandboxes, and the facts about them.
	owner  *sandbox.Ownership // of shards
	boxes  *box.Index[*entry]
	calls  *agentapi.Memory // of all boxes' agents
	events *eventlog.Queue
	quotas *quota.Controller
	usage  *usage.Recorder
	saved  *checkpoint.Store

	archives *archiver.Service
	// Work on sandboxes that keeps their state.
	guest        *guest.Calls
	executions   *execution.Service
	environments *environment.Service
	networks     *network.Service
	snapshots    *snapshot.Service
	automatic    *autocheckpoint.Keeper
	reliever     *pressure.Reliever
	checkpoints  *Checkpoints

	// Boxes and root filesystems for new sandboxes.
	pool      *pool.Pool[warmbox.Box]
	warm      *warmbox.Keeper
	templates *template.Keeper
	workboxes *workbox.Maker
	prepare   *prepare.Service

	// Changes of state.
	timers      *timers
	limits      timelimit.Store
	ender       *ender
	suspender   *suspender
	registrar   *registrar
	planner     *creation.Planner
	provisioner *provisioner
	forks       *forker
	recovery    *recovery.Service
	sweeper     *sweeper
	disk        *Disk
}

// Guest returns the calls into running sandboxes.
func (s *Service) Guest() *guest.Calls { return s.guest }

// NewID returns the ID of a sandbox that this server can make.
func (s *Service) NewID() sandbox.ID { return s.owner.NewID() }

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

// Archives returns the archived sandboxes.
func (s *Service) Archives() *archiver.Service { return s.archives }

// Quotas returns the admission control of the service: quotas, and what waits for them.
func (s *Service) Quotas() *quota.Controller { return s.quotas }

// Checkpoints returns the named checkpoints of sandboxes.
func (s *Service) Checkpoints() *Checkpoints { return s.checkpoints }

// Disk returns what boxes take on the disk.
func (s *Service) Disk() *Disk { return s.disk }

// Templates returns the memory templates.
func (s *Service) Templates() *template.Keeper { return s.templates }

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
	for _, step := range []func(context.Context) error{s.recovery.Recover, s.quotas.EndStale, s.executions.Recover} {
		if err := step(ctx); err != nil {
			_ = s.Close(context.WithoutCancel(ctx))
			return err
		}
	}
	s.recovery.Start() // when their executions are known
	s.recovered.Store(true)
	s.work.Go(s.sweeper.run)
	s.work.Go(func() { autocheckpoint.New(s.automatic, s.cfg.AutoCheckpoints, time.Second).Run(s.ctx) })
	s.work.Go(func() { s.reliever.Run(s.ctx) })
	s.work.Go(s.events.Run)
	s.work.Go(func() { s.templates.Run(s.warm) })
	s.work.Go(s.archives.Run)
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
	return s.archives.Close()
}

// ready returns an error unless the service is between Start and Close.
func (s *Service) ready() error {
	if !s.work.Running() {
		return box.ErrClosed
	}
	return nil
}
