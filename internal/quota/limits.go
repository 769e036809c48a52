package quota

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Limit names a limit of a workspace.
type Limit string

// The limits of a workspace. LimitSandboxes, LimitMemory and LimitCPU count sandboxes that are
// provisioning, running, pausing or resuming; LimitMemory and LimitCPU also count builds.
const (
	LimitSandboxes Limit = "sandboxes"
	LimitMemory    Limit = "memory"  // bytes, of the sandboxes' limits
	LimitCPU       Limit = "cpu"     // thousandths of a core, of the sandboxes' limits
	LimitDisk      Limit = "disk"    // bytes, of everything in [DiskUse]
	LimitArchive   Limit = "archive" // bytes in the object store
	LimitCreates   Limit = "creates_per_minute"
	// The most that a single sandbox may ask for.
	LimitSandboxMemory Limit = "sandbox_memory"
	LimitSandboxCPU    Limit = "sandbox_cpu"
	LimitSandboxDisk   Limit = "sandbox_disk"
)

// AllLimits lists every limit.
var AllLimits = []Limit{
	LimitSandboxes, LimitMemory, LimitCPU, LimitDisk, LimitArchive, LimitCreates, LimitSandboxMemory, LimitSandboxCPU, LimitSandboxDisk,
}

// Limits are the quota of a workspace. 0 is no limit. A missing limit has the value in the
// limits below these (see [Limits.Over]), and is no limit if there are none.
type Limits map[Limit]int64

// Over returns q, with the limits of base where q has none.
func (q Limits) Over(base Limits) Limits {
	merged := maps.Clone(base)
	if merged == nil {
		merged = Limits{}
	}
	maps.Copy(merged, q)
	return merged
}

// Counts reports whether q limits the total of all sandboxes.
func (q Limits) Counts() bool {
	return q[LimitSandboxes] > 0 || q[LimitMemory] > 0 || q[LimitCPU] > 0 || q[LimitDisk] > 0
}

// SandboxMax returns the most that a single sandbox may ask for; a field that is 0 has no limit.
func (q Limits) SandboxMax() sandbox.Resources {
	return sandbox.Resources{MemoryBytes: q[LimitSandboxMemory], CPUMilli: q[LimitSandboxCPU], DiskBytes: q[LimitSandboxDisk]}
}

// Use is how much a workspace uses of its limits.
type Use struct {
	Sandboxes   int64
	MemoryBytes int64
	CPUMilli    int64
	Disk        DiskUse
	// ArchiveBytes is the saved states in the object store, also released states.
	ArchiveBytes int64
}

// Without subtracts the use of a sandbox.
func (u *Use) Without(sb *sandbox.Sandbox) {
	switch {
	case sb.State == sandbox.Destroying || sb.State.Ended():
	case sb.State == sandbox.Paused && !sb.ArchivedAt.IsZero():
	case sb.State == sandbox.Paused && sb.SavedBytes > 0:
		u.Disk.Paused -= sb.SavedBytes
	case sb.State == sandbox.Paused: // paused by a version that did not measure it
		u.Disk.Paused -= sb.Resources.DiskBytes
	default:
		u.Sandboxes--
		u.MemoryBytes -= sb.Resources.MemoryBytes
		u.CPUMilli -= sb.Resources.CPUMilli
		u.Disk.Sandboxes -= sb.Resources.DiskBytes
	}
}

// DiskUse is the bytes of a workspace on the server's disk.
type DiskUse struct {
	// Sandboxes is the disk limits of sandboxes that are not paused.
	Sandboxes int64
	// Paused is the files and memory of paused sandboxes.
	Paused int64
	// Checkpoints and Snapshots are their sizes.
	Checkpoints int64
	Snapshots   int64
	// Streams is input and output of executions, as of a minute ago.
	Streams int64
	// Builds is the disk limits of the boxes of running builds and installs; an install counts
	// only beyond the limit of the sandbox that waits for it.
	Builds int64
	// Uploads is the files of builds that wait for the end of their upload.
	Uploads int64
	// Images is the images that it has built. BuildCache is the cache of its builds and the
	// dependencies that it has used; it is evicted when something needs the space.
	Images     int64
	BuildCache int64
}

// Total returns the sum.
func (d DiskUse) Total() int64 {
	return d.Sandboxes + d.Paused + d.Checkpoints + d.Snapshots + d.Streams + d.Builds + d.Uploads + d.Images + d.BuildCache
}

// AddUnrecorded adds h.
func (d *DiskUse) AddUnrecorded(h UnrecordedDisk) {
	d.Streams, d.Uploads = d.Streams+h.Streams, d.Uploads+h.Uploads
	d.Images, d.BuildCache = d.Images+h.Images, d.BuildCache+h.BuildCache
}

// UnrecordedDisk is the part of a [DiskUse] that is not in the database.
type UnrecordedDisk struct{ Streams, Uploads, Images, BuildCache int64 }

