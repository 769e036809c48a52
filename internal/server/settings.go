package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/auth/sso"
	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/egress"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/eviction"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/remote"
	"github.com/modbox/modbox/internal/imagearchive"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/mcphttp"
	"github.com/modbox/modbox/internal/output"
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/proxy"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server/services"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/webhook"
)

// Conversions of the server's settings for each of its parts.

func driverConfig(cfg config.Config, programs embedded.Paths, log *slog.Logger) gvisor.Config {
	return gvisor.Config{
		RunDir: cfg.RunDir, StateDir: cfg.StateDir,
		SandboxBinary: programs.Sandbox, AgentBinary: programs.Agent,
		CgroupParent: cfg.CgroupParent, AnswerTimeout: cfg.Sandbox.AnswerTimeout.Std(), Logger: log,
	}
}

func lifecycleConfig(cfg config.Config, machine capacity.Machine, urls proxy.URLs) lifecycle.Config {
	return lifecycle.Config{
		Defaults: sandbox.Resources{
			MemoryBytes: int64(cfg.Sandbox.DefaultMemory), CPUMilli: int64(cfg.Sandbox.DefaultCPU), DiskBytes: int64(cfg.Sandbox.DefaultDisk),
		},
		Max: sandbox.Resources{
			MemoryBytes: int64(cfg.Sandbox.MaxMemory), CPUMilli: int64(cfg.Sandbox.MaxCPU), DiskBytes: int64(cfg.Sandbox.MaxDisk),
		},
		MaxBuilds: cfg.Build.MaxCount, ImageTimeout: cfg.Build.Timeout.Std(), PackagesMaxAge: cfg.Build.PackagesMaxAge.Std(), PipIndexURL: cfg.Build.PipIndexURL,
		Build:             sandbox.Resources{MemoryBytes: int64(cfg.Build.Memory), DiskBytes: int64(cfg.Build.Disk)},
		MaxSandboxes:      cfg.Sandbox.MaxCount,
		Quota:             DefaultQuota(cfg, machine),
		Promise:           machine.Promise(CapacityPolicy(cfg)),
		MinFreeDisk:       int64(cfg.MinFreeDisk),
		SandboxFreeDisk:   sandboxFreeDisk(cfg),
		MaxProcesses:      cfg.Sandbox.MaxProcesses,
		CreateConcurrency: cfg.Sandbox.CreateConcurrency,
		PoolSize:          cfg.Pool.Size,
		Templates: template.Config{
			Dir: filepath.Join(cfg.StateDir, statedir.TemplatesDir), MaxBytes: int64(cfg.Template.MaxBytes),
			MinFree: int64(max(cfg.MinFreeDisk, cfg.Disk.EvictBelow)),
		},
		StartTimeout:       cfg.Sandbox.StartTimeout.Std(),
		AnswerTimeout:      cfg.Sandbox.AnswerTimeout.Std(),
		ReadinessTimeout:   cfg.Sandbox.ReadinessTimeout.Std(),
		Retention:          cfg.Sandbox.Retention.Std(),
		StreamMaxBytes:     int64(cfg.Exec.MaxStream),
		StreamTotalBytes:   int64(cfg.Exec.MaxStreams),
		StreamRetention:    cfg.Exec.Retention.Std(),
		MaxEndedExecutions: cfg.Exec.MaxKept,
		AutoCheckpoints:    cfg.Sandbox.AutoCheckpoints,
		Pressure:           pressure.Options{Below: int64(cfg.Capacity.PauseBelow), Idle: cfg.Capacity.PauseIdle.Std()},
		MaxSnapshots:       cfg.Snapshot.MaxCount,
		MaxSnapshotBytes:   int64(cfg.Snapshot.MaxBytes),
		SandboxURL:         urls.Sandbox,
		Domain:             cfg.Domain,
		Archive:            archiver.Config{URL: cfg.Archive.URL, KeyFile: cfg.Archive.KeyFile, After: cfg.Archive.After.Std(), Copies: cfg.Archive.Copies, Grace: cfg.Archive.Grace.Std()},
		CheckpointDir:      filepath.Join(cfg.StateDir, statedir.CheckpointsDir),
		SpoolDir:           filepath.Join(cfg.StateDir, statedir.SpoolDir),
	}
}

