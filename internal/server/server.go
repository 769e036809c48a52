package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/host"
	"github.com/modbox/modbox/internal/api/sshaccess"
	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/conns"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/egress"
	"github.com/modbox/modbox/internal/forward"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/imagearchive"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/metrics"
	"github.com/modbox/modbox/internal/otlp"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/server/services"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/internal/tracing"
	"github.com/modbox/modbox/internal/worker"
)

const (
	headerTimeout  = 10 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the concurrent requests on an HTTP/2 connection.
	maxStreams  = 100
	pingTimeout = 30 * time.Second
	// closeTimeout bounds the end of the background work after requests have ended. With
	// http.drain_timeout and the exports of [exportTimeout] it fits into TimeoutStopSec of the systemd unit.
	closeTimeout = 30 * time.Second
	// startLimit bounds the time for which a server that ends lets sandboxes start, after requests have ended. With [handoverLimit] and a takeover it
	// fits into [forward.HoldTime], for which requests wait at standbys.
	startLimit = 6 * time.Second
)

// Options determine how a server starts.
type Options struct {
	Config config.Config
	// AcceptDatabase permits a database that does not fit the files beside it.
	AcceptDatabase bool
	// Version is the version of this program, for clients, logs and backups.
	Version string
	// Logger receives the log of the server.
	Logger *slog.Logger
}

// Server is a running server: its parts, and their cleanup.
type Server struct {
	cfg      config.Config
	log      *slog.Logger
	version  string
	listener net.Listener
	http     *http.Server
	// meanwhile has the connections from before the server was active, and leader the connections of standbys.
	meanwhile *meanwhile
	leader    *leader
	disk      *disk
	store     *store.Store
	lost      <-chan error // gets why the server must end, because it has lost its database
	ssh       *sshListener
	tls       *encryption
	console   string // its URL; "" for none
	// letStart waits for sandboxes that are being started.
	letStart func(context.Context)
	// release undoes what Start did, last first.
	release func()
}

// parts are the parts that Start makes before HTTP.
type parts struct {
	*services.Services
	version string
	store   *store.Store
	keys    *secret.Keys
	images  *image.Store
	// storedImages has images in the object store; nil without one.
	storedImages *imagearchive.Service
	driver       driver.Driver
	fleet        *fleet.Driver    // the driver, if workers run the sandboxes; else nil
	workers      *worker.Listener // of the fleet
	// others has other active servers answer requests about their sandboxes; nil if there is one active server.
	others  *forward.Forwarder
	machine capacity.Machine
	// platform is gVisor's platform of new sandboxes.
	platform platform.Choice
	metrics  *prometheus.Registry
	traces   *tracing.Tracer // nil for none
	logs     *otlp.Logs      // nil for none
	urls     proxy.URLs
	disk     *disk
	// instance is the id of the installation, for receivers. The generation of the database grows with each start.
	instance   string
	generation int64
	// ranges are the ranges of shards that the server works on.
	ranges sandbox.Ranges
	// lost gets an error when a server with standbys must end, because it has lost its database.
	lost chan error
	// lifecycle is nil until the services are there. Workers connect before.
	lifecycle atomic.Pointer[lifecycle.Service]
	// backedUp is the time of the newest automatic backup, in seconds since 1970, once it is known.
	backedUp atomic.Int64
}

