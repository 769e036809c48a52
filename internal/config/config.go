package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	ociname "github.com/google/go-containerregistry/pkg/name"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config has every setting of the server. The flags' help, the example file and the
// documentation show the doc tags.
type Config struct {
	Role      string `yaml:"role" doc:"Role of the server: all, or control for a server that runs no sandboxes itself, because workers do (worker.listen). A control server needs no root, no gVisor and no run_dir (docs/cluster.md)."`
	Standby   bool   `yaml:"standby" doc:"Whether the server waits while another server works on state_dir and database.url, and takes over when that ends or is lost, instead of ending with an error. Only for role control with PostgreSQL; several servers share state_dir (docs/cluster.md)."`
	Listen    string `yaml:"listen" doc:"Address and port the server listens on. Port 0 takes a free one; the address in use is logged and written to state_dir/address."`
	PublicURL string `yaml:"public_url" doc:"URL under which callers reach the server; it begins the URLs handed out. Empty: made from listen."`
	Domain    string `yaml:"domain" doc:"Base domain of sandbox URLs, e.g. sandbox.example.com, with a wildcard DNS record that leads here: LABEL.DOMAIN, with scheme and port of public_url. Empty: sandbox URLs are paths of public_url, PUBLIC_URL/s/LABEL, which need no DNS."`
	StateDir  string `yaml:"state_dir" doc:"Where the database (unless database.url is set), images, sandbox disks and the token file live. Must be on a real disk. Empty: /var/lib/modbox for root, else $XDG_STATE_HOME/modbox."`
	RunDir    string `yaml:"run_dir" doc:"Where the state of running sandboxes lives; should be on tmpfs, and its path short. Empty: /run/modbox for root, or a directory beside it when another state directory uses that, else $XDG_RUNTIME_DIR/modbox. A control server does not use it."`
	// CgroupParent is for hosts where the server may not use the top of the control groups.
	CgroupParent string `yaml:"cgroup_parent" doc:"Control group under which the server creates the control groups of sandboxes, as a path below the hierarchy's mount point. Empty: the top for root, else the group the server was started in."`

	MinFreeDisk Bytes `yaml:"min_free_disk" doc:"Free space on the disk of state_dir below which the server refuses snapshots, checkpoints, pulls, builds and uploads, with code unavailable. Fetches from the object store, and saved states that come from workers, leave it free in sum, and at least 256 MiB, with code disk_full. It refuses sandboxes, which need little at first, when less than half of disk.evict_below is free. A free inode counts as 64 KiB at most. 0: no minimum."`

	OIDC Providers `yaml:"oidc" doc:"Services for sign-in: a list of name, type (oidc or github), issuer, client_id, client_secret_file and allowed_domains (addresses in these domains may sign up); docs/auth.md has examples. A JSON array in variables and flags."`

	TLS  TLS  `yaml:"tls"`
	Log  Log  `yaml:"log"`
	HTTP HTTP `yaml:"http"`

	Console     Console     `yaml:"console"`
	Connections Connections `yaml:"connections"`
	MCP         MCP         `yaml:"mcp"`
	SSH         SSH         `yaml:"ssh"`
	Events      Events      `yaml:"events"`
	Webhooks    Webhooks    `yaml:"webhooks"`
	Metrics     Metrics     `yaml:"metrics"`
	Traces      Traces      `yaml:"traces"`

	Sandbox  Sandbox  `yaml:"sandbox"`
	Pool     Pool     `yaml:"pool"`
	Template Template `yaml:"template"`
	Exec     Exec     `yaml:"exec"`
	Network  Network  `yaml:"network"`
	Build    Build    `yaml:"build"`
	Quota    Quota    `yaml:"quota"`
	Disk     Disk     `yaml:"disk"`

	Quarantine Quarantine `yaml:"quarantine"`

	Capacity Capacity `yaml:"capacity"`

	Snapshot   Snapshot   `yaml:"snapshot"`
	Images     Images     `yaml:"images"`
	Secrets    Secrets    `yaml:"secrets"`
	Audit      Audit      `yaml:"audit"`
	Database   Database   `yaml:"database"`
	Worker     Worker     `yaml:"worker"`
	Replica    Replica    `yaml:"replica"`
	Kubernetes Kubernetes `yaml:"kubernetes"`
	Backup     Backup     `yaml:"backup"`
	Archive    Archive    `yaml:"archive"`
}

