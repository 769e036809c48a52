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

	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config is every setting of the server. The doc tags are what the flags' help,
// the example file and the documentation say.
type Config struct {
	Listen    string `yaml:"listen" doc:"Address and port the server listens on. Port 0 takes a free one; the address in use is logged and written to state_dir/address."`
	PublicURL string `yaml:"public_url" doc:"URL under which callers reach the server; it begins the URLs handed out. Empty: made from listen."`
	Domain    string `yaml:"domain" doc:"Base domain of sandbox URLs, e.g. sandbox.example.com, with a wildcard DNS record that leads here: LABEL.DOMAIN, with scheme and port of public_url. Empty: sandbox URLs are paths of public_url, PUBLIC_URL/s/LABEL, which need no DNS."`
	StateDir  string `yaml:"state_dir" doc:"Where the database, images, sandbox disks and the token file live. Must be on a real disk. Empty: /var/lib/modbox for root, else $XDG_STATE_HOME/modbox."`
	RunDir    string `yaml:"run_dir" doc:"Where the state of running sandboxes lives; should be on tmpfs, and its path short. Empty: /run/modbox for root, or a directory beside it when another state directory uses that, else $XDG_RUNTIME_DIR/modbox."`
	// CgroupParent is for hosts where the server may not use the top of the control groups.
	CgroupParent string `yaml:"cgroup_parent" doc:"Control group below which those of the sandboxes are made, as a path below the hierarchy's mount point. Empty: the top for root, else the group the server was started in."`

	MinFreeDisk Bytes `yaml:"min_free_disk" doc:"How much must be free on the disk of state_dir for anything to be made that takes some: snapshots, checkpoints, pulls, builds and uploads are refused otherwise, with code unavailable. Sandboxes, which take little at first, are refused when less than half of disk.evict_below is free. A free inode counts as 64 KiB at most. 0: whatever is free."`

	OIDC Providers `yaml:"oidc" doc:"Services that people sign in with: a list of name, type (oidc or github), issuer, client_id, client_secret_file and allowed_domains, whose addresses may sign up; docs/auth.md has examples. A JSON array in variables and flags."`

	TLS  TLS  `yaml:"tls"`
	Log  Log  `yaml:"log"`
	HTTP HTTP `yaml:"http"`

	Connections Connections `yaml:"connections"`
	Metrics     Metrics     `yaml:"metrics"`

	Sandbox Sandbox `yaml:"sandbox"`
	Pool    Pool    `yaml:"pool"`
	Exec    Exec    `yaml:"exec"`
	Network Network `yaml:"network"`
	Build   Build   `yaml:"build"`
	Quota   Quota   `yaml:"quota"`
	Disk    Disk    `yaml:"disk"`

	Quarantine Quarantine `yaml:"quarantine"`

	Capacity Capacity `yaml:"capacity"`

	Snapshot Snapshot `yaml:"snapshot"`
	Images   Images   `yaml:"images"`
	Secrets  Secrets  `yaml:"secrets"`
	Audit    Audit    `yaml:"audit"`
	Backup   Backup   `yaml:"backup"`
}

// TLS says how the listener is secured.
type TLS struct {
	Cert string `yaml:"cert" doc:"Certificate file (PEM, with its chain). Empty: plain HTTP, for loopback or behind a TLS proxy."`
	Key  string `yaml:"key" doc:"Private key file of the certificate (PEM)."`
}

// Log says what is logged to standard error.
type Log struct {
	Level  string `yaml:"level" doc:"Least severe level that is logged: debug, info, warn or error."`
	Format string `yaml:"format" doc:"How log lines look: text or json."`

	Requests string `yaml:"requests" doc:"Requests that get a line in the log when they end, with their id, user, workspace, token id, client, route, status, bytes and duration: api for those to the server itself, all for those to the URLs of sandboxes as well, off for none. At level debug, api means all. No line has paths, queries or tokens."`
}

