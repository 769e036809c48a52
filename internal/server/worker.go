package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/driver/remote/rootcache"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

// openDriver makes the driver of this machine, or of the workers if the server has any.
func (p *parts) openDriver(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) error {
	if cfg.Worker.Listen != "" {
		return p.awaitWorkers(ctx, cfg, log, cu)
	}
	programs, err := withSpace(p.disk, func() (embedded.Paths, error) { return embedded.Unpack(filepath.Join(cfg.StateDir, statedir.BinDir)) })
	if err != nil {
		return err
	}
	d, err := withSpace(p.disk, func() (*gvisor.Driver, error) { return gvisor.New(driverConfig(cfg, programs, log)) })
	if err != nil {
		return err
	}
	p.driver = d
	cu.Add(func() { closeLogged(log, "driver", d.Close) })
	return nil
}

// workersPatience limits the time for which the start of a server waits for its workers. It needs at least one worker.
const workersPatience = 30 * time.Second

// awaitWorkers accepts workers, and waits for the workers in the database.
func (p *parts) awaitWorkers(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) error {
	dir := filepath.Join(cfg.StateDir, statedir.WorkerDir)
	authority, err := withSpace(p.disk, func() (*worker.Authority, error) { return openAuthority(cfg) })
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Worker.Listen)
	if err != nil {
		return fmt.Errorf("worker.listen: %w", err)
	}
	cu.Add(func() { _ = l.Close() }) // it was closed with the listener of workers
	rows := workerrows.New(p.store.DB)
	if err := p.disk.retry(func() error { return recordJoined(ctx, rows, filepath.Join(dir, "joined")) }); err != nil {
		return err
	}
	if p.ranges != sandbox.AllRanges { // else the server moves them
		if err := checkPlaces(ctx, cfg, p.store); err != nil {
			return err
		}
	}
	supplier, err := p.openPods(cfg, authority, l.Addr(), log)
	if err != nil {
		return err
	}
	policy := CapacityPolicy(cfg)
	d, err := fleet.New(ctx, fleet.Config{
		Rows:      rows,
		Own:       p.store.Ranges(),
		Parts:     cfg.Replica.Parts(),
		LostAfter: cfg.Worker.LostAfter.Std(),
		Supplier:  supplier,
		PerWorker: cfg.Kubernetes.SandboxesPerPod,
		// A worker has a quarter of disk_overhead for files that belong to no image.
		BringMax:   int64(cfg.Kubernetes.DiskOverhead) / 2,
		FurnishMax: int64(cfg.Kubernetes.DiskOverhead) / 4 * 3,
		Remote:     remote.Config{Installation: p.instance, Epoch: p.generation, Saved: savedFiles{}, OpenRootfs: p.openRootfs, Space: p.disk.space, Log: log},
		Limit:      func(memory int64) int64 { return capacity.Machine{MemoryBytes: memory}.Promise(policy).MemoryBytes },
	})
	if err != nil {
		return err
	}
	cu.Add(func() { closeLogged(log, "driver", d.Close) })
	listener := worker.Listen(l, authority, worker.Uses{Check: d.Check, Attach: d.Attach, Leave: func(ctx context.Context, w worker.Identity) error {
		return p.vacate(ctx, w, d, log)
	}}, log)
	cu.Add(func() { _ = listener.Close() }) // it was closed to end it
	p.workers = listener
	log.Warn("sandboxes run on workers, which is experimental", "address", l.Addr().String(), "token_file", filepath.Join(cmp.Or(cfg.Worker.SecretDir, dir), worker.TokenFile))
	if cfg.Standby && supplier == nil { // workers that are supplied come and go with their sandboxes
		p.watchWorkers(ctx, cfg.StateDir, d.Workers, log, cu)
	}
	log.Info("waiting for the workers")
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { // a server that has lost its database waits for no worker
		select {
		case <-p.store.Taken():
			stop(p.store.TakenBy())
		case err := <-p.lost:
			stop(err)
		case <-waiting.Done():
		}
	}()
	if err := d.Ready(waiting, workersPatience); err != nil {
		return err
	}
	p.driver, p.fleet = d, d
	return nil
}

// machinesOf returns the machines of all workers of all servers that were not removed or lost. The server does not know their disks: each counts with as much
// disk as sandboxes of the default size have with its memory.
func (p *parts) machinesOf(cfg config.Config) (list []capacity.Machine, all capacity.Machine) {
	for _, w := range p.fleet.AllWorkers() {
		if w.Status == worker.Lost {
			continue
		}
		disk := w.MemoryBytes / int64(cfg.Sandbox.DefaultMemory) * int64(cfg.Sandbox.DefaultDisk)
		list = append(list, capacity.Machine{MemoryBytes: w.MemoryBytes, DiskBytes: disk, Cores: w.Cores})
		all.MemoryBytes += w.MemoryBytes
		all.DiskBytes += disk
		all.Cores += w.Cores
	}
	return list, all
}

