// Package quota decides whether a workspace may have another object, and which requests wait.
//
// A [Controller] knows the limits and the use of every workspace. A request that takes
// something is admitted in four steps: it takes tokens of its workspace's creation rate, it
// leaves capacity for requests that wait already, the disk of the server must not be nearly full,
// and the store compares limits and use in the transaction in which it records the request.
// Only the last step is final; the others spare the database. A refused request that may wait
// joins the admission queue.
//
// The package calls the [Store] and the [Disk], never back into its user but for the function
// that records a request, which it calls without a lock.
package quota

import (
	"context"
	"fmt"
	"log/slog"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/broadcast"
	"github.com/modbox/modbox/internal/sandbox"
)

// Store keeps quotas and reservations. Its methods are safe for concurrent use.
type Store interface {
	// Quota returns the limits set for a workspace. Errors: NotFound.
	Quota(ctx context.Context, ws sandbox.WorkspaceID) (Limits, error)
	// SetQuota replaces the limits set for a workspace. Errors: NotFound.
	SetQuota(ctx context.Context, ws sandbox.WorkspaceID, q Limits) error
	// QuotaUse returns the recorded use of each limit by a workspace.
	QuotaUse(ctx context.Context, ws sandbox.WorkspaceID) (Use, error)
	// Promised returns what all sandboxes and builds are limited to together.
	Promised(ctx context.Context) (Promise, error)
	// BeginBuild records a reservation for the boxes of a build, which run one after the other, of
	// as much of most as fits, and returns that. Errors: QuotaExceeded when least does not fit;
	// a.Refuse.
	BeginBuild(ctx context.Context, id sandbox.ID, ws sandbox.WorkspaceID, least, most sandbox.Resources, a Admission) (sandbox.Resources, error)
	// EndBuild deletes a reservation. Idempotent.
	EndBuild(ctx context.Context, id sandbox.ID) error
	// Builds returns the ids of all reservations, also of other servers.
	Builds(ctx context.Context) ([]sandbox.ID, error)
}

// Disk knows what no row of the [Store] does. Its methods are safe for concurrent use.
type Disk interface {
	// Unrecorded returns the bytes of a workspace on the disk that are in no row.
	Unrecorded(ws sandbox.WorkspaceID) UnrecordedDisk
	// FreeCache removes as much of the build cache of a workspace as frees so many bytes, and
	// reports whether it could.
	FreeCache(ctx context.Context, ws sandbox.WorkspaceID, bytes int64) (bool, error)
	// CheckFree returns why nothing may be added to the disk of the server, of which least
	// bytes must be free: an error with code Unavailable.
	CheckFree(least int64) error
	// Evicting reports whether sandboxes are being ended to free the disk of the server.
	Evicting() bool
}

// Config are the limits of the server.
type Config struct {
	// Owner has the shards of the server, in which the ids of its reservations are; nil for all.
	Owner *sandbox.Ownership
	// Quota is the quota of a workspace that has no other.
	Quota Limits
	// QuotaNow, unless nil, returns Quota as it is at this time.
	QuotaNow func() Limits
	// Defaults are the default resources of a sandbox, Build the default resources of a box of a
	// build; Max is the most that a sandbox may have.
	Defaults, Build, Max sandbox.Resources
	// MaxSandboxes bounds the sandboxes of the server that are made or run; 0 is no limit.
	MaxSandboxes int
	// Promise bounds the memory and disk that are promised in all. PromiseNow, unless nil, returns it as it is at this time.
	Promise    Promise
	PromiseNow func() Promise
	// MinFreeDisk is the number of bytes that must be free for anything new on the disk but
	// sandboxes, SandboxFreeDisk for a sandbox; 0 is no limit.
	MinFreeDisk, SandboxFreeDisk int64
}

// Controller is the admission control of a server. Safe for concurrent use.
type Controller struct {
	cfg   Config
	store Store
	disk  Disk
	log   *slog.Logger

	queue    *queue
	buckets  buckets
	diskWait *diskWait
	released broadcast.Broadcast // capacity may be free
	reserved ids                 // of the reservations of this server
	waits    *prometheus.HistogramVec
}

// New returns a controller. It needs no closing; [Controller.StopWaiting] ends all waits.
func New(cfg Config, store Store, disk Disk, log *slog.Logger) *Controller {
	return &Controller{cfg: cfg, store: store, disk: disk, log: log, queue: newQueue(), diskWait: newDiskWait(), waits: newWaits()}
}

// Report is the quota of a workspace and what the workspace has of it.
type Report struct {
	// Limits are the effective limits; Set is the part that was set for this workspace.
	Limits, Set Limits
	Used        Use
}

// quotaCountMax and quotaSizeMax are far over what any host has.
const (
	quotaCountMax = 1 << 20
	quotaSizeMax  = 1 << 60
)

// Report returns the quota of a workspace. Errors: NotFound.
func (c *Controller) Report(ctx context.Context, ws sandbox.WorkspaceID) (Report, error) {
	set, err := c.store.Quota(ctx, ws)
	if err != nil {
		return Report{}, err
	}
	used, err := c.store.QuotaUse(ctx, ws)
	if err != nil {
		return Report{}, err
	}
	used.Disk.AddUnrecorded(c.disk.Unrecorded(ws))
	limits := set.Over(c.defaults())
	own := limits.SandboxMax()
	for _, f := range Fields {
		limits[f.Limit] = *f.Of(&c.cfg.Max)
		if n := *f.Of(&own); n > 0 {
			limits[f.Limit] = min(n, limits[f.Limit])
		}
	}
	return Report{Limits: limits, Set: set, Used: used}, nil
}