// HTTP holds limits of the listener and the proxy.
type HTTP struct {
	ResponseTimeout Duration `yaml:"response_timeout" doc:"How long a server inside a sandbox may take until the first byte of its answer to a request to the sandbox's URL."`
	MaxConnections  int      `yaml:"max_connections" doc:"Connections that requests to one sandbox's URL may have open to it at the same time."`
	TrustedProxies  Prefixes `yaml:"trusted_proxies" doc:"Addresses of the TLS proxies in front of the server, separated by commas: 127.0.0.1,10.0.0.0/8. What they say in X-Forwarded-For and X-Forwarded-Proto is believed: failures count for the client and not for the proxy, and sandboxes are told the client's address. Nobody else may be able to connect from them."`
	AllowInsecure   bool     `yaml:"allow_insecure" doc:"Whether the server may listen on an address that others reach although TLS is off, so that tokens travel in clear text: only for a network in which nobody can listen in, such as one between a TLS proxy and the server."`
	PathURLs        string   `yaml:"path_urls" doc:"Whether URLs of sandboxes in path form, PUBLIC_URL/s/LABEL, are answered: on, off, or auto, which is on as long as there is no domain. Their pages have the same host as the API, and only a header keeps browsers from taking them for the same origin: turn them off where people sign in with a browser."`
	DrainTimeout    Duration `yaml:"drain_timeout" doc:"How long requests under way may take to end after SIGTERM. Sandboxes keep running in any case."`
}

// Connections holds limits of the connections from clients.
type Connections struct {
	Max            int `yaml:"max" doc:"Connections from clients at the same time, and never more than half of the files that the process may have open. When there are more, those are closed that wait for a request, first those without a token."`
	MaxPerAddress  int `yaml:"max_per_address" doc:"Connections without a token from one address (IPv6: one /64), those to the URLs of sandboxes among them. Clients behind a proxy of http.trusted_proxies have as many requests under way. 0: no limit."`
	MaxPerUser     int `yaml:"max_per_user" doc:"Requests of one user under way at the same time. 0: no limit."`
	MaxSandboxURLs int `yaml:"max_sandbox_urls" doc:"Requests to the URLs of all sandboxes under way at the same time, which need no token; one workspace may have a quarter of them. 0: half of connections.max."`
}

// Metrics says who may read the server's metrics.
type Metrics struct {
	Access string `yaml:"access" doc:"Requests to /metrics that are answered: loopback for those from the server's own machine that came through no proxy, token for those with the token of an administrator, public for all."`
}

// Sandbox holds defaults and limits of sandboxes.
type Sandbox struct {
	DefaultMemory     Bytes    `yaml:"default_memory" doc:"Memory of a sandbox when neither the request nor its image says."`
	DefaultCPU        CPU      `yaml:"default_cpu" doc:"CPU of a sandbox when the request does not say: 500m is half a core."`
	DefaultDisk       Bytes    `yaml:"default_disk" doc:"Disk of a sandbox (what it may write) when the request does not say."`
	MaxMemory         Bytes    `yaml:"max_memory" doc:"Most memory a request may ask for."`
	MaxCPU            CPU      `yaml:"max_cpu" doc:"Most CPU a request may ask for."`
	MaxDisk           Bytes    `yaml:"max_disk" doc:"Most disk a request may ask for."`
	MaxCount          int      `yaml:"max_count" doc:"Sandboxes that may live at the same time; 0 means no limit."`
	MaxProcesses      int      `yaml:"max_processes" doc:"Processes and threads that may live in one sandbox at the same time."`
	CreateConcurrency int      `yaml:"create_concurrency" doc:"Sandboxes that are started at the same time; more wait for their turn. 0: twice the number of cores."`
	Retention         Duration `yaml:"retention" doc:"How long sandboxes that have ended, and their events, are kept, and deleted snapshots in lineages."`
	URLAccess         string   `yaml:"url_access" doc:"The least credential for the management routes on the URLs of sandboxes (/modbox/api/…, /execute). With open each sandbox decides; the URL of a sandbox made through the Modbox API without a SANDBOX_API_KEY is then a shell. With key callers need the sandbox's SANDBOX_API_KEY or an API token, as for sandboxes made through /v1. Workspaces can demand a key on their own (docs/networking.md)."`
	StartTimeout      Duration `yaml:"start_timeout" doc:"How long a new sandbox may take until its agent answers."`
	AnswerTimeout     Duration `yaml:"answer_timeout" doc:"How long a sandbox's process or agent may be silent until a call that waits for it fails with agent_unreachable. A call that merely takes longer goes on. 0: as long as the call may take."`
	ReadinessTimeout  Duration `yaml:"readiness_timeout" doc:"How long a new sandbox may take until its image's readiness port answers."`
}