// Promise is the sum of the memory and disk limits of sandboxes and boxes. As a bound, 0 means
// none.
type Promise struct{ MemoryBytes, DiskBytes int64 }

// Add adds n boxes with the resources r.
func (p *Promise) Add(r sandbox.Resources, n int) {
	p.MemoryBytes += int64(n) * r.MemoryBytes
	p.DiskBytes += int64(n) * r.DiskBytes
}

// Admits returns an error unless n more boxes with the resources r fit beside the promised
// resources: it wraps [ErrServerFull], or [ErrNeverFits] if they exceed the bound by themselves.
func (p Promise) Admits(promised Promise, r sandbox.Resources, n int) error {
	var more Promise
	more.Add(r, n)
	for _, c := range []struct {
		what, setting         string
		most, promised, extra int64
	}{
		{"memory", "capacity.memory_overcommit", p.MemoryBytes, promised.MemoryBytes, more.MemoryBytes},
		{"disk", "capacity.disk_overcommit", p.DiskBytes, promised.DiskBytes, more.DiskBytes},
	} {
		if c.most <= 0 || c.extra <= 0 || c.promised+c.extra <= c.most {
			continue
		}
		reason := ErrServerFull
		if c.extra > c.most {
			reason = ErrNeverFits
		}
		e := sandbox.Wrap(sandbox.QuotaExceeded, reason, "this server promises its sandboxes at most %s of %s (setting %s), of which %s are promised, and this needs %s; pause or destroy some sandboxes, or ask an administrator",
			showMebibytes(c.most), c.what, c.setting, showMebibytes(c.promised), showMebibytes(c.extra))
		e.RetryAfter = fullRetry
		return e
	}
	return nil
}

// Leaves returns r with as much of its memory and disk as fits beside the promised resources.
func (p Promise) Leaves(promised Promise, r sandbox.Resources) sandbox.Resources {
	if p.MemoryBytes > 0 {
		r.MemoryBytes = min(r.MemoryBytes, max(0, p.MemoryBytes-promised.MemoryBytes))
	}
	if p.DiskBytes > 0 {
		r.DiskBytes = min(r.DiskBytes, max(0, p.DiskBytes-promised.DiskBytes))
	}
	return r
}

// showMebibytes is sandbox.ShowBytes for sizes that need not be exact.
func showMebibytes(n int64) string { return sandbox.ShowBytes(n >> 20 << 20) }

// Admission has the limits that the store compares in the transaction in which it records
// something.
type Admission struct {
	// Limits are the server's; the workspace's own limits replace them.
	Limits Limits
	// Unrecorded is the disk use of the workspace that is not in the database.
	Unrecorded UnrecordedDisk
	// Most bounds the promises of the installation.
	Most Promise
	// MaxLive bounds the live sandboxes of the installation that are not paused; 0 means no limit.
	MaxLive int
	// Ahead has the number of sandboxes of each waiting request that comes first when the
	// installation is full.
	Ahead []int
	// Refuse, when not nil, is the reason to refuse everything new, whatever capacity is free.
	Refuse error
	// SharesRate is set if the workspace's creates in a minute are counted with what is recorded, for several servers.
	SharesRate bool
}

// WaitMax is how long a request may wait for capacity.
const WaitMax = 10 * time.Minute

// fullRetry is the RetryAfter of errors about capacity that is free again when something ends,
// at an unknown time.
const fullRetry = 10 * time.Second

// CheckWait checks for how long a request may wait for capacity. Errors: Invalid, naming the field.
func CheckWait(d time.Duration) error {
	if d < 0 || d > WaitMax {
		return sandbox.InvalidField("wait_for_quota_seconds", "must be 0 to %d", int(WaitMax/time.Second))
	}
	return nil
}

// AdmitsLive returns an error that wraps [ErrServerFull] unless n more sandboxes fit into the
// installation beside the live sandboxes and the requests ahead. A request ahead that does not
// fit itself holds nobody up.
func (a Admission) AdmitsLive(live, n int) error {
	if a.MaxLive <= 0 {
		return nil
	}
	free := a.MaxLive - live
	for _, want := range a.Ahead {
		if want <= free {
			free -= want
		}
	}
	switch {
	case n > a.MaxLive:
		e := sandbox.Wrap(sandbox.QuotaExceeded, ErrNeverFits, "this server runs at most %d sandboxes at once, and this is %d", a.MaxLive, n)
		e.RetryAfter = fullRetry
		return e
	case n > free:
		e := sandbox.Wrap(sandbox.QuotaExceeded, ErrServerFull, "this server runs at most %d sandboxes at once; pause or destroy some, or try again when some have ended", a.MaxLive)
		e.RetryAfter = fullRetry
		return e
	}
	return nil
}