// outputConfig returns the settings of stored output, without the installation.
func outputConfig(cfg config.Config) output.Config {
	return output.Config{URL: cfg.Archive.URL, KeyFile: cfg.Archive.KeyFile, Store: cfg.Archive.Output}
}

// storedImagesConfig returns the settings of images in the object store, without the installation.
func storedImagesConfig(cfg config.Config) imagearchive.Config {
	return imagearchive.Config{URL: cfg.Archive.URL, KeyFile: cfg.Archive.KeyFile, Store: cfg.Archive.Images, Grace: cfg.Archive.Grace.Std()}
}

func accountsConfig(cfg config.Config) auth.AccountsConfig {
	return auth.AccountsConfig{MaxWorkspaces: cfg.Quota.Workspaces}
}

// CapacityPolicy returns how much of the machine the server promises to all workspaces together.
func CapacityPolicy(cfg config.Config) capacity.Policy {
	return capacity.Policy{
		MemoryOvercommit: float64(cfg.Capacity.MemoryOvercommit), DiskOvercommit: float64(cfg.Capacity.DiskOvercommit),
		MemoryReserve: int64(cfg.Capacity.MemoryReserve), MaxSandboxes: cfg.Sandbox.MaxCount,
		Sandbox: sandbox.Resources{
			MemoryBytes: int64(cfg.Sandbox.DefaultMemory), CPUMilli: int64(cfg.Sandbox.DefaultCPU), DiskBytes: int64(cfg.Sandbox.DefaultDisk),
		},
		Build: sandbox.Resources{MemoryBytes: int64(cfg.Build.Memory), CPUMilli: buildCPUMilli, DiskBytes: int64(cfg.Build.Disk)},
	}
}

// buildCPUMilli is the CPU of a box of a build, for which there is no setting.
const buildCPUMilli = 2000

// DefaultQuota returns the quota of workspaces that have none of their own.
func DefaultQuota(cfg config.Config, machine capacity.Machine) quota.Limits {
	q, derived := cfg.Quota, machine.Quota(CapacityPolicy(cfg))
	quota := quota.Limits{
		quota.LimitSandboxes: int64(q.Sandboxes), quota.LimitMemory: int64(q.Memory), quota.LimitCPU: int64(q.CPU),
		quota.LimitDisk: int64(q.Disk), quota.LimitArchive: int64(q.Archive), quota.LimitCreates: int64(q.CreatesPerMinute),
	}
	for limit, n := range quota {
		if n == config.Auto {
			quota[limit] = derived[limit]
		}
	}
	return quota
}

func imageOptions(cfg config.Config, st *store.Store, signIns *registry.Registries, log *slog.Logger) image.Options {
	opts := localImageOptions(cfg)
	opts.Logger, opts.RecheckInterval = log, cfg.Images.RecheckInterval.Std()
	opts.MaxDisk, opts.InUse, opts.Remote.Login = int64(cfg.Images.MaxDisk), imagesInUse(st), signIns.Login
	opts.Rows, opts.Shared = imagerows.New(st.DB), len(cfg.Replica.Parts()) > 1
	opts.Catalogued, opts.Released = st.Catalogue.CatalogueReferences, st.Snapshots.DigestsReleased
	return opts
}

// localImageOptions are the options for a command beside the server: it can reach registries, but
// has no credentials for them.
func localImageOptions(cfg config.Config) image.Options {
	opts := image.Options{
		DefaultRegistry: cfg.Images.DefaultRegistry,
		Remote:          remote.Options{PublicOnly: !cfg.Images.PrivateRegistries, StallTimeout: cfg.Images.StallTimeout.Std()},
		MinFree:         int64(cfg.MinFreeDisk), Memory: int64(cfg.Images.Memory),
		Released: digestsReleased(cfg),
		LostAge:  quarantineLimits(cfg).MaxAge, LostBytes: quarantineLimits(cfg).MaxBytes,
	}
	for _, r := range cfg.Images.InsecureRegistries {
		opts.Remote.InsecureRegistries = append(opts.Remote.InsecureRegistries, r.RegistryStr())
	}
	return opts
}

func egressConfig(cfg config.Config, log *slog.Logger) egress.Config {
	return egress.Config{Log: log, AllowCIDRs: cfg.Network.AllowCIDRs, Resolvers: cfg.Network.Resolvers}
}