// Network says what sandboxes with network reach and trust.
type Network struct {
	AllowCIDRs Prefixes  `yaml:"allow_cidrs" doc:"IPv4 ranges that sandboxes with network reach although they are closed otherwise, separated by commas: 10.1.0.0/16 for a mirror inside. That opens whatever is in them, the server's own addresses included."`
	Resolvers  Addresses `yaml:"resolvers" doc:"DNS servers that answer the questions of sandboxes, separated by commas: 192.0.2.53 or 192.0.2.53:5353. Empty: those of the host's /etc/resolv.conf."`
	CAFile     string    `yaml:"ca_file" doc:"Certificates (PEM) that sandboxes with network trust beside those of their images, for mirrors and TLS proxies with a CA of their own. Empty: none."`
}

// Build holds limits of what is made before a sandbox can start: runtimes, and
// images with a request's dependencies.
type Build struct {
	MaxCount           int      `yaml:"max_count" doc:"Images that are pulled or built of a recipe at the same time, as many made with dependencies, and as many from Dockerfiles; more wait for their turn. Each may take a box on top of sandbox.max_count."`
	Timeout            Duration `yaml:"timeout" doc:"How long an image may take to be made, and its dependencies to be installed, once it is their turn; a build from a Dockerfile has an hour."`
	Memory             Bytes    `yaml:"memory" doc:"Memory of a box in which dependencies are installed, or a RUN of a Dockerfile runs that asks for no other."`
	Disk               Bytes    `yaml:"disk" doc:"Disk of a box in which dependencies are installed, or a RUN of a Dockerfile runs that asks for no other: what they and their downloads may take."`
	DependenciesMaxAge Duration `yaml:"dependencies_max_age" doc:"How long installed dependencies are used again before they are installed anew, which is how updates arrive."`
}

// Disk says what happens when the disk of the state directory fills up. Docs/limits.md explains it.
type Disk struct {
	Ballast    Bytes `yaml:"ballast" doc:"Disk kept in reserve in state_dir/ballast, which the server gives up, and makes again later, so that it can go on writing its database when the disk is full. 0: none."`
	EvictBelow Bytes `yaml:"evict_below" doc:"Free disk below which the server frees space: it removes caches, and then ends the sandbox whose files grew most, with cause disk_full, one at a time. auto: half of min_free_disk, but at least 64Mi. 0: never."`
}

// Quarantine bounds what is kept although the database does not know it. Docs/durability.md explains it.
type Quarantine struct {
	MaxAge   Duration `yaml:"max_age" doc:"Retention of saved states, and of root filesystems of snapshots, that the database does not know; it may be the wrong database. The server removes them earlier, the oldest first, when less than min_free_disk is free. 0: no limit."`
	MaxBytes Bytes    `yaml:"max_bytes" doc:"Disk that these saved states may take together, and these root filesystems as much again; beyond it the oldest go. auto: a quarter of state_dir's file system. 0: as much as there is room for."`
}

// Capacity is how much all workspaces together may be promised. Docs/quotas.md says what counts.
type Capacity struct {
	MemoryOvercommit Factor `yaml:"memory_overcommit" doc:"How many times the memory of this machine, less memory_reserve, the memory limits of all running sandboxes, builds and pool boxes may add up to; sandboxes seldom use what they are limited to. auto: 4, or as much as 20 sandboxes of the default size and a build need. 0: no limit."`
	MemoryReserve    Bytes  `yaml:"memory_reserve" doc:"Memory of this machine that is not for sandboxes. auto: an eighth of it, but at least 256Mi and at most 2Gi."`
	DiskOvercommit   Factor `yaml:"disk_overcommit" doc:"How many times the size of state_dir's file system the disk limits of all running sandboxes, builds and pool boxes may add up to. auto: 4, or as much as 20 sandboxes of the default size and a build need. 0: no limit."`
}

