package lifecycle

import (
	"cmp"
	"errors"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/autocheckpoint"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/diskuse"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/eventlog"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lookup"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/recovery"
	"github.com/modbox/modbox/internal/savedbox"
	"github.com/modbox/modbox/internal/snapshot"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/usage"
	"github.com/modbox/modbox/internal/warmbox"
	"github.com/modbox/modbox/internal/workbox"
)

// complete returns an error unless all required dependencies are set.
func (d *Deps) complete() error {
	store := d.Store != nil && d.Lookup != nil && d.Quotas != nil && d.Usage != nil && d.Networks != nil && d.Environments != nil && d.Executions != nil &&
		d.Checkpoints != nil && d.Snapshots != nil && d.Starts != nil && d.Drafts != nil && d.Switches != nil
	if !store || d.Driver == nil || d.Images == nil || d.Catalogue == nil || d.Calls == nil || d.Logger == nil {
		return errors.New("lifecycle: the parts of the store, driver, images, catalogue, memory of calls and logger must all be set")
	}
	return nil
}

// New returns a service that does nothing until Start. It fails when a setting
// makes no sense or something is missing in deps.
func New(cfg Config, deps Deps) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := deps.complete(); err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, log: deps.Logger, work: background.New(), boxes: box.NewIndex[*entry](), pool: pool.New[warmbox.Box](cfg.PoolSize, deps.Driver.Capabilities().Furnish),
		calls: deps.Calls, owner: deps.Owner,
	}
	s.calls.SetAnswerTimeout(cfg.AnswerTimeout)
	s.calls.SetObserver(deps.ObserveCalls)
	s.ctx = s.work.Context()
	s.events = eventlog.New(s.ctx, deps.Store, s.log)
	s.Finder = lookup.New(s.ctx, s.boxes, deps.Lookup, lookup.Adopter[*entry](adopter{s}))
	if s.saved, err = checkpoint.Open(cfg.CheckpointDir, deps.Owner, deps.Driver, deps.Checkpoints, deps.Logger); err != nil {
		s.work.Cancel()
		return nil, err
	}
	if s.metrics, err = telemetry.New(deps.Metrics, s.boxes.Count, s.pool); err != nil {
		s.work.Cancel()
		return nil, err
	}
	templates := template.Deps{Owner: s.owner, Images: deps.Images, Driver: deps.Driver, Work: s.work, Logger: s.log}
	cfg.Templates.CheckFree = s.saved.CheckFree
	s.templates = template.New(cfg.Templates, templates)
	made := &parts{cfg: &s.cfg, slots: fairsem.NewBrief(cfg.CreateConcurrency)}
	s.observe(&deps, made)
	s.prepareWith(&deps, made)
	s.change(&deps, made)
	s.repair(&deps, made)
	used := []prometheus.Collector{telemetry.NewUsed(s.boxes.Boxes, deps.Driver), quota.NewCollector(deps.Quotas, cfg.promise), telemetry.NewWaiting(made.slots.Waiting)}
	if err := s.metrics.Register(used, s.quotas.Collectors(), s.prepare.Collectors(), s.guest.Collectors(), s.executions.Collectors(), s.templates.Collectors(), s.archives.Collectors()); err != nil {
		s.work.Cancel()
		return nil, err
	}
	return s, nil
}

// parts are the parts of a service that only other parts use.
type parts struct {
	cfg     *Config
	slots   *fairsem.Semaphore // of starter
	use     *diskuse.Meter
	maker   *maker
	states  *states
	watcher *watcher
	saver   *savedbox.Saver
	starter *starter
	reviver *savedbox.Reviver
	expirer *expirer
}

// observe makes the parts that know sandboxes and call into them.
func (s *Service) observe(deps *Deps, made *parts) {
	cfg := made.cfg
	made.use = &diskuse.Meter{Images: deps.Images, Disk: s.saved, Log: s.log}
	s.quotas = quota.New(quota.Config{
		Owner: deps.Owner, Quota: cfg.Quota, QuotaNow: cfg.QuotaNow, Defaults: cfg.Defaults, Build: cfg.Build, Max: cfg.Max, MaxSandboxes: cfg.MaxSandboxes, Promise: cfg.Promise, PromiseNow: cfg.PromiseNow,
		MinFreeDisk: cfg.MinFreeDisk, SandboxFreeDisk: cfg.SandboxFreeDisk,
	}, deps.Quotas, made.use, s.log)
	cfg.Archive.Observe = func(k box.OperationKind, begin time.Time, err error) { s.metrics.Operation(k, begin, err) }
	s.archives = archiver.New(cfg.Archive, archiver.Deps{
		Records: deps.Archives, States: deps.States, Checkpoints: deps.Copies, Sandboxes: s, Boxes: s.boxes.Boxes, Saved: s.saved, Driver: deps.Driver, Quotas: s.quotas, Work: s.work, Owner: s.owner, Logger: s.log,
	})
	s.usage = usage.New(deps.Usage, deps.Driver, s.log)
	s.guest = guest.New(s, deps.Driver, cfg.commandTimeout, deps.Scans)
	s.executions = execution.New(execution.Config{
		StreamMax: cfg.StreamMaxBytes, StreamTotal: cfg.StreamTotalBytes, Retention: cfg.StreamRetention, MaxEnded: cfg.MaxEndedExecutions,
		AnswerTimeout: cfg.agentTimeout,
	}, execution.Deps{
		Store: deps.Executions, Sandboxes: s, Guest: s.guest, Images: deps.Images, Streams: deps.Streams, Stored: deps.StoredOutput, Audit: deps.Audit, Work: s.work, Owner: s.owner, Logger: s.log,
	})
	made.use.Streams = s.executions
	agents := environment.Config{SandboxURL: cfg.SandboxURL, Domain: cfg.Domain, NetworkCA: cfg.NetworkCA}
	if deps.Gateways != nil {
		agents.Nameserver = deps.Gateways.Nameserver().String()
	}
	s.environments = environment.New(agents, deps.Environments, deps.Images, s.guest)
	s.networks = network.New(cfg.StartTimeout, network.Deps{
		Store: deps.Networks, Sandboxes: s, Agents: s.environments, Driver: deps.Driver, Gateways: deps.Gateways, Owner: s.owner, Work: s.work, Logger: s.log,
	})
}