// workersQuota returns the quota of workspaces that have none of their own.
func (p *parts) workersQuota(cfg config.Config) quota.Limits {
	_, all := p.machinesOf(cfg)
	return DefaultQuota(cfg, all)
}

// workersPromise returns how much memory and disk the workers may promise together; 0 is any number, because Kubernetes decides about Pods.
func (p *parts) workersPromise(cfg config.Config) (sum quota.Promise) {
	if cfg.Kubernetes.PodTemplate != "" {
		return quota.Promise{}
	}
	policy := CapacityPolicy(cfg)
	list, _ := p.machinesOf(cfg)
	for _, m := range list {
		promise := m.Promise(policy)
		sum.MemoryBytes += promise.MemoryBytes
		sum.DiskBytes += promise.DiskBytes
	}
	return sum
}

// settleWorkers tells the driver of the workers whose boxes it has. All boxes were recovered.
func (p *parts) settleWorkers(ctx context.Context) error {
	if p.fleet == nil {
		return nil
	}
	rows, err := p.store.Sandboxes.LiveSandboxes(ctx)
	if err != nil {
		return err
	}
	owners := map[sandbox.ID]sandbox.WorkspaceID{}
	for i := range rows {
		owners[rows[i].ID] = rows[i].Workspace
	}
	p.fleet.Settle(owners)
	return nil
}

// vacate moves the sandboxes of a worker that is being ended.
func (p *parts) vacate(ctx context.Context, w worker.Identity, d *fleet.Driver, log *slog.Logger) error {
	service := p.lifecycle.Load()
	if service == nil {
		return sandbox.Errorf(sandbox.Unavailable, "the server is starting")
	}
	if err := d.Elsewhere(w.ID); err != nil {
		return err
	}
	done := d.Leave(w.ID)
	defer func() { done(ctx.Err() == nil) }()
	tried := map[sandbox.ID]bool{}
	for ctx.Err() == nil {
		name, boxes := d.BoxesOf(w.ID)
		boxes = slices.DeleteFunc(boxes, func(id sandbox.ID) bool { return tried[id] })
		if len(boxes) == 0 {
			log.Info("the sandboxes of a worker that is being ended were moved", "worker", name)
			return nil
		}
		for _, id := range boxes {
			tried[id] = true
		}
		busy := service.Vacate(ctx, boxes, "the worker "+name+" is being ended")
		for _, id := range busy {
			delete(tried, id)
		}
		if len(busy) > 0 {
			select {
			case <-time.After(busyPause):
			case <-ctx.Done():
			}
		}
	}
	return ctx.Err()
}

// busyPause is the pause before another look at sandboxes that were being started when they should be moved.
const busyPause = 200 * time.Millisecond

// openAuthority returns the authority of the workers. Without worker.secret_dir the first call makes it.
func openAuthority(cfg config.Config) (*worker.Authority, error) {
	if cfg.Worker.SecretDir != "" {
		return worker.ReadAuthority(cfg.Worker.SecretDir)
	}
	return worker.OpenAuthority(filepath.Join(cfg.StateDir, statedir.WorkerDir))
}

// openRootfs opens the content of a root filesystem. The file of an image that was named or configured anew is a link to the file of
// another image; its digest is the digest with its own mark.
func (p *parts) openRootfs(ctx context.Context, digest, path string) (io.ReadCloser, error) {
	records, err := imagerows.New(p.store.DB).Images(ctx)
	if err != nil {
		return nil, err
	}
	var mark []byte
	for _, r := range records {
		if r.Digest == digest && len(r.Mark) > 0 {
			mark = r.Mark
		}
	}
	return rootfs.OpenMarked(path, mark)
}