// Quota is what a workspace may have unless an administrator has set another
// quota for it. Docs/quotas.md says what counts.
type Quota struct {
	Sandboxes        Count `yaml:"sandboxes" doc:"Sandboxes of a workspace that may run at the same time; paused ones do not count. As the others here, unless an administrator has set a quota for the workspace (docs/quotas.md, which also says what auto means). 0: no limit."`
	Memory           Bytes `yaml:"memory" doc:"Memory that the running sandboxes of a workspace may be limited to, together. auto: derived from the machine. 0: no limit."`
	CPU              CPU   `yaml:"cpu" doc:"CPU that the running sandboxes of a workspace may be limited to, together. auto: derived from the machine. 0: no limit."`
	Disk             Bytes `yaml:"disk" doc:"Disk of a workspace: what its running sandboxes may write, and what paused ones, checkpoints, snapshots, output of executions, files of builds and images that were built take. auto: derived from the machine. 0: no limit."`
	CreatesPerMinute Count `yaml:"creates_per_minute" doc:"Sandboxes that a workspace may make in a minute, forks included; as many may be made at once. auto: derived from the machine. 0: no limit."`
	Workspaces       int   `yaml:"workspaces" doc:"Workspaces that a user who is no administrator may have made. 0: no limit."`
}

// Snapshot holds limits of snapshots.
type Snapshot struct {
	MaxCount int   `yaml:"max_count" doc:"Snapshots that a workspace may have."`
	MaxBytes Bytes `yaml:"max_bytes" doc:"Size of a workspace's snapshots from which it can make no more; each counts with its whole root filesystem."`
}

// Pool says what is kept ready for sandboxes to come.
type Pool struct {
	Size int `yaml:"size" doc:"Started boxes kept ready, so that a sandbox need not wait for one: of the images and resources that were asked for lately, else of the default image. Each takes some 10 MiB of memory, whatever its limits, on top of sandbox.max_count. 0 turns it off."`
}

// Images says where images come from and how many are kept.
type Images struct {
	DefaultRegistry    string     `yaml:"default_registry" doc:"Registry in which images are looked for whose names have none and are not built-in ones. Empty: nowhere."`
	InsecureRegistries Registries `yaml:"insecure_registries" doc:"Registries that may be talked to by plain HTTP, and be on the server's own machine, separated by commas: HOST:PORT, or HOST for all its ports. No others may."`
	PrivateRegistries  bool       `yaml:"private_registries" doc:"Whether images may be had from registries at private addresses (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, fc00::/7). Turn it on only where everybody with a workspace may reach this network; those in insecure_registries are reached all the same."`
	RecheckInterval    Duration   `yaml:"recheck_interval" doc:"How long a tag is taken to mean what it meant when its registry was asked last. 0: until it is pulled again."`
	StallTimeout       Duration   `yaml:"stall_timeout" doc:"How long a registry may send nothing until a pull gives up on that connection."`
	Memory             Bytes      `yaml:"memory" doc:"Memory that the server uses for the files of all images and build contexts that are pulled, built, imported or committed at a time: some 1100 bytes for each file. A workspace gets at most twice of what is left for the others. 0: a sixteenth of the machine's memory, and at least 512Mi."`
	MaxDisk            Bytes      `yaml:"max_disk" doc:"Disk that images may take. What is too much is removed when an image is added: first what workspaces have as build cache beyond an equal part, then those not used for the longest time, built-in ones last, none that a sandbox or snapshot needs. 0: no limit."`
}

// Exec holds limits of commands.
type Exec struct {
	DefaultTimeout Duration `yaml:"default_timeout" doc:"How long a command may run when the request does not say."`
	MaxTimeout     Duration `yaml:"max_timeout" doc:"Longest timeout a request may ask for."`
	DefaultOutput  Bytes    `yaml:"default_output" doc:"Output kept of each of stdout and stderr of a command that is not streamed, when the request does not say; the rest is dropped and flagged."`
	MaxOutput      Bytes    `yaml:"max_output" doc:"Most output a request may ask to be kept."`
	MaxStream      Bytes    `yaml:"max_stream" doc:"Output kept of each of stdout and stderr of an execution or job; the rest is dropped and flagged."`
	MaxStreams     Bytes    `yaml:"max_streams" doc:"Output and input of all executions of this server that are kept, looked at every minute; of more, the executions that ended first are forgotten with theirs. Those that run are left alone."`
	Retention      Duration `yaml:"retention" doc:"How long executions and their output are kept after their end."`
	MaxKept        int      `yaml:"max_kept" doc:"Ended executions of one sandbox that are kept; of more the oldest are forgotten, with their output."`
}

// Secrets says how secrets, such as the passwords of registries, are encrypted.
type Secrets struct {
	KeyFile string `yaml:"key_file" doc:"File with the keys that secrets in the database are encrypted with; made when it is not there. Without it they are lost: back it up, elsewhere than the database. Empty: state_dir/secret.key. The variable MODBOX_SECRET_KEY may have the keys instead."`
}