// Log configures the log on standard error, and its export.
type Log struct {
	Level  string `yaml:"level" doc:"Lowest level in the log: debug, info, warn or error."`
	Format string `yaml:"format" doc:"Format of the log: text or json."`

	Endpoint    string `yaml:"endpoint" doc:"Receiver of the log by OTLP over HTTP, such as http://127.0.0.1:4318; the server adds /v1/logs. Standard error has the log as well. Empty: the server sends no log."`
	HeadersFile string `yaml:"headers_file" doc:"File with further headers for the receiver of the log, such as an authorization: lines NAME: VALUE."`

	Requests string `yaml:"requests" doc:"Requests that get a line in the access log when they end, with their id, user, workspace, token id, client, route, status, bytes and duration: api for requests to the server itself, all for requests to the URLs of sandboxes as well, off for none. At level debug, api means all. No line has paths, queries or tokens."`
}

// HTTP holds limits of the listener and the proxy.
type HTTP struct {
	ResponseTimeout Duration `yaml:"response_timeout" doc:"Time limit for the first byte of an answer from a server inside a sandbox to a request to the sandbox's URL."`
	MaxConnections  int      `yaml:"max_connections" doc:"Maximum number of open connections into one sandbox for requests to its URL."`
	TrustedProxies  Prefixes `yaml:"trusted_proxies" doc:"Addresses of the TLS proxies in front of the server, separated by commas: 127.0.0.1,10.0.0.0/8. The server trusts their X-Forwarded-For and X-Forwarded-Proto headers: failures count for the client and not for the proxy, and sandboxes see the client's address. Make sure that only the proxies can connect from these addresses."`
	CORSOrigins     Origins  `yaml:"cors_origins" doc:"Origins of web pages that may call the API from a browser, separated by commas: https://app.example.com,http://localhost:5173, or * for all pages. Such a page needs a token, like every caller; cookies are not permitted. Empty: none."`
	AllowInsecure   bool     `yaml:"allow_insecure" doc:"Whether the server may listen on an address that other machines can reach although TLS is off, so that tokens travel in clear text: only for a trusted network, such as the network between a TLS proxy and the server."`
	PathURLs        string   `yaml:"path_urls" doc:"Whether the server serves sandbox URLs in path form, PUBLIC_URL/s/LABEL: on, off, or auto, which means on without a domain. Their pages have the same host as the API, and only a header keeps browsers from treating them as the same origin: turn them off if people sign in with a browser."`
	DrainTimeout    Duration `yaml:"drain_timeout" doc:"Time limit for requests under way to finish after SIGTERM. Sandboxes keep running in any case."`
}

// Connections holds limits of the connections from clients.
type Connections struct {
	Max            int `yaml:"max" doc:"Maximum number of connections from clients, and never more than half of the process's limit of open files. Beyond it, the server closes idle connections, first connections without a token."`
	MaxPerAddress  int `yaml:"max_per_address" doc:"Maximum number of connections without a token from one address (IPv6: one /64), including connections to the URLs of sandboxes. For clients behind a proxy of http.trusted_proxies, the limit applies to requests under way. 0: no limit."`
	MaxPerUser     int `yaml:"max_per_user" doc:"Maximum number of requests of one user under way. 0: no limit."`
	MaxSandboxURLs int `yaml:"max_sandbox_urls" doc:"Maximum number of requests to the URLs of all sandboxes under way; one workspace may have a quarter of them. 0: half of connections.max."`
}

