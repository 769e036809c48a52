package lifecycle

import (
	"cmp"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/archiver"
	"github.com/modbox/modbox/internal/creation"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/pressure"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/template"
	"github.com/modbox/modbox/internal/timelimit"
)

// Config are the service's settings. Zero values mean the defaults that the comments name.
type Config struct {
	// Defaults are the resources of a sandbox when neither its request nor its
	// image says; 512 MiB of memory, one core and 2 GiB of disk.
	Defaults sandbox.Resources
	// Max bounds the resources that a sandbox may ask for; 8 GiB of memory, eight cores and 64 GiB of
	// disk.
	Max sandbox.Resources
	// MaxSandboxes is how many sandboxes may be provisioning or running at once; 0 means no limit.
	MaxSandboxes int
	// Quota is the default quota of a workspace; nil for no limits. Max also limits the resources of a
	// single sandbox.
	Quota quota.Limits
	// QuotaNow, unless nil, returns Quota as it is at this time.
	QuotaNow func() quota.Limits
	// Promise is how much memory and disk all sandboxes, builds and pool boxes together
	// may be limited to.
	Promise quota.Promise
	// PromiseNow, unless nil, returns Promise as it is at this time.
	PromiseNow func() quota.Promise
	// MinFreeDisk is the number of bytes that must be free on the disk of the checkpoints before
	// anything new but a sandbox may take space; 0 for none. SandboxFreeDisk is the same for new
	// sandboxes, which take little at first.
	MinFreeDisk, SandboxFreeDisk int64
	// MaxProcesses is how many processes and threads one sandbox may have; 4096.
	MaxProcesses int
	// CreateConcurrency is how many sandboxes are started at the same time; 16.
	CreateConcurrency int
	// MaxBuilds is how many images are pulled at the same time, how many get their
	// dependencies, and how many are built from Dockerfiles; 2. Each of the latter two
	// may take a box beyond MaxSandboxes.
	MaxBuilds int
	// PoolSize is the number of started boxes that wait for sandboxes; 0 for none. They do not count
	// for MaxSandboxes, whatever their resources.
	PoolSize int
	// Templates are the settings of memory templates; CheckFree is the service's.
	Templates template.Config
	// Build are the limits of a box in which an image is made; 2 GiB of memory, two
	// cores and 16 GiB of disk, within Max.
	Build sandbox.Resources
	// PackagesMaxAge is how long installed dependencies are used again before they are
	// installed anew; 7 days. Negative means for ever.
	PackagesMaxAge time.Duration
	// PipIndexURL is the index of Python packages; "" is the index that the image uses.
	PipIndexURL string
	// ImageTimeout is how long an image may take to be made, or dependencies to be
	// installed, once it is their turn; 10 minutes.
	ImageTimeout time.Duration
	// AnswerTimeout is for how long an agent may be silent while a call waits for its
	// answer; 0 is no bound.
	AnswerTimeout time.Duration
	// StartTimeout is how long a box may take from its creation until its agent is configured; 30 s.
	StartTimeout time.Duration
	// ReadinessTimeout is how long the readiness probe may fail; 2 minutes.
	ReadinessTimeout time.Duration
	// SweepInterval is how often stuck and orphaned things are looked for; 5 s.
	SweepInterval time.Duration
	// Retention is the time for which ended sandboxes and their events stay; 30 days. Negative means
	// for ever.
	Retention time.Duration
	// StreamMaxBytes bounds each output of an execution; 64 MiB.
	StreamMaxBytes int64
	// StreamTotalBytes is how much the streams of all executions may take, about;
	// of more the executions that ended first are forgotten; 64 GiB.
	StreamTotalBytes int64
	// StreamRetention is the time for which an execution and its output stay after its end; 24 hours.
	StreamRetention time.Duration
	// MaxEndedExecutions bounds the ended executions of a sandbox; the newest stay; 1000.
	MaxEndedExecutions int
	// SandboxURL returns the URL for a host label, told to the sandbox as
	// MODBOX_SANDBOX_URL; nil for none.
	SandboxURL func(label string) string
	// Domain is the domain beneath which sandboxes have hosts; "" for none. Development servers
	// in sandboxes learn that they may answer for these hosts.
	Domain string

	// NetworkCA holds certificates (PEM) that sandboxes with network trust in addition to the
	// certificates in their images; nil for none.
	NetworkCA []byte

	// CheckpointDir is the directory of saved sandboxes, an absolute path; without it nothing can be
	// paused, checkpointed or forked.
	CheckpointDir string
	// Archive are the settings of archived sandboxes; Observe is the service's.
	Archive archiver.Config
	// MaxCheckpointBytes is how much the named checkpoints of one sandbox may take; 64 GiB.
	MaxCheckpointBytes int64
	// AutoCheckpoints is how many automatic checkpoints are made at once; 1.
	AutoCheckpoints int
	// Pressure says when idle sandboxes are paused because the machine is short of memory.
	Pressure pressure.Options
	// MaxSnapshots is how many snapshots a workspace may have, MaxSnapshotBytes how
	// much they may take; 1000 and 256 GiB.
	MaxSnapshots     int
	MaxSnapshotBytes int64
	// SpoolDir is the directory of unnamed temporary files; "" is the system's directory for temporary
	// files.
	SpoolDir string

	// shortest are the shortest time limits that callers may ask for. Only tests change them.
	shortest timelimit.Bounds
	// transferTimeout is how long saving a sandbox waits for files that are on their
	// way into it or out of it, whose connections it breaks; 5 s. Only tests change it.
	transferTimeout time.Duration
	// pauseWait is how long a pause without memory waits for the ends of processes. Only tests change it.
	pauseWait time.Duration
	// agentTimeout and commandTimeout are how long the agent of a running sandbox may
	// not answer until its executions, and its commands, are given up. Only tests change them.
	agentTimeout, commandTimeout time.Duration
}