// sandboxFreeDisk returns the free disk space, in bytes, that a new sandbox requires. It is
// below min_free_disk and below the eviction threshold: the server evicts sandboxes that
// fill the disk before it refuses to create others.
func sandboxFreeDisk(cfg config.Config) int64 {
	if cfg.Disk.EvictBelow == 0 {
		return int64(cfg.MinFreeDisk)
	}
	return min(int64(cfg.MinFreeDisk), int64(cfg.Disk.EvictBelow)/2)
}

// evictionConfig returns the thresholds of free disk space, in bytes, below which the server
// evicts. Critical is the space that the server needs for its own writes.
func evictionConfig(cfg config.Config) eviction.Config {
	return eviction.Config{
		Least: int64(cfg.MinFreeDisk), Threshold: int64(cfg.Disk.EvictBelow), Critical: min(int64(cfg.Disk.EvictBelow)/4, 64<<20),
	}
}

func auditConfig(cfg config.Config) audit.Config {
	return audit.Config{Retention: cfg.Audit.Retention.Std(), MaxBytes: int64(cfg.Audit.MaxBytes)}
}

func apiConfig(cfg config.Config, urls proxy.URLs, version string) api.Config {
	return api.Config{
		Version: version, SandboxURL: urls.Sandbox,
		ExecTimeout: cfg.Exec.DefaultTimeout.Std(), ExecTimeoutMax: cfg.Exec.MaxTimeout.Std(),
		ExecOutput: int(cfg.Exec.DefaultOutput), ExecOutputMax: int(cfg.Exec.MaxOutput),
		MetricsAccess: cfg.Metrics.Access,
	}
}

func proxyConfig(cfg config.Config, urls proxy.URLs) proxy.Config {
	return proxy.Config{
		URLs: urls, ResponseTimeout: cfg.HTTP.ResponseTimeout.Std(), MaxConnections: cfg.HTTP.MaxConnections,
		MaxRequests: cmp.Or(cfg.Connections.MaxSandboxURLs, cfg.Connections.Max/2), RefusePaths: !cfg.AnswersPaths(),
	}
}

// edgeConfig returns the settings in front of the API; the caller adds loggers and connections.
func edgeConfig(cfg config.Config, urls proxy.URLs) services.Edge {
	return services.Edge{
		Proxy: proxyConfig(cfg, urls), URLAccess: sandbox.URLAccess(cfg.Sandbox.URLAccess),
		Requests: edge.Options{AccessURLs: cfg.Log.Requests == "all"}, TrustedProxies: cfg.HTTP.TrustedProxies,
		Origins: cfg.HTTP.CORSOrigins.Strings(),
		MCP: mcphttp.Config{
			MaxSessions: cfg.MCP.MaxSessions, PerWorkspace: cfg.MCP.MaxSessionsPerWorkspace, PerUser: cfg.MCP.MaxSessionsPerUser, IdleTimeout: cfg.MCP.IdleTimeout.Std(),
		},
	}
}

// signInProviders reads the secrets of the services that people sign in with.
func signInProviders(cfg config.Config) ([]sso.Provider, error) {
	var list []sso.Provider
	for _, p := range cfg.OIDC {
		made := sso.Provider{Name: p.Name, Type: p.Type, Issuer: p.Issuer, ClientID: p.ClientID, Domains: p.AllowedDomains}
		if p.ClientSecretFile != "" {
			secret, err := os.ReadFile(p.ClientSecretFile)
			if err != nil {
				return nil, fmt.Errorf("oidc %s: client_secret_file: %w", p.Name, err)
			}
			made.ClientSecret = strings.TrimSpace(string(secret))
		}
		list = append(list, made)
	}
	return list, nil
}

func eventsConfig(cfg config.Config) eventstream.Config {
	return eventstream.Config{MaxStreams: cfg.Events.MaxStreams, PerWorkspace: cfg.Events.MaxStreamsPerWorkspace, PerUser: cfg.Events.MaxStreamsPerUser}
}

func webhooksConfig(cfg config.Config) webhook.Config {
	return webhook.Config{MaxPerWorkspace: cfg.Webhooks.MaxPerWorkspace, AllowCIDRs: cfg.Webhooks.AllowCIDRs}
}