// Set replaces the limits set for a workspace; a limit that q omits is the
// server's default from then on. Sandboxes that are there stay, however many.
// Errors: Invalid, naming the limit; NotFound.
func (c *Controller) Set(ctx context.Context, ws sandbox.WorkspaceID, q Limits) (Report, error) {
	if err := c.cfg.validate(q); err != nil {
		return Report{}, err
	}
	if err := c.store.SetQuota(ctx, ws, q); err != nil {
		return Report{}, err
	}
	c.Released()
	return c.Report(ctx, ws)
}

// validate checks a quota that is to be set. Errors: Invalid, naming the limit.
func (c *Config) validate(q Limits) error {
	most := map[Limit]int64{
		LimitSandboxes: quotaCountMax, LimitCreates: quotaCountMax,
		LimitMemory: quotaSizeMax, LimitCPU: quotaSizeMax, LimitDisk: quotaSizeMax, LimitArchive: quotaSizeMax,
	}
	for limit, n := range q {
		if high, ok := most[limit]; ok && (n < 0 || n > high) {
			return sandbox.InvalidField(string(limit), "must be 0, which is no limit, to %d", high)
		}
	}
	for _, f := range Fields {
		if n, ok := q[f.Limit]; ok && n != 0 && (n < f.Min || n > *f.Of(&c.Max)) {
			return sandbox.InvalidField(string(f.Limit), "must be %s to %s, the maximum of this server, or 0 for that", f.Show(f.Min), f.Show(*f.Of(&c.Max)))
		}
	}
	return nil
}

// Limits returns the quota that counts for a workspace. Errors: NotFound.
func (c *Controller) Limits(ctx context.Context, ws sandbox.WorkspaceID) (Limits, error) {
	set, err := c.store.Quota(ctx, ws)
	if err != nil {
		return nil, fmt.Errorf("quota of workspace %s: %w", ws, err)
	}
	return set.Over(c.defaults()), nil
}

// most returns what may be promised in all.
func (c *Controller) most() Promise {
	if c.cfg.PromiseNow != nil {
		return c.cfg.PromiseNow()
	}
	return c.cfg.Promise
}

// defaults returns the quota of a workspace that has no other.
func (c *Controller) defaults() Limits {
	if c.cfg.QuotaNow != nil {
		return c.cfg.QuotaNow()
	}
	return c.cfg.Quota
}

// Record calls record, which records an object of a workspace if it fits. When record fails for
// lack of disk, Record evicts what lacks from the build cache of the workspace and retries, until the cache cannot free
// that: an evicted layer may have counted with an image below it, which then counts with the object.
// Errors: record's.
func (c *Controller) Record(ctx context.Context, a Admission, ws sandbox.WorkspaceID, record func(Admission) error) error {
	for {
		err := record(a)
		if !c.freeCache(ctx, ws, err) {
			return err
		}
		a.Unrecorded = c.disk.Unrecorded(ws)
	}
}

// freeCache removes as much of the build cache of a workspace as err says is missing on the disk,
// and reports whether that was enough.
func (c *Controller) freeCache(ctx context.Context, ws sandbox.WorkspaceID, err error) bool {
	short := DiskShort(err)
	if short == 0 {
		return false
	}
	made, evictErr := c.disk.FreeCache(ctx, ws, short)
	if evictErr != nil && ctx.Err() == nil {
		c.log.Error("cannot remove the build cache to free disk", "workspace", ws, "error", evictErr)
	}
	return made
}

// CheckDisk returns why nothing more of a workspace may be kept on the disk, apart from what
// builds have reserved; it evicts the build cache for that. The result of long work is checked
// again when it is recorded. Errors: QuotaExceeded; Unavailable when the disk of the server is
// nearly full.
func (c *Controller) CheckDisk(ctx context.Context, ws sandbox.WorkspaceID) error {
	return c.CheckDiskReserved(ctx, ws, math.MaxInt64)
}

// CheckDiskReserved is CheckDisk where at most so many reserved bytes do not count.
func (c *Controller) CheckDiskReserved(ctx context.Context, ws sandbox.WorkspaceID, reserved int64) error {
	err := c.CheckDiskFor(ctx, ws, reserved, 0)
	if c.freeCache(ctx, ws, err) {
		return c.CheckDiskFor(ctx, ws, reserved, 0)
	}
	return err
}

// CheckDiskFor returns why add more bytes of a workspace, or with 0 an unknown number, may not be
// kept on the disk, where at most so many reserved bytes do not count. It evicts nothing. Errors:
// as CheckDisk.
func (c *Controller) CheckDiskFor(ctx context.Context, ws sandbox.WorkspaceID, reserved, add int64) error {
	if err := c.disk.CheckFree(c.cfg.MinFreeDisk); err != nil {
		return err
	}
	r, err := c.Report(ctx, ws)
	if err != nil {
		return err
	}
	r.Used.Disk.Builds -= min(reserved, r.Used.Disk.Builds)
	return r.Limits.AdmitsDisk(r.Used.Disk, add)
}