// recordJoined records the worker of a server of an earlier version, which had one and kept it in a file.
func recordJoined(ctx context.Context, rows workerrows.Rows, path string) error {
	w, found, err := worker.ReadJoined(path)
	if err != nil || !found {
		return err
	}
	known, err := rows.List(ctx)
	if err == nil && len(known) == 0 {
		err = rows.Save(ctx, worker.Record{Identity: w, Name: w.ID, Status: worker.Ready, JoinedAt: time.Now().UTC()})
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}

// savedFiles reads checkpoints of a worker's gVisor. It implements [remote.Saved].
type savedFiles struct{}

// OpenLayer implements [remote.Saved].
func (savedFiles) OpenLayer(dir string) (io.ReadCloser, error) { return saved.OpenLayer(dir) }

// Verify implements [remote.Saved].
func (savedFiles) Verify(ctx context.Context, dir string) (memory, files error) {
	return saved.Verify(ctx, dir)
}

// WorkerOptions determine how a worker starts.
type WorkerOptions struct {
	// Config has the worker's own directories, and settings of sandboxes.
	Config config.Config
	// Join are the addresses of the server, which is at one of them, and TokenFile is the file with its token.
	Join      []string
	TokenFile string
	// ID is the id of the worker, if the server has chosen it; "": the first start chooses it.
	ID string
	// Name is the worker's name; "" is the host name. The server changes it if another worker has it.
	Name string
	// HealthListen is an address at which the probes of Kubernetes are answered; "" for none.
	HealthListen string
	// DrainTimeout bounds the time for which the end of the worker waits until the server has moved its sandboxes; 0 leaves them where they are.
	DrainTimeout time.Duration
	// Version is the version of this program.
	Version string
	Logger  *slog.Logger
}

// RunWorker serves this machine's driver to a server until ctx ends. Sandboxes keep running, unless the server moves them.
func RunWorker(ctx context.Context, o WorkerOptions) (err error) {
	cfg, log := o.Config, o.Logger
	if _, found, err := installation.Read(cfg.StateDir); err != nil || found {
		return errors.Join(err, fmt.Errorf("%s is the state directory of a server; give the worker a state directory of its own (--state-dir)", cfg.StateDir))
	}
	token, err := os.ReadFile(o.TokenFile)
	if err != nil {
		return fmt.Errorf("token of the worker: %w", err)
	}
	for _, dir := range []string{cfg.StateDir, cfg.RunDir} {
		if err := statedir.Make(dir); err != nil {
			return err
		}
		unlock, err := statedir.Lock(ctx, dir, cfg.StateDir)
		if err != nil {
			return err
		}
		defer unlock()
	}
	state, err := worker.OpenState(cfg.StateDir, o.ID)
	if err != nil {
		return err
	}
	programs, err := embedded.Unpack(filepath.Join(cfg.StateDir, statedir.BinDir))
	if err != nil {
		return err
	}
	dialer, err := worker.NewDialer(o.Join, state, string(token), log)
	if err != nil {
		return err
	}
	cache, err := rootcache.Open(filepath.Join(cfg.StateDir, statedir.ImagesDir), int64(cfg.MinFreeDisk), log)
	if err != nil {
		return err
	}
	machine, err := capacity.Detect(cfg.StateDir)
	if err != nil {
		return err
	}
	name, _ := os.Hostname() // without a name, the server uses the id
	var health workerHealth
	w := remote.NewWorker(remote.WorkerConfig{
		Open:     func() (driver.Driver, error) { return openBoxes(ctx, cfg, programs, log) },
		Cache:    cache,
		Dir:      filepath.Join(cfg.StateDir, "under-way"),
		Host:     remote.Host{Name: cmp.Or(o.Name, name), Version: o.Version, MemoryBytes: machine.MemoryBytes, Cores: machine.Cores},
		Accept:   func(c remote.Control) error { return state.Accept(c.Installation, c.Epoch) },
		Accepted: health.accepted,
		Log:      log,
	})
	defer func() { err = errors.Join(err, w.Close()) }()
	if o.HealthListen != "" {
		closeHealth, err := health.listen(ctx, o.HealthListen, log)
		if err != nil {
			return err
		}
		defer closeHealth()
	}
	log.Info("worker", "id", state.ID(), "server", o.Join, "state_dir", cfg.StateDir)
	dialUntilMoved(ctx, dialer, w.Serve, o.DrainTimeout, log)
	log.Info("shutting down; sandboxes that are here keep running")
	return nil
}

// dialUntilMoved serves connections to the server until ctx ends, and then until the server has moved the sandboxes of this worker.
func dialUntilMoved(ctx context.Context, dialer *worker.Dialer, serve func(context.Context, net.Conn) error, limit time.Duration, log *slog.Logger) {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		defer stop()
		leave(serving, limit, dialer, log)
	})()
	dialer.Run(serving, serve)
}

// leave asks the server to move the sandboxes of the worker, which serves until then, and waits at most as long as limit.
func leave(ctx context.Context, limit time.Duration, dialer *worker.Dialer, log *slog.Logger) {
	if limit <= 0 {
		return
	}
	log.Info("the server moves the sandboxes of this worker", "drain_timeout", limit.String())
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for reached := time.Now(); ; {
		began := time.Now()
		err := dialer.Leave(ctx)
		if err == nil {
			return
		}
		if time.Since(began) > leaveServed {
			reached = time.Now() // by a server that has ended since
		}
		if ctx.Err() != nil || time.Since(reached) > leavePatience {
			log.Error("sandboxes were not moved", "error", err)
			return
		}
		select {
		case <-time.After(leavePause):
		case <-ctx.Done():
		}
	}
}

const (
	// leavePatience bounds the attempts of a worker that ends to reach a server: the server may restart at the same time.
	leavePatience = 3 * time.Minute
	leavePause    = time.Second
	// leaveServed is longer than an attempt to reach a server takes.
	leaveServed = 30 * time.Second
)

// openBoxes makes this machine's driver, and chooses its platform.
func openBoxes(ctx context.Context, cfg config.Config, programs embedded.Paths, log *slog.Logger) (driver.Driver, error) {
	d, err := gvisor.New(driverConfig(cfg, programs, log))
	if err != nil {
		return nil, err
	}
	choice, err := d.ChoosePlatform(ctx, cfg.Sandbox.Platform)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	log.Info("platform of new sandboxes", "platform", choice.Platform, "reason", choice.Reason)
	return d, nil
}