// promise returns how much memory and disk may be promised in all.
func (c *Config) promise() quota.Promise {
	if c.PromiseNow != nil {
		return c.PromiseNow()
	}
	return c.Promise
}

// Limits of the service that are not worth a setting.
const (
	destroyTimeout = 60 * time.Second // of one attempt to destroy a box
	attemptTimeout = 5 * time.Second  // of one call to an agent or probe that is not up yet
	purgeInterval  = time.Minute
	purgeBatch     = 500
	settleWorkers  = 16
	sweepWorkers   = 4
	sweepGrace     = 3 * time.Second // a sweep waits for hosts so long after the end of the service
)

// withDefaults returns c with its zero values replaced, or an error naming a
// setting that makes no sense.
func (c Config) withDefaults() (Config, error) {
	c.Defaults.MemoryBytes = cmp.Or(c.Defaults.MemoryBytes, 512<<20)
	c.Defaults.CPUMilli = cmp.Or(c.Defaults.CPUMilli, 1000)
	c.Defaults.DiskBytes = cmp.Or(c.Defaults.DiskBytes, 2<<30)
	c.Max.MemoryBytes = cmp.Or(c.Max.MemoryBytes, max(8<<30, c.Defaults.MemoryBytes))
	c.Max.CPUMilli = cmp.Or(c.Max.CPUMilli, max(8000, c.Defaults.CPUMilli))
	c.Max.DiskBytes = cmp.Or(c.Max.DiskBytes, max(64<<30, c.Defaults.DiskBytes))
	c.MaxProcesses = cmp.Or(c.MaxProcesses, driver.DefaultMaxProcesses)
	c.CreateConcurrency = cmp.Or(c.CreateConcurrency, 16)
	c.MaxBuilds = cmp.Or(c.MaxBuilds, 2)
	c.Build.MemoryBytes = cmp.Or(c.Build.MemoryBytes, min(2<<30, c.Max.MemoryBytes))
	c.Build.CPUMilli = cmp.Or(c.Build.CPUMilli, min(2000, c.Max.CPUMilli))
	c.Build.DiskBytes = cmp.Or(c.Build.DiskBytes, min(16<<30, c.Max.DiskBytes))
	c.PackagesMaxAge = cmp.Or(c.PackagesMaxAge, 7*24*time.Hour)
	c.ImageTimeout = cmp.Or(c.ImageTimeout, 10*time.Minute)
	c.StartTimeout = cmp.Or(c.StartTimeout, 30*time.Second)
	c.ReadinessTimeout = cmp.Or(c.ReadinessTimeout, 2*time.Minute)
	c.SweepInterval = cmp.Or(c.SweepInterval, 5*time.Second)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.MaxCheckpointBytes = cmp.Or(c.MaxCheckpointBytes, 64<<30)
	c.AutoCheckpoints = cmp.Or(c.AutoCheckpoints, 1)
	c.MaxSnapshots = cmp.Or(c.MaxSnapshots, 1000)
	c.MaxSnapshotBytes = cmp.Or(c.MaxSnapshotBytes, 256<<30)
	c.StreamMaxBytes = cmp.Or(c.StreamMaxBytes, sandbox.StreamMax)
	c.StreamTotalBytes = cmp.Or(c.StreamTotalBytes, 64<<30)
	c.StreamRetention = cmp.Or(c.StreamRetention, 24*time.Hour)
	c.MaxEndedExecutions = cmp.Or(c.MaxEndedExecutions, 1000)
	c.shortest = cmp.Or(c.shortest, timelimit.Bounds{TTL: sandbox.TTLMin, Idle: sandbox.IdleMin})
	c.transferTimeout = cmp.Or(c.transferTimeout, 5*time.Second)
	c.pauseWait = cmp.Or(c.pauseWait, execution.PauseWait)

	for _, r := range quota.Fields {
		if d, m := *r.Of(&c.Defaults), *r.Of(&c.Max); d < r.Min || d > m || m > r.Max {
			return c, fmt.Errorf("lifecycle settings: %s of a sandbox: default %s, maximum %s, want at least %s and the default within the maximum",
				r.Name, r.Show(d), r.Show(m), r.Show(r.Min))
		}
	}
	if c.MaxSandboxes < 0 || c.MaxProcesses < 0 || c.CreateConcurrency < 0 || c.MaxBuilds < 0 || c.PoolSize < 0 || c.ImageTimeout < 0 || c.StartTimeout < 0 || c.AnswerTimeout < 0 || c.ReadinessTimeout < 0 || c.SweepInterval < 0 {
		return c, fmt.Errorf("lifecycle settings: numbers and durations must not be negative")
	}
	return c, nil
}

// planning returns the settings of package creation.
func (c *Config) planning() *creation.Config {
	return &creation.Config{Defaults: c.Defaults, Max: c.Max, Shortest: c.shortest}
}