// Audit says how much of the audit log is kept.
type Audit struct {
	Retention Duration `yaml:"retention" doc:"How long records of the audit log are kept."`
	MaxBytes  Bytes    `yaml:"max_bytes" doc:"Size of the records that are kept; of more the oldest are removed, however old they are. The database takes about twice as much for them."`
}

// Backup says which backups the server makes by itself; docs/backup.md says what is in them.
type Backup struct {
	Every     Duration `yaml:"every" doc:"How often the server makes a backup of its state by itself, while it runs. 0: never; \"modbox backup\" makes one at any time."`
	Directory string   `yaml:"directory" doc:"Where backups are made. Should be on another disk than state_dir. Empty: state_dir/backups."`
	Keep      int      `yaml:"keep" doc:"Backups in backup.directory that are kept, the newest; older ones of those that the server or \"modbox backup\" named are removed. 0: all."`
	Images    string   `yaml:"images" doc:"Images that are in a backup: needed (those of snapshots, and of live sandboxes and their checkpoints), all, or none."`
}

// Default returns the defaults. Those that depend on the user, its environment
// or the host are empty or 0, and filled in by Load.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:7070",
		Log:    Log{Level: "info", Format: "text", Requests: "api"},
		HTTP: HTTP{
			ResponseTimeout: Duration(10 * time.Minute),
			MaxConnections:  1000,
			PathURLs:        "auto",
			DrainTimeout:    Duration(20 * time.Second),
		},
		Connections: Connections{Max: 10_000, MaxPerAddress: 500, MaxPerUser: 2000},
		Metrics:     Metrics{Access: "loopback"},
		Sandbox: Sandbox{
			DefaultMemory:    512 << 20,
			DefaultCPU:       1000,
			DefaultDisk:      2 << 30,
			MaxMemory:        8 << 30,
			MaxCPU:           8000,
			MaxDisk:          64 << 30,
			MaxCount:         1000,
			MaxProcesses:     4096,
			URLAccess:        string(sandbox.URLOpen),
			StartTimeout:     Duration(30 * time.Second),
			AnswerTimeout:    Duration(5 * time.Second),
			ReadinessTimeout: Duration(2 * time.Minute),
			Retention:        Duration(30 * 24 * time.Hour),
		},
		Pool: Pool{Size: 2},
		Build: Build{
			MaxCount:           2,
			Timeout:            Duration(15 * time.Minute),
			Memory:             2 << 30,
			Disk:               16 << 30,
			DependenciesMaxAge: Duration(7 * 24 * time.Hour),
		},
		Audit:       Audit{Retention: Duration(90 * 24 * time.Hour), MaxBytes: 1 << 30},
		Backup:      Backup{Keep: 7, Images: "needed"},
		Quota:       Quota{Sandboxes: Auto, Memory: Auto, CPU: Auto, Disk: Auto, CreatesPerMinute: Auto, Workspaces: 20},
		Disk:        Disk{Ballast: 64 << 20, EvictBelow: Auto},
		Quarantine:  Quarantine{MaxAge: Duration(14 * 24 * time.Hour), MaxBytes: Auto},
		Capacity:    Capacity{MemoryOvercommit: Auto, MemoryReserve: Auto, DiskOvercommit: Auto},
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
	if c.RunDir == "" {
		c.RunDir = rootRunDir("/run/modbox", c.StateDir)
		if !root {
			base := getenv("XDG_RUNTIME_DIR")
			if base == "" {
				base = filepath.Join(os.TempDir(), fmt.Sprintf("modbox-%d", os.Geteuid()))
			}
			c.RunDir = filepath.Join(base, "modbox")
		}
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
	for _, dir := range []*string{&c.StateDir, &c.RunDir, &c.Secrets.KeyFile, &c.Backup.Directory} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", *dir, err)
		}
		*dir = abs
	}
	return nil
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