// prepareWith makes the parts that make root filesystems and boxes without a sandbox.
func (s *Service) prepareWith(deps *Deps, made *parts) {
	cfg := made.cfg
	// Not a nil Layers in an interface.
	var toPrepare prepare.Layers
	var toSnapshot snapshot.Layers
	var holder workbox.Holder
	if deps.Layers != nil {
		toPrepare, toSnapshot, holder = deps.Layers, deps.Layers, deps.Layers
	}
	made.maker = &maker{driver: deps.Driver, calls: s.calls, work: s.work}
	host := unlisted{cfg: cfg, maker: made.maker, boxes: s.boxes, catalogue: deps.Catalogue, saved: s.saved, slots: made.slots}
	s.warm = warmbox.New(warmbox.Config{Promise: cfg.promise, MinFreeDisk: cfg.MinFreeDisk, StartTimeout: cfg.StartTimeout}, warmbox.Deps{
		Pool: s.pool, Host: host, Store: deps.Quotas, Images: deps.Images, Driver: deps.Driver, Templates: s.templates, Work: s.work, Owner: s.owner, Logger: s.log,
	})
	host.warm = s.warm
	s.workboxes = workbox.NewMaker(workbox.Config{Defaults: cfg.Build, StartTimeout: cfg.StartTimeout}, workbox.Deps{
		Host: host, Networks: s.networks, Environments: s.environments, Driver: deps.Driver, Images: deps.Images, Holder: holder, Owner: s.owner, Logger: s.log,
	})
	s.prepare = prepare.New(prepare.Config{
		MaxTasks: cfg.MaxBuilds, ImageTimeout: cfg.ImageTimeout, MaxAge: cfg.PackagesMaxAge, PipIndexURL: cfg.PipIndexURL, SpoolDir: cfg.SpoolDir,
		NetworkCA: cfg.NetworkCA, CheckFree: func() error { return s.saved.CheckFree(cfg.MinFreeDisk) },
	}, prepare.Deps{
		Images: deps.Images, Switches: deps.Switches, Layers: toPrepare, Boxes: s.workboxes, Isolated: deps.Driver.Capabilities().Isolated,
		Quotas: s.quotas, Work: s.work, Logger: s.log,
	})
	s.snapshots = snapshot.New(snapshot.Config{
		MaxSnapshots: cfg.MaxSnapshots, MaxBytes: cfg.MaxSnapshotBytes, MinFreeDisk: cfg.MinFreeDisk, WriteTimeout: cfg.ImageTimeout,
		SpoolDir: cfg.SpoolDir, Observe: func(begin time.Time, err error) { s.metrics.Operation(box.Snapshot, begin, err) },
	}, snapshot.Deps{
		Records: deps.Snapshots, Drafts: deps.Drafts, Sandboxes: s, Images: deps.Images, Layers: toSnapshot, Saved: s.saved, Boxes: s.workboxes, Archives: s.archives,
		Prepare: s.prepare, Quotas: s.quotas, Work: s.work, Owner: s.owner, Logger: s.log,
	})
	made.use.Uploads = diskuse.Sum{s.snapshots, deps.Uploads}
}