// Admits returns an error unless n sandboxes with the resources r fit beside the use. The error
// has code QuotaExceeded and names the limit, its value and the use; it wraps [ErrNeverFits] if
// the sandboxes exceed the limit by themselves.
func (q Limits) Admits(used Use, r sandbox.Resources, n int64) error {
	return q.admits([]claim{
		{LimitSandboxes, used.Sandboxes, n, func(n int64) string { return fmt.Sprint(n) }},
		{LimitMemory, used.MemoryBytes, n * r.MemoryBytes, sandbox.ShowBytes},
		{LimitCPU, used.CPUMilli, n * r.CPUMilli, sandbox.ShowMilli},
		{LimitDisk, used.Disk.Total(), n * r.DiskBytes, sandbox.ShowBytes},
	})
}

// AdmitsBuild is Admits for the boxes of a build. They are no sandboxes, and DiskUse.BuildCache
// does not count: the build may need it.
func (q Limits) AdmitsBuild(used Use, r sandbox.Resources) error {
	return q.admits([]claim{
		{LimitMemory, used.MemoryBytes, r.MemoryBytes, sandbox.ShowBytes},
		{LimitCPU, used.CPUMilli, r.CPUMilli, sandbox.ShowMilli},
		{LimitDisk, used.Disk.Total() - used.Disk.BuildCache, r.DiskBytes, sandbox.ShowBytes},
	})
}

// Leaves returns as much of r as [Limits.AdmitsBuild] admits beside the use.
func (q Limits) Leaves(used Use, r sandbox.Resources) sandbox.Resources {
	if most := q[LimitMemory]; most > 0 {
		r.MemoryBytes = min(r.MemoryBytes, max(0, most-used.MemoryBytes))
	}
	if most := q[LimitCPU]; most > 0 {
		r.CPUMilli = min(r.CPUMilli, max(0, most-used.CPUMilli))
	}
	if most := q[LimitDisk]; most > 0 {
		r.DiskBytes = min(r.DiskBytes, max(0, most-used.Disk.Total()+used.Disk.BuildCache))
	}
	return r
}

// claim is the use and the demand of a limit.
type claim struct {
	limit     Limit
	used, add int64
	show      func(int64) string
}

func (q Limits) admits(claims []claim) error {
	for _, c := range claims {
		switch most := q[c.limit]; {
		case most <= 0 || c.add == 0:
		case c.add > most:
			e := sandbox.Wrap(sandbox.QuotaExceeded, ErrNeverFits, "the workspace's quota of %s is %s, and this alone needs %s; ask for less, or an administrator for more",
				c.limit, c.show(most), c.show(c.add))
			e.RetryAfter = fullRetry
			return e
		case c.used+c.add > most:
			return full(c.limit, c.used+c.add-most, c.show(most), c.show(c.used), "and this needs "+c.show(c.add)+" more")
		}
	}
	return nil
}

// AdmitsDisk is Admits for something that takes only disk: add bytes, where 0 is an unknown number.
func (q Limits) AdmitsDisk(used DiskUse, add int64) error {
	total, most := used.Total(), q[LimitDisk]
	switch {
	case most <= 0:
		return nil
	case total+add > most && add > 0:
		return full(LimitDisk, total+add-most, sandbox.ShowBytes(most), sandbox.ShowBytes(total), "and this needs "+sandbox.ShowBytes(add)+" more")
	case total >= most:
		return full(LimitDisk, total+1-most, sandbox.ShowBytes(most), sandbox.ShowBytes(total), "which leaves nothing for this")
	}
	return nil
}

// AdmitsArchive is Admits for a saved state in the object store.
func (q Limits) AdmitsArchive(used Use, add int64) error {
	return q.admits([]claim{{LimitArchive, used.ArchiveBytes, add, sandbox.ShowBytes}})
}

func full(limit Limit, short int64, most, used, rest string) error {
	e := sandbox.Errorf(sandbox.QuotaExceeded, "the workspace's quota of %s is %s, of which %s is used, %s; end or delete something, or ask an administrator for more", limit, most, used, rest)
	e.RetryAfter, e.Err = fullRetry, shortage{limit, short}
	return e
}

var (
	// ErrServerFull is wrapped by errors about the capacity of the installation.
	ErrServerFull = errors.New("the server is full")
	// ErrNeverFits is wrapped by errors about requests that no wait makes possible.
	ErrNeverFits = errors.New("it never fits")
)

// shortage is the amount that is missing in a limit.
type shortage struct {
	limit Limit
	short int64
}

func (s shortage) Error() string { return fmt.Sprintf("quota of %s: %d short", s.limit, s.short) }

// DiskShort returns how many bytes of disk a workspace lacks, for an error of [Limits.Admits] or
// [Limits.AdmitsDisk]; 0 for an error about something else.
func DiskShort(err error) int64 {
	var s shortage
	if errors.As(err, &s) && s.limit == LimitDisk {
		return s.short
	}
	return 0
}

// BehindOthers returns the error for a request that would overtake waiting requests.
func BehindOthers() error {
	e := sandbox.Errorf(sandbox.QuotaExceeded, "other requests of the workspace wait for its quota and come first; try again, or wait too")
	e.RetryAfter = fullRetry
	return e
}