// Sandbox holds defaults and limits of sandboxes.
type Sandbox struct {
	DefaultMemory     Bytes    `yaml:"default_memory" doc:"Default memory limit of a sandbox, if neither the request nor its image sets one."`
	DefaultCPU        CPU      `yaml:"default_cpu" doc:"Default CPU limit of a sandbox: 500m is half a core."`
	DefaultDisk       Bytes    `yaml:"default_disk" doc:"Default disk limit of a sandbox (the data it may write)."`
	MaxMemory         Bytes    `yaml:"max_memory" doc:"Highest memory limit of a sandbox."`
	MaxCPU            CPU      `yaml:"max_cpu" doc:"Highest CPU limit of a sandbox."`
	MaxDisk           Bytes    `yaml:"max_disk" doc:"Highest disk limit of a sandbox."`
	MaxCount          int      `yaml:"max_count" doc:"Maximum number of live sandboxes; 0 means no limit."`
	AutoCheckpoints   int      `yaml:"automatic_checkpoints" doc:"Number of automatic checkpoints that the server makes at the same time; other sandboxes wait, and workspaces take turns."`
	MaxProcesses      int      `yaml:"max_processes" doc:"Maximum number of processes and threads in one sandbox."`
	CreateConcurrency int      `yaml:"create_concurrency" doc:"Number of sandboxes that start at the same time; others wait. 0: twice the number of cores."`
	Retention         Duration `yaml:"retention" doc:"Retention of ended sandboxes with their events, and of deleted snapshots in lineages."`
	Platform          string   `yaml:"platform" doc:"gVisor's platform, which runs the programs of new sandboxes: systrap, kvm, or auto, which is kvm if a sandbox runs on it in a try at the start, and systrap elsewhere (docs/operate/platform.md). With systrap the server does not touch /dev/kvm."`
	URLAccess         string   `yaml:"url_access" doc:"The least credential for the management routes on the URLs of sandboxes (/modbox/api/…, /execute). With open each sandbox decides; the URL of a sandbox made through the Modbox API without a SANDBOX_API_KEY is then a shell. With key callers need the sandbox's SANDBOX_API_KEY or an API token, as for sandboxes made through /v1. Workspaces can demand a key on their own (docs/networking.md)."`
	StartTimeout      Duration `yaml:"start_timeout" doc:"Time limit for the agent of a new sandbox to answer."`
	AnswerTimeout     Duration `yaml:"answer_timeout" doc:"How long a sandbox's process or agent may be unresponsive before a waiting call fails with agent_unreachable. A call that merely takes longer continues. 0: as long as the call may take."`
	ReadinessTimeout  Duration `yaml:"readiness_timeout" doc:"Time limit for the readiness port of a new sandbox to answer."`
}

// Network configures the network of sandboxes.
type Network struct {
	AllowCIDRs Prefixes  `yaml:"allow_cidrs" doc:"Closed IPv4 ranges to open for sandboxes with network, separated by commas: 10.1.0.0/16 for an internal mirror. This opens the whole range, including the server's own addresses."`
	Resolvers  Addresses `yaml:"resolvers" doc:"DNS servers for sandboxes, separated by commas: 192.0.2.53 or 192.0.2.53:5353. Empty: the servers of the host's /etc/resolv.conf."`
	CAFile     string    `yaml:"ca_file" doc:"Certificates (PEM) that sandboxes with network trust in addition to their images' certificates, for mirrors and TLS proxies with a private CA. Empty: none."`
}

// Build holds limits of the builds that a sandbox may need before it can start:
// runtimes, and images with a request's packages.
type Build struct {
	MaxCount       int      `yaml:"max_count" doc:"Number of images pulled or built from a recipe at the same time, of installations of packages, and of builds from a Dockerfile, each; others wait. Each may use a box in addition to sandbox.max_count."`
	Timeout        Duration `yaml:"timeout" doc:"Time limit for building an image, and for installing packages, from the start of the work; a build from a Dockerfile has an hour."`
	Memory         Bytes    `yaml:"memory" doc:"Memory limit of a box that installs packages, and default memory limit of a RUN of a Dockerfile."`
	Disk           Bytes    `yaml:"disk" doc:"Disk limit of a box that installs packages, including downloads, and default disk limit of a RUN of a Dockerfile."`
	PackagesMaxAge Duration `yaml:"packages_max_age" doc:"How long the server reuses installed packages before it installs them again, to pick up updates."`
	PipIndexURL    string   `yaml:"pip_index_url" doc:"Address of the index from which pip_packages are installed, https:// or http://, without user and password. When empty, the index of the image's pip configuration, or else PyPI."`
}

// Capacity limits the sum of the limits of all workspaces' sandboxes. Docs/quotas.md explains it.
type Capacity struct {
	MemoryOvercommit Factor   `yaml:"memory_overcommit" doc:"How many times the memory of this machine, less memory_reserve, the memory limits of all running sandboxes, builds and pool boxes may add up to; sandboxes rarely use their whole limit. auto: 4, or as much as 20 sandboxes of the default size and a build need. 0: no limit."`
	MemoryReserve    Bytes    `yaml:"memory_reserve" doc:"Memory of this machine reserved for other uses than sandboxes. auto: an eighth of it, but at least 256Mi and at most 2Gi."`
	PauseBelow       Bytes    `yaml:"pause_below" doc:"Available memory of this machine below which the server pauses idle sandboxes, first the sandbox that is idle for the longest time, until a quarter more is available. A call to a paused sandbox resumes it. 0: never."`
	PauseIdle        Duration `yaml:"pause_idle" doc:"Time without use after which a sandbox counts as idle for pause_below. A sandbox in which a command runs is not idle."`
	DiskOvercommit   Factor   `yaml:"disk_overcommit" doc:"How many times the size of state_dir's file system the disk limits of all running sandboxes, builds and pool boxes may add up to. auto: 4, or as much as 20 sandboxes of the default size and a build need. 0: no limit."`
}