// change makes the parts that change the states of sandboxes.
func (s *Service) change(deps *Deps, made *parts) {
	cfg := made.cfg
	s.limits = deps.Networks
	s.timers = &timers{work: s.work}
	made.states = &states{store: deps.Store, quotas: s.quotas, timers: s.timers, metrics: s.metrics, ctx: s.ctx}
	s.ender = &ender{
		states: made.states, driver: deps.Driver, saved: s.saved, usage: s.usage, networks: s.networks, quotas: s.quotas, boxes: s.boxes,
		metrics: s.metrics, work: s.work, ctx: s.ctx, log: s.log,
	}
	made.watcher = &watcher{driver: deps.Driver, ender: s.ender, dir: s.saved.Dir(), work: s.work, log: s.log}
	interrupter := execution.NewInterrupter(s.executions, cfg.pauseWait)
	made.saver = savedbox.NewSaver(deps.Driver, s.saved, s.archives.Fetch, interrupter, cfg.transferTimeout)
	made.starter = &starter{
		cfg: cfg, states: made.states, watcher: made.watcher, driver: deps.Driver, networks: s.networks, environments: s.environments,
		executions: s.executions, slots: made.slots, templates: s.templates, warm: s.warm, metrics: s.metrics, log: s.log,
	}
	made.reviver = savedbox.NewReviver(cfg.StartTimeout, savedbox.ReviverDeps{
		Host: made.starter, Saved: s.saved, Driver: deps.Driver, Images: deps.Images, Usage: s.usage, Networks: s.networks,
		Environments: s.environments, Executions: s.executions, Logger: s.log, Context: s.ctx,
	})
	s.suspender = &suspender{
		finder: s.Finder, states: made.states, interrupter: interrupter, saver: made.saver, archives: s.archives, starter: made.starter, reviver: made.reviver, watcher: made.watcher,
		ender: s.ender, timers: s.timers, saved: s.saved, usage: s.usage, events: deps.Store, driver: deps.Driver, executions: s.executions, metrics: s.metrics,
		work: s.work, ctx: s.ctx, log: s.log,
	}
	made.expirer = &expirer{timers: s.timers, ender: s.ender, suspender: s.suspender, log: s.log}
	s.timers.due = made.expirer.expire
	host := automaticHost{boxes: s.boxes, saver: made.saver, suspender: s.suspender, archives: s.archives, expirer: made.expirer, ender: s.ender, store: deps.Store}
	s.automatic = autocheckpoint.NewKeeper(host, s.saved, s.quotas, cfg.MinFreeDisk, s.work, s.log)
	cfg.Pressure.Interval, cfg.Pressure.Log = cmp.Or(cfg.Pressure.Interval, time.Second), s.log
	s.reliever = pressure.New(host, cfg.Pressure)
	made.watcher.lost = s.automatic.Lost
	s.registrar = &registrar{
		store: deps.Store, quotas: s.quotas, warm: s.warm, maker: made.maker, ender: s.ender, networks: s.networks, boxes: s.boxes,
		metrics: s.metrics,
	}
	s.planner = creation.New(*cfg.planning(), creation.Deps{
		Catalogue: deps.Catalogue, Images: deps.Layers, Quotas: s.quotas, Prepare: s.prepare, Snapshots: s.snapshots, Networks: s.networks, Saved: s.saved,
		Owner: s.owner,
	})
	s.provisioner = &provisioner{
		prepare: s.prepare, starter: made.starter, states: made.states, ender: s.ender, timers: s.timers, layers: deps.Layers,
		events: s.events, metrics: s.metrics, work: s.work, log: s.log,
	}
	s.forks = &forker{
		cfg: cfg, owner: s.owner, suspender: s.suspender, registrar: s.registrar, provisioner: s.provisioner, saver: made.saver, reviver: made.reviver, starter: made.starter,
		states: made.states, watcher: made.watcher, saved: s.saved, quotas: s.quotas, store: deps.Store, metrics: s.metrics,
		work: s.work, ctx: s.ctx, log: s.log,
	}
	s.checkpoints = &Checkpoints{
		suspender: s.suspender, saver: made.saver, automatic: s.automatic, saved: s.saved, archives: s.archives, quotas: s.quotas, store: deps.Store,
		metrics: s.metrics, maxBytes: cfg.MaxCheckpointBytes, ctx: s.ctx,
	}
}

// repair makes the parts that repair the state after a restart, an error or on a full disk.
func (s *Service) repair(deps *Deps, made *parts) {
	cfg := made.cfg
	kept := deps.Quarantine
	if kept == nil && cfg.CheckpointDir != "" {
		kept = quarantine.New(filepath.Join(filepath.Dir(cfg.CheckpointDir), "quarantine"))
	}
	savedSweeper := checkpoint.NewSweeper(s.saved, kept, owners{boxes: s.boxes, store: deps.Store})
	s.disk = &Disk{
		driver: deps.Driver, boxes: s.boxes, ender: s.ender, quotas: s.quotas, use: made.use, work: s.work, ctx: s.ctx, log: s.log,
	}
	s.recovery = recovery.New(recovery.Deps{
		Host: successor{s}, Store: deps.Store, Starts: deps.Starts, Networks: s.networks, Saved: s.saved, Sweeper: savedSweeper, Quarantine: kept,
		Driver: deps.Driver, Usage: s.usage, Log: s.log,
	})
	s.sweeper = &sweeper{
		interval: cfg.SweepInterval, retention: cfg.Retention, store: deps.Store, finder: s.Finder, owner: s.owner, boxes: s.boxes, driver: deps.Driver,
		ender: s.ender, expirer: made.expirer, suspender: s.suspender, networks: s.networks, executions: s.executions, snapshots: s.snapshots,
		savedSweeper: savedSweeper, quotas: s.quotas, usage: s.usage, metrics: s.metrics, work: s.work, ctx: s.ctx, log: s.log,
	}
}