// Start makes all parts in order, takes over the sandboxes of the previous server, and listens. It
// serves nothing before [Server.Run]. On an error nothing remains.
func Start(ctx context.Context, o Options) (_ *Server, err error) {
	cfg, p := o.Config, parts{version: o.Version, lost: make(chan error, 1)}
	cu := cleanup.Make(func() {})
	defer cu.Clean()
	log, err := p.openLog(ctx, cfg, o.Logger, &cu) // first, so that it ends last
	if err != nil {
		return nil, err
	}
	l, meanwhile, ranges, err := enter(ctx, cfg, o.AcceptDatabase, p.version, log, &cu)
	if err != nil {
		return nil, err
	}
	p.ranges = ranges
	defer meanwhile.pass() // Run answers what comes later
	p.others = meanwhile.others(cfg)
	if p.urls, err = proxy.NewURLs(publicURL(cfg, l.Addr()), cfg.Domain); err != nil {
		return nil, err
	}
	if err := p.open(ctx, cfg, o.AcceptDatabase, log, &cu); err != nil {
		return nil, err
	}
	if err := p.disk.retry(func() error { return p.bootstrap(ctx, cfg, log) }); err != nil {
		return nil, err
	}
	shell, err := listenSSH(ctx, cfg, p.disk, meanwhile, &cu)
	if err != nil {
		return nil, err
	}
	encrypted, err := openEncryption(ctx, cfg, l.Addr(), p.metrics, log, &cu)
	if err != nil {
		return nil, err
	}
	clients := conns.New(connectionLimits(cfg, log), cfg.HTTP.TrustedProxies)
	p.metrics.MustRegister(connectionMetrics{clients})
	front, err := p.front(cfg, clients, shell.shown(cfg, publicURL(cfg, l.Addr())), log)
	if err != nil {
		return nil, err
	}
	cu.Add(front.Close)
	if err := p.Services.Start(ctx); err != nil {
		return nil, err
	}
	if err := p.settleWorkers(ctx); err != nil {
		return nil, err
	}
	cu.Add(func() { p.endWork(ctx, log) })
	cu.Add(front.EndSessions)
	shell.open(cfg, &p, log, &cu)
	p.workOnImages(ctx, log, &cu)
	p.makeBackups(ctx, cfg, log, &cu)
	p.disk.watch(ctx, &p, &cu)
	p.divide(ctx, cfg, log, &cu)
	if err := p.openMetrics(ctx, cfg, log, &cu); err != nil { // last, so that its last export has the metrics of all parts
		return nil, err
	}
	s := &Server{cfg: cfg, log: log, version: o.Version, listener: clients.Listen(l), disk: p.disk, store: p.store, lost: p.lost, ssh: shell, tls: encrypted, console: cfg.Console.At(p.urls.Server()), http: httpServer(front, clients, log), meanwhile: meanwhile, leader: p.lead(cfg, front, shell, clients, log), letStart: p.Lifecycle.LetStart}
	s.http.TLSConfig = encrypted.config
	s.http.RegisterOnShutdown(p.Lifecycle.Quotas().StopWaiting) // requests that wait for quota end at once
	s.http.RegisterOnShutdown(shell.end)
	s.http.RegisterOnShutdown(p.Events.Close)    // streams of events last as long as their clients want
	s.http.RegisterOnShutdown(front.EndSessions) // and so do streams of sessions
	s.release = cu.Release()
	return s, nil
}

// endWork ends the background work of sandboxes.
func (p *parts) endWork(ctx context.Context, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := p.Lifecycle.Close(ctx); err != nil {
		log.Error("background work did not end in time", "error", err)
	}
}

// httpServer returns the server for the connections of clients.
func httpServer(handler http.Handler, clients *conns.Tracker, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ConnState:         clients.State,
		ConnContext:       clients.Context,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingTimeout, PingTimeout: pingTimeout, WriteByteTimeout: idleTimeout},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // errors of clients
	}
}