// Quota is the default quota of a workspace. Docs/quotas.md explains it.
type Quota struct {
	Sandboxes        Count `yaml:"sandboxes" doc:"Maximum number of running sandboxes of a workspace; paused sandboxes do not count. An administrator can set another quota for a single workspace (docs/quotas.md, which also explains auto). 0: no limit."`
	Memory           Bytes `yaml:"memory" doc:"Sum of the memory limits of a workspace's running sandboxes. auto: derived from the machine. 0: no limit."`
	CPU              CPU   `yaml:"cpu" doc:"Sum of the CPU limits of a workspace's running sandboxes. auto: derived from the machine. 0: no limit."`
	Disk             Bytes `yaml:"disk" doc:"Disk of a workspace: the disk limits of its running sandboxes, plus the size of paused sandboxes, checkpoints, snapshots, output of executions, files of builds and built images. auto: derived from the machine. 0: no limit."`
	Archive          Bytes `yaml:"archive" doc:"Size of the states of a workspace's archived sandboxes in the object store (docs/operate/archive.md). auto: 10 times quota.disk. 0: no limit."`
	CreatesPerMinute Count `yaml:"creates_per_minute" doc:"Number of sandboxes that a workspace may create per minute, including forks; this is also the largest burst. auto: derived from the machine. 0: no limit."`
	Workspaces       int   `yaml:"workspaces" doc:"Maximum number of workspaces created by a user who is not an administrator. 0: no limit."`
}

// Snapshot holds limits of snapshots.
type Snapshot struct {
	MaxCount int   `yaml:"max_count" doc:"Maximum number of snapshots of a workspace."`
	MaxBytes Bytes `yaml:"max_bytes" doc:"Maximum total size of a workspace's snapshots; each counts with what it adds to its base, and what lies below snapshots counts once, except built-in images, images that the workspace has built, and packages that it has installed."`
}

// Pool configures the pool of warm boxes.
type Pool struct {
	Size int `yaml:"size" doc:"Number of boxes to start in advance, for new sandboxes: with the images and resources of recent creates and the default image, the others for any image. Each uses about 10 MiB of memory, with started interpreters (modbox/data) about 110 MiB, with a started screen (modbox/chromium) 50 MiB, whatever its limits, in addition to sandbox.max_count. 0 turns the pool off."`
}

// Template configures memory templates.
type Template struct {
	MaxBytes Bytes `yaml:"max_bytes" doc:"Disk space for memory templates: saved sandboxes of built-in images in which the interpreters, or the screen, have started, from which new sandboxes with the same image and resources are restored. Beyond it a template makes place for another with twice its demand. 0 turns templates off."`
}

// Images configures registries, pulls and the disk and memory of images.
type Images struct {
	DefaultRegistry    string     `yaml:"default_registry" doc:"Registry for image names without a registry that are not built-in images. Empty: none."`
	InsecureRegistries Registries `yaml:"insecure_registries" doc:"Registries that may use plain HTTP, and may be on the server's own machine, separated by commas: HOST:PORT, or HOST for all its ports."`
	PrivateRegistries  bool       `yaml:"private_registries" doc:"Whether the server may contact registries at private addresses (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7). Turn it on only if every member of a workspace may reach this network; it does not apply to insecure_registries, which the server always contacts."`
	RecheckInterval    Duration   `yaml:"recheck_interval" doc:"How long the server uses a resolved tag before it asks the registry again. 0: until it is pulled again."`
	StallTimeout       Duration   `yaml:"stall_timeout" doc:"How long a connection to a registry may be silent before a pull closes it."`
	Memory             Bytes      `yaml:"memory" doc:"Server memory for the file lists of all images and build contexts that are pulled, built, imported or committed at a time: about 1100 bytes per file. A workspace gets at most twice as much as remains free for the others. 0: a sixteenth of the machine's memory, and at least 512Mi."`
	MaxDisk            Bytes      `yaml:"max_disk" doc:"Maximum disk use of images. When a new image exceeds it, the server evicts first the build cache of workspaces beyond an equal share, then the least recently used images, built-in images last, and never an image that a sandbox or snapshot needs. 0: no limit."`
}