// validate returns every setting that cannot be, joined.
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
	if len(c.RunDir) > maxRunDir {
		bad("run_dir", "%q is %d bytes long; the limit is %d, as sockets are made below it", c.RunDir, len(c.RunDir), maxRunDir)
	}
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		bad("tls", "cert and key must be set together")
	}
	oneOf(bad, "log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf(bad, "log.format", c.Log.Format, "text", "json")
	oneOf(bad, "log.requests", c.Log.Requests, "off", "api", "all")
	oneOf(bad, "http.path_urls", c.HTTP.PathURLs, "auto", "on", "off")
	oneOf(bad, "metrics.access", c.Metrics.Access, "loopback", "token", "public")
	within(bad, "connections.max", c.Connections.Max, 16, 1<<20)
	within(bad, "connections.max_per_address", c.Connections.MaxPerAddress, 0, 1<<20)
	within(bad, "connections.max_per_user", c.Connections.MaxPerUser, 0, 1<<20)
	within(bad, "connections.max_sandbox_urls", c.Connections.MaxSandboxURLs, 0, c.Connections.Max)
	c.validateLimits(bad)
	return errors.Join(errs...)
}

func (c *Config) validateLimits(bad func(name, format string, args ...any)) {
	s := c.Sandbox
	within(bad, "sandbox.default_memory", s.DefaultMemory, sandbox.MemoryMin, s.MaxMemory)
	within(bad, "sandbox.default_cpu", s.DefaultCPU, sandbox.CPUMilliMin, s.MaxCPU)
	within(bad, "sandbox.default_disk", s.DefaultDisk, sandbox.DiskMin, s.MaxDisk)
	within(bad, "sandbox.max_count", s.MaxCount, 0, 1<<20)
	within(bad, "sandbox.max_processes", s.MaxProcesses, 32, 1<<20)
	within(bad, "sandbox.create_concurrency", s.CreateConcurrency, 1, 1000)
	within(bad, "pool.size", c.Pool.Size, 0, 1000)
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
	within(bad, "build.dependencies_max_age", c.Build.DependenciesMaxAge, Duration(time.Minute), Duration(10*365*24*time.Hour))
	within(bad, "quota.sandboxes", c.Quota.Sandboxes, Auto, 1<<20)
	within(bad, "quota.memory", c.Quota.Memory, Auto, 1<<60)
	within(bad, "quota.cpu", c.Quota.CPU, Auto, 1<<40)
	within(bad, "quota.disk", c.Quota.Disk, Auto, 1<<60)
	within(bad, "quota.creates_per_minute", c.Quota.CreatesPerMinute, Auto, 1<<20)
	within(bad, "disk.ballast", c.Disk.Ballast, 0, 1<<40)
	within(bad, "disk.evict_below", c.Disk.EvictBelow, 0, 1<<50)
	within(bad, "quarantine.max_age", c.Quarantine.MaxAge, 0, Duration(10*365*24*time.Hour))
	within(bad, "quarantine.max_bytes", c.Quarantine.MaxBytes, Auto, 1<<60)
	within(bad, "capacity.memory_overcommit", c.Capacity.MemoryOvercommit, Auto, 1000)
	within(bad, "capacity.memory_reserve", c.Capacity.MemoryReserve, Auto, 1<<50)
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
	if c.Backup.Every != 0 {
		within(bad, "backup.every", c.Backup.Every, Duration(time.Minute), Duration(10*365*24*time.Hour))
	}
	within(bad, "backup.keep", c.Backup.Keep, 0, 1<<20)
	oneOf(bad, "backup.images", c.Backup.Images, "needed", "all", "none")
	within(bad, "images.stall_timeout", c.Images.StallTimeout, Duration(time.Second), Duration(time.Hour))
	within(bad, "images.recheck_interval", c.Images.RecheckInterval, 0, Duration(10*365*24*time.Hour))
	_, err := ociname.NewRegistry(c.Images.DefaultRegistry, ociname.StrictValidation)
	if (err != nil || !sandbox.IsRegistryHost(c.Images.DefaultRegistry)) && c.Images.DefaultRegistry != "" {
		bad("images.default_registry", "%q is not a registry such as docker.io or registry.example.com:5000", c.Images.DefaultRegistry)
	}
	within(bad, "http.drain_timeout", c.HTTP.DrainTimeout, 0, Duration(time.Hour))
}

func oneOf(bad func(name, format string, args ...any), name, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	bad(name, "%q is none of %s", value, strings.Join(allowed, ", "))
}

func within[T interface {
	int | Duration | Bytes | CPU | Count | Factor
}](bad func(name, format string, args ...any), name string, value, low, high T) {
	if value < low || value > high {
		bad(name, "%v is not between %v and %v", value, low, high)
	}
}