// open makes everything below HTTP. accept is for [parts.openStore].
func (p *parts) open(ctx context.Context, cfg config.Config, accept bool, log *slog.Logger, cu *cleanup.Cleanup) error {
	var err error
	if p.disk, err = openDisk(ctx, cfg, accept, log); err != nil {
		return err
	}
	// Servers that start at the same time get the same files.
	if err := beforeOthers(ctx, cfg, func() error { return p.makeFiles(cfg) }); err != nil {
		return err
	}
	if err := p.openStore(ctx, cfg, accept, p.keys, log, cu); err != nil {
		return err
	}
	limit := time.Duration(0)
	if cfg.Standby {
		limit = databaseLimit
	}
	p.watchDatabase(ctx, limit, log, cu)
	if p.logs != nil {
		p.logs.Begin(p.instance)
	}
	if err := p.store.Secrets.SealVariables(ctx); err != nil {
		log.Warn("variables of sandboxes are not all encrypted yet; the next start tries again", "error", err)
	}
	// The two need each other: pulls use the credentials, and the image store checks them.
	registries := registry.New(p.store.Registries, p.keys, func(ctx context.Context, host string, login registry.Login) error {
		return p.images.SignIn(ctx, host, login)
	})
	if err := p.openImages(ctx, cfg, registries, log, cu); err != nil {
		return err
	}
	if err := p.openDriver(ctx, cfg, log, cu); err != nil {
		return err
	}
	for _, missing := range p.driver.Capabilities().Missing {
		log.Warn(missing)
	}
	p.metrics = metrics.New(p.version)
	if err := p.choosePlatform(ctx, cfg, log); err != nil {
		return err
	}
	for _, list := range [][]prometheus.Collector{p.disk.collectors(), p.store.Collectors(), p.imageCollectors(), p.backupCollectors(cfg)} {
		p.metrics.MustRegister(list...)
	}
	if err := p.openTraces(ctx, cfg, log, cu); err != nil {
		return err
	}
	if p.machine, err = capacity.Detect(cfg.StateDir); err != nil {
		return err
	}
	if p.fleet != nil { // clients see the machines of the sandboxes, as they are at the start
		_, all := p.machinesOf(cfg)
		p.machine.MemoryBytes, p.machine.Cores = all.MemoryBytes, all.Cores
	}
	settings, err := p.settings(ctx, cfg, log)
	if err != nil {
		return err
	}
	ports, err := p.ports(cfg, registries, log)
	if err != nil {
		return err
	}
	if p.Services, err = services.New(ctx, settings, ports); err != nil {
		return err
	}
	cu.Add(p.Close)
	p.watchRights(ctx, log, cu)
	p.lifecycle.Store(p.Lifecycle)
	return nil
}

// settings returns the settings of the services.
func (p *parts) settings(ctx context.Context, cfg config.Config, log *slog.Logger) (services.Config, error) {
	var err error
	s := services.Config{
		Lifecycle: lifecycleConfig(cfg, p.machine, p.urls), Audit: auditConfig(cfg), Accounts: accountsConfig(cfg),
		DefaultMemory: int64(cfg.Sandbox.DefaultMemory), URLs: p.urls, Console: cfg.Console.At(p.urls.Server()),
		Events: eventsConfig(cfg), Webhooks: webhooksConfig(cfg), Output: outputConfig(cfg),
	}
	if p.fleet != nil {
		s.Lifecycle.QuotaNow = func() quota.Limits { return p.workersQuota(cfg) }
		s.Lifecycle.PromiseNow = func() quota.Promise { return p.workersPromise(cfg) }
	}
	s.Lifecycle.Archive.Installation, s.Output.Installation = p.instance, p.instance
	s.Lifecycle.Archive.Space, s.Output.Space = p.disk.space, p.disk.space
	if s.Lifecycle.NetworkCA, err = readCA(cfg.Network.CAFile); err != nil {
		return services.Config{}, err
	}
	if s.Accounts.SignedIn, err = p.forgetFirstLogin(ctx, cfg, log); err != nil {
		return services.Config{}, err
	}
	s.Providers, err = signInProviders(cfg)
	return s, err
}

// ports returns the implementations that the services use.
func (p *parts) ports(cfg config.Config, registries *registry.Registries, log *slog.Logger) (services.Ports, error) {
	streams, err := stream.Open(filepath.Join(cfg.StateDir, statedir.StreamsDir), p.store.Owner(), log)
	if err != nil {
		return services.Ports{}, err
	}
	network, err := egress.New(egressConfig(cfg, log))
	if err != nil {
		return services.Ports{}, fmt.Errorf("network settings: %w", err)
	}
	p.metrics.MustRegister(network.Collectors()...)
	var observe agentapi.Observer
	if p.traces != nil {
		observe = observeCall
	}
	return services.Ports{
		ObserveCalls: observe,
		Store:        p.store, Keys: p.keys, Driver: p.driver, Images: p.images, Known: p.images, Layers: layers{p.images}, Installed: p.images, Registries: registries,
		Streams: streams, Gateways: gateways{network}, Quarantine: p.disk.quarantine, Metrics: p.metrics, Logger: log,
	}, nil
}