// Exec holds limits of commands.
type Exec struct {
	DefaultTimeout Duration `yaml:"default_timeout" doc:"Default timeout of a command."`
	MaxTimeout     Duration `yaml:"max_timeout" doc:"Longest timeout of a command."`
	DefaultOutput  Bytes    `yaml:"default_output" doc:"Default limit of each of stdout and stderr of a command that is not streamed; the server drops and flags the rest."`
	MaxOutput      Bytes    `yaml:"max_output" doc:"Highest output limit that a request may ask for."`
	MaxStream      Bytes    `yaml:"max_stream" doc:"Limit of the stored stdout and stderr, each, of an execution or job; the server drops and flags the rest."`
	MaxStreams     Bytes    `yaml:"max_streams" doc:"Limit of the stored output and input of all executions, checked every minute; beyond it the server deletes the executions that ended first, with their output. It never deletes running executions."`
	Retention      Duration `yaml:"retention" doc:"Retention of executions and their output after their end."`
	MaxKept        int      `yaml:"max_kept" doc:"Maximum number of stored ended executions per sandbox; the server deletes the oldest beyond it, with their output."`
}

// Secrets configures the encryption of secrets, such as the passwords of registries.
type Secrets struct {
	KeyFile string `yaml:"key_file" doc:"File with the keys that encrypt secrets in the database; the server creates it if it is missing. Without the keys the secrets are lost: back the file up, separately from the database. Empty: state_dir/secret.key. The variable MODBOX_SECRET_KEY can hold the keys instead."`
}

// Audit bounds the audit log.
type Audit struct {
	Retention Duration `yaml:"retention" doc:"Retention of the records of the audit log."`
	MaxBytes  Bytes    `yaml:"max_bytes" doc:"Maximum size of the records and of the index of their words; beyond it the server removes the oldest records, whatever their age."`
}

// Default returns the defaults. Defaults that depend on the user, its environment or the host are
// empty or 0; Load sets them.
func Default() Config {
	return Config{
		Role:   "all",
		Listen: "127.0.0.1:7070",
		TLS:    TLS{ACME: ACME{Directory: "https://acme-v02.api.letsencrypt.org/directory"}},
		Log:    Log{Level: "info", Format: "text", Requests: "api"},
		HTTP: HTTP{
			ResponseTimeout: Duration(10 * time.Minute),
			MaxConnections:  1000,
			PathURLs:        "auto",
			DrainTimeout:    Duration(20 * time.Second),
		},
		Console:     Console{URL: "auto"},
		Connections: Connections{Max: 10_000, MaxPerAddress: 500, MaxPerUser: 2000},
		MCP:         MCP{MaxSessions: 1000, MaxSessionsPerWorkspace: 200, MaxSessionsPerUser: 50, IdleTimeout: Duration(30 * time.Minute)},
		SSH:         SSH{MaxConnections: 500, MaxPerUser: 50},
		Replica:     Replica{Active: 1},
		Events:      Events{MaxStreams: 1000, MaxStreamsPerWorkspace: 100, MaxStreamsPerUser: 100},
		Webhooks:    Webhooks{MaxPerWorkspace: 20},
		Metrics:     Metrics{Access: "loopback", Interval: Duration(time.Minute)},
		Traces:      Traces{Percent: 100},
		Sandbox: Sandbox{
			DefaultMemory:    512 << 20,
			DefaultCPU:       1000,
			DefaultDisk:      2 << 30,
			MaxMemory:        8 << 30,
			MaxCPU:           8000,
			MaxDisk:          64 << 30,
			MaxCount:         1000,
			AutoCheckpoints:  1,
			MaxProcesses:     4096,
			Platform:         "systrap",
			URLAccess:        string(sandbox.URLOpen),
			StartTimeout:     Duration(30 * time.Second),
			AnswerTimeout:    Duration(5 * time.Second),
			ReadinessTimeout: Duration(2 * time.Minute),
			Retention:        Duration(30 * 24 * time.Hour),
		},
		Pool:       Pool{Size: 2},
		Kubernetes: Kubernetes{MaxPods: 1000, SandboxesPerPod: 1, MemoryOverhead: 256 << 20, DiskOverhead: 1 << 30, StartTimeout: Duration(2 * time.Minute)},
		Template:   Template{MaxBytes: 2 << 30},
		Build: Build{
			MaxCount:       2,
			Timeout:        Duration(15 * time.Minute),
			Memory:         2 << 30,
			Disk:           16 << 30,
			PackagesMaxAge: Duration(7 * 24 * time.Hour),
		},
		Audit:       Audit{Retention: Duration(90 * 24 * time.Hour), MaxBytes: 1 << 30},
		Database:    Database{MaxConnections: 10, ConnectTimeout: Duration(5 * time.Second), StatementTimeout: Duration(30 * time.Second)},
		Backup:      Backup{Keep: 7, Images: "needed"},
		Archive:     Archive{Grace: Duration(7 * 24 * time.Hour)},
		Quota:       Quota{Sandboxes: Auto, Memory: Auto, CPU: Auto, Disk: Auto, Archive: Auto, CreatesPerMinute: Auto, Workspaces: 20},
		Disk:        Disk{Ballast: 64 << 20, EvictBelow: Auto},
		Quarantine:  Quarantine{MaxAge: Duration(14 * 24 * time.Hour), MaxBytes: Auto},
		Capacity:    Capacity{MemoryOvercommit: Auto, MemoryReserve: Auto, DiskOvercommit: Auto, PauseIdle: Duration(time.Minute)},
		MinFreeDisk: 1 << 30,
		Snapshot:    Snapshot{MaxCount: 1000, MaxBytes: 256 << 30},
		Images: Images{
			DefaultRegistry: "docker.io",
			RecheckInterval: Duration(10 * time.Minute),
			StallTimeout:    Duration(time.Minute),
		},
		Exec: Exec{
			DefaultTimeout: Duration(time.Minute),
			MaxTimeout:     Duration(time.Hour),
			DefaultOutput:  1 << 20,
			MaxOutput:      16 << 20,
			MaxStream:      sandbox.StreamMax,
			MaxStreams:     64 << 30,
			Retention:      Duration(24 * time.Hour),
			MaxKept:        1000,
		},
	}
}