// front returns the handler of all requests; shell describes the SSH server to clients.
func (p *parts) front(cfg config.Config, clients *conns.Tracker, shell sshaccess.Server, log *slog.Logger) (*services.Front, error) {
	deps := p.API()
	deps.Metrics, deps.Measured = metrics.Handler(p.metrics), p.metrics
	deps.Machine, deps.Platform = host.Machine(p.machine), host.Platform{Name: string(p.platform.Platform), Reason: p.platform.Reason}
	deps.Ready = map[string]func(context.Context) error{"store": p.store.Check}
	if cfg.Role != config.RoleControl { // a control server often has no built-in images, because it cannot make them
		deps.Ready["image"] = p.imageReady
	}
	if cfg.Standby {
		deps.Role = "active"
	}
	if p.ranges != sandbox.AllRanges {
		deps.ShardRanges = p.ranges.Digits()
	}
	settings := apiConfig(cfg, p.urls, p.version)
	settings.SSH = shell
	v1, err := api.New(settings, deps)
	if err != nil {
		return nil, err
	}
	front := edgeConfig(cfg, p.urls)
	front.Requests.Logger, front.Requests.Admission, front.Requests.Metrics = log, clients, edge.NewMetrics()
	front.Requests.Traces = p.traces
	p.metrics.MustRegister(front.Requests.Metrics.Collectors()...)
	if cfg.Log.Requests != "off" {
		front.Requests.Access = log
	}
	front.MCP.Version = p.version
	front.Others = p.others
	return p.Handler(v1, front)
}

// Run serves until ctx ends, then lets requests in progress end, and releases everything. It must
// be called once.
func (s *Server) Run(ctx context.Context) error {
	end := s.release
	defer func() { end() }()
	address := s.listener.Addr().String()
	if s.store.Owner().Primary() { // of several active servers, commands on this machine find a single one
		path := filepath.Join(s.cfg.StateDir, statedir.AddressFile)
		if err := s.disk.retry(func() error { return os.WriteFile(path, []byte(address+"\n"), 0o600) }); ballast.IsFull(err) {
			s.log.Error("cannot write the address; commands on this machine will not find the server", "error", err)
		} else if err != nil {
			return fmt.Errorf("write address: %w", err)
		}
		end = func() { _ = os.Remove(path); s.release() }
	}
	served := make(chan error, 4)
	s.ssh.serve(served)
	s.tls.serve(served)
	s.leader.serve(served)
	go func() {
		if s.http.TLSConfig != nil {
			served <- s.http.ServeTLS(s.listener, "", "")
			return
		}
		served <- s.http.Serve(s.listener)
	}()
	s.log.Info("listening", "address", address, "console", cmp.Or(s.console, "off"), "version", s.version, "state_dir", s.cfg.StateDir)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-s.store.Taken(): // the other server now does this work
		if s.cfg.Standby {
			end = func() {} // the process ends at once, and changes no file of the other server
		}
		return s.store.TakenBy()
	case err := <-s.lost:
		end = func() {}
		return err
	case <-ctx.Done():
	}
	limit := s.leader.withdraw(s.cfg)
	s.log.Info("shutting down; sandboxes keep running", "drain_timeout", limit.String())
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := s.shutdown(drain); err != nil {
		s.log.Warn("requests were cut off", "error", err)
		s.close()
	}
	starts, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	s.letStart(starts)
	return nil
}

func closeLogged(log *slog.Logger, what string, end func() error) {
	if err := end(); err != nil {
		log.Error("close", "what", what, "error", err)
	}
}

// publicURL returns the setting, or a URL made from the listening address.
func publicURL(cfg config.Config, addr net.Addr) string {
	if cfg.PublicURL != "" {
		return cfg.PublicURL
	}
	scheme := "http"
	if cfg.TLS.On() {
		scheme = "https"
	}
	host := addr.String()
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
	}
	return scheme + "://" + host
}