// resolve fills the settings whose default depends on the host.
func (c *Config) resolve(getenv func(string) string) error {
	root := os.Geteuid() == 0
	if c.StateDir == "" {
		c.StateDir = "/var/lib/modbox"
		if !root {
			base := getenv("XDG_STATE_HOME")
			if base == "" {
				base = filepath.Join(getenv("HOME"), ".local", "state")
			}
			c.StateDir = filepath.Join(base, "modbox")
		}
	}
	switch {
	case c.Role == RoleControl:
		c.RunDir = c.StateDir // it has no sandboxes
	case c.RunDir == "":
		c.RunDir = defaultRunDir(root, c.StateDir, getenv)
	}
	if c.Secrets.KeyFile == "" {
		c.Secrets.KeyFile = filepath.Join(c.StateDir, "secret.key")
	}
	if c.Disk.EvictBelow == Auto {
		c.Disk.EvictBelow = max(c.MinFreeDisk/2, 64<<20)
	}
	if c.Sandbox.CreateConcurrency == 0 {
		c.Sandbox.CreateConcurrency = 2 * runtime.NumCPU()
	}
	if c.Backup.Directory == "" {
		c.Backup.Directory = filepath.Join(c.StateDir, "backups")
	}
	if c.Archive.KeyFile == "" {
		c.Archive.KeyFile = c.Backup.KeyFile
	}
	for _, dir := range []*string{&c.StateDir, &c.RunDir, &c.Secrets.KeyFile, &c.Backup.Directory, &c.Backup.KeyFile, &c.Archive.KeyFile} {
		if *dir == "" {
			continue
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", *dir, err)
		}
		*dir = abs
	}
	return nil
}

// defaultRunDir returns the run directory of a server whose settings have none.
func defaultRunDir(root bool, stateDir string, getenv func(string) string) string {
	if root {
		return rootRunDir("/run/modbox", stateDir)
	}
	base := getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("modbox-%d", os.Geteuid()))
	}
	return filepath.Join(base, "modbox")
}

// rootRunDir returns base, or a directory beside it when base belongs to a server with
// another state directory: two servers of root must not take each other's sandboxes.
func rootRunDir(base, stateDir string) string {
	if abs, err := filepath.Abs(stateDir); err == nil {
		stateDir = abs
	}
	sum := sha256.Sum256([]byte(stateDir))
	own := base + "-" + hex.EncodeToString(sum[:4])
	if _, err := os.Stat(own); err == nil {
		return own // its sandboxes may be there
	}
	if mark, found, err := installation.Read(base); err == nil && found && mark.StateDir != stateDir {
		return own
	}
	return base
}

// maxRunDir keeps the sockets below run_dir within the 108 bytes that a Unix
// socket's path may have.
const maxRunDir = 50

// AnswersPaths reports whether URLs of sandboxes in path form are answered.
func (c *Config) AnswersPaths() bool {
	return c.HTTP.PathURLs == "on" || c.HTTP.PathURLs == "auto" && c.Domain == ""
}

// validate returns all invalid settings, joined.
func (c *Config) validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		bad("listen", "%q is not ADDRESS:PORT", c.Listen)
	}
	if u, err := url.Parse(c.PublicURL); err != nil || c.PublicURL != "" && (u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		bad("public_url", "%q is not an http or https URL", c.PublicURL)
	}
	if c.Domain != "" && (strings.ContainsAny(c.Domain, "/:*@ ") || strings.Trim(c.Domain, ".") != c.Domain) {
		bad("domain", "%q is not a domain such as sandbox.example.com", c.Domain)
	}
	if len(c.RunDir) > maxRunDir && c.Role != RoleControl {
		bad("run_dir", "%q is %d bytes long; the limit is %d, as sockets are made below it", c.RunDir, len(c.RunDir), maxRunDir)
	}
	c.TLS.validate(bad)
	oneOf(bad, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(bad, "log.format", c.Log.Format, "text", "json")
	oneOf(bad, "log.requests", c.Log.Requests, "off", "api", "all")
	oneOf(bad, "sandbox.platform", c.Sandbox.Platform, "systrap", "kvm", "auto")
	oneOf(bad, "http.path_urls", c.HTTP.PathURLs, "auto", "on", "off")
	c.validateMonitoring(bad)
	within(bad, "connections.max", c.Connections.Max, 16, 1<<20)
	within(bad, "connections.max_per_address", c.Connections.MaxPerAddress, 0, 1<<20)
	within(bad, "connections.max_per_user", c.Connections.MaxPerUser, 0, 1<<20)
	within(bad, "connections.max_sandbox_urls", c.Connections.MaxSandboxURLs, 0, c.Connections.Max)
	c.Console.validate(bad, c.PublicURL, c.Domain)
	c.MCP.validate(bad)
	c.Events.validate(bad)
	c.Webhooks.validate(bad)
	c.SSH.validate(bad)
	c.Worker.validate(bad)
	c.Replica.validate(bad)
	c.Kubernetes.validate(bad, c.Role)
	c.validateRole(bad)
	c.Database.validate(bad)
	c.validateLimits(bad)
	return errors.Join(errs...)
}

func (c *Config) validateLimits(bad func(name, format string, args ...any)) {
	s := c.Sandbox
	within(bad, "sandbox.default_memory", s.DefaultMemory, sandbox.MemoryMin, s.MaxMemory)
	within(bad, "sandbox.default_cpu", s.DefaultCPU, sandbox.CPUMilliMin, s.MaxCPU)
	within(bad, "sandbox.default_disk", s.DefaultDisk, sandbox.DiskMin, s.MaxDisk)
	within(bad, "sandbox.max_count", s.MaxCount, 0, 1<<20)
	within(bad, "sandbox.automatic_checkpoints", s.AutoCheckpoints, 1, 100)
	within(bad, "sandbox.max_processes", s.MaxProcesses, 32, 1<<20)
	within(bad, "sandbox.create_concurrency", s.CreateConcurrency, 1, 1000)
	within(bad, "pool.size", c.Pool.Size, 0, 1000)
	within(bad, "template.max_bytes", c.Template.MaxBytes, 0, 1<<50)
	within(bad, "sandbox.retention", s.Retention, Duration(time.Minute), Duration(10*365*24*time.Hour))
	if s.AnswerTimeout != 0 {
		within(bad, "sandbox.answer_timeout", s.AnswerTimeout, Duration(time.Second), Duration(time.Hour))
	}
	within(bad, "sandbox.start_timeout", s.StartTimeout, Duration(time.Second), Duration(time.Hour))
	within(bad, "sandbox.readiness_timeout", s.ReadinessTimeout, Duration(time.Second), Duration(time.Hour))
	within(bad, "build.max_count", c.Build.MaxCount, 1, 100)
	within(bad, "build.timeout", c.Build.Timeout, Duration(time.Minute), Duration(24*time.Hour))
	within(bad, "build.memory", c.Build.Memory, 256<<20, 1<<40)
	within(bad, "build.disk", c.Build.Disk, 1<<30, 1<<44)
	checkPipIndex(bad, c.Build.PipIndexURL)
	within(bad, "build.packages_max_age", c.Build.PackagesMaxAge, Duration(time.Minute), Duration(10*365*24*time.Hour))
	within(bad, "quota.sandboxes", c.Quota.Sandboxes, Auto, 1<<20)
	within(bad, "quota.memory", c.Quota.Memory, Auto, 1<<60)
	within(bad, "quota.cpu", c.Quota.CPU, Auto, 1<<40)
	within(bad, "quota.disk", c.Quota.Disk, Auto, 1<<60)
	within(bad, "quota.archive", c.Quota.Archive, Auto, 1<<60)
	within(bad, "quota.creates_per_minute", c.Quota.CreatesPerMinute, Auto, 1<<20)
	within(bad, "disk.ballast", c.Disk.Ballast, 0, 1<<40)
	within(bad, "disk.evict_below", c.Disk.EvictBelow, 0, 1<<50)
	within(bad, "quarantine.max_age", c.Quarantine.MaxAge, 0, Duration(10*365*24*time.Hour))
	within(bad, "quarantine.max_bytes", c.Quarantine.MaxBytes, Auto, 1<<60)
	within(bad, "capacity.memory_overcommit", c.Capacity.MemoryOvercommit, Auto, 1000)
	within(bad, "capacity.memory_reserve", c.Capacity.MemoryReserve, Auto, 1<<50)
	within(bad, "capacity.pause_below", c.Capacity.PauseBelow, 0, 1<<50)
	within(bad, "capacity.pause_idle", c.Capacity.PauseIdle, Duration(time.Second), Duration(24*time.Hour))
	within(bad, "capacity.disk_overcommit", c.Capacity.DiskOvercommit, Auto, 1000)
	within(bad, "images.max_disk", c.Images.MaxDisk, 0, 1<<60)
	within(bad, "quota.workspaces", c.Quota.Workspaces, 0, 1<<20)
	within(bad, "min_free_disk", c.MinFreeDisk, 0, 1<<50)
	within(bad, "snapshot.max_count", c.Snapshot.MaxCount, 1, 1<<20)
	within(bad, "snapshot.max_bytes", c.Snapshot.MaxBytes, 1<<20, 1<<50)
	within(bad, "exec.default_timeout", c.Exec.DefaultTimeout, Duration(time.Second), c.Exec.MaxTimeout)
	within(bad, "exec.default_output", c.Exec.DefaultOutput, 1, c.Exec.MaxOutput)
	within(bad, "exec.max_output", c.Exec.MaxOutput, 1, 256<<20)
	within(bad, "exec.max_stream", c.Exec.MaxStream, 4<<10, 64<<30)
	within(bad, "exec.max_streams", c.Exec.MaxStreams, c.Exec.MaxStream, 1<<50)
	within(bad, "exec.retention", c.Exec.Retention, Duration(time.Minute), Duration(10*365*24*time.Hour))
	within(bad, "exec.max_kept", c.Exec.MaxKept, 1, 1<<20)
	for _, p := range c.Network.AllowCIDRs {
		if !p.Addr().Is4() {
			bad("network.allow_cidrs", "%q is not an IPv4 range such as 10.1.0.0/16", p)
		}
	}
	oneOf(bad, "sandbox.url_access", c.Sandbox.URLAccess, string(sandbox.URLOpen), string(sandbox.URLKey))
	within(bad, "http.response_timeout", c.HTTP.ResponseTimeout, Duration(time.Second), Duration(24*time.Hour))
	within(bad, "http.max_connections", c.HTTP.MaxConnections, 1, 1<<20)
	within(bad, "audit.retention", c.Audit.Retention, Duration(time.Hour), Duration(100*365*24*time.Hour))
	within(bad, "audit.max_bytes", c.Audit.MaxBytes, 1<<20, 1<<44)
	within(bad, "images.memory", c.Images.Memory, 0, 1<<50)
	c.validateBackup(bad)
	c.validateArchive(bad)
	within(bad, "images.stall_timeout", c.Images.StallTimeout, Duration(time.Second), Duration(time.Hour))
	within(bad, "images.recheck_interval", c.Images.RecheckInterval, 0, Duration(10*365*24*time.Hour))
	_, err := ociname.NewRegistry(c.Images.DefaultRegistry, ociname.StrictValidation)
	if (err != nil || !reference.IsHost(c.Images.DefaultRegistry)) && c.Images.DefaultRegistry != "" {
		bad("images.default_registry", "%q is not a registry such as docker.io or registry.example.com:5000", c.Images.DefaultRegistry)
	}
	within(bad, "http.drain_timeout", c.HTTP.DrainTimeout, 0, Duration(time.Hour))
}
