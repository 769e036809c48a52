package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"time"
)

// Limit names what a [Quota] limits.
type Limit string

// The limits of a workspace. Those of sandboxes, memory and CPU count what is
// being made, runs, or is being paused or resumed; memory and CPU builds, too.
const (
	LimitSandboxes Limit = "sandboxes"
	LimitMemory    Limit = "memory" // bytes, of the sandboxes' limits
	LimitCPU       Limit = "cpu"    // thousandths of a core, of the sandboxes' limits
	LimitDisk      Limit = "disk"   // bytes, of everything that [DiskUse] has
	LimitCreates   Limit = "creates_per_minute"
	// The most that one sandbox may ask for.
	LimitSandboxMemory Limit = "sandbox_memory"
	LimitSandboxCPU    Limit = "sandbox_cpu"
	LimitSandboxDisk   Limit = "sandbox_disk"
)

// Limits lists every limit.
var Limits = []Limit{
	LimitSandboxes, LimitMemory, LimitCPU, LimitDisk, LimitCreates, LimitSandboxMemory, LimitSandboxCPU, LimitSandboxDisk,
}

// Quota is what a workspace may have. A limit of 0 is none; one that is missing is
// left to the quota that this one is laid over, and none where there is no other.
type Quota map[Limit]int64

// Over returns q with what it leaves open as base has it.
func (q Quota) Over(base Quota) Quota {
	merged := maps.Clone(base)
	if merged == nil {
		merged = Quota{}
	}
	maps.Copy(merged, q)
	return merged
}

// Counts reports whether q limits what sandboxes take together.
func (q Quota) Counts() bool {
	return q[LimitSandboxes] > 0 || q[LimitMemory] > 0 || q[LimitCPU] > 0 || q[LimitDisk] > 0
}

// SandboxMax returns the most that one sandbox may ask for; a field that is 0 has no limit.
func (q Quota) SandboxMax() Resources {
	return Resources{MemoryBytes: q[LimitSandboxMemory], CPUMilli: q[LimitSandboxCPU], DiskBytes: q[LimitSandboxDisk]}
}

// QuotaUse is how much a workspace has of what its quota limits.
type QuotaUse struct {
	Sandboxes   int64
	MemoryBytes int64
	CPUMilli    int64
	Disk        DiskUse
}

// Without takes away what a sandbox counts for.
func (u *QuotaUse) Without(sb *Sandbox) {
	switch {
	case sb.State == Destroying || sb.State.Ended():
	case sb.State == Paused && sb.SavedBytes > 0:
		u.Disk.Paused -= sb.SavedBytes
	case sb.State == Paused: // by a version that did not measure it
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
	// Sandboxes is what those may write that are not paused: their limits.
	Sandboxes int64
	// Paused is what the paused ones take, with their memory.
	Paused int64
	// Checkpoints and Snapshots are what they take.
	Checkpoints int64
	Snapshots   int64
	// Streams is input and output of executions, as of a minute ago.
	Streams int64
	// Builds is what the boxes of builds and installs that are under way may write: their
	// limits, of an install beyond that of the sandbox that waits for it.
	Builds int64
	// Uploads is the files of builds that wait for them to be finished.
	Uploads int64
	// Images is what the images take that it has built, BuildCache what its builds have
	// left beside them, and the dependencies that it has used, which makes room for
	// whatever needs it.
	Images     int64
	BuildCache int64
}

// Total returns the sum.
func (d DiskUse) Total() int64 {
	return d.Sandboxes + d.Paused + d.Checkpoints + d.Snapshots + d.Streams + d.Builds + d.Uploads + d.Images + d.BuildCache
}

// Hold adds what is held.
func (d *DiskUse) Hold(h HeldDisk) {
	d.Streams, d.Uploads = d.Streams+h.Streams, d.Uploads+h.Uploads
	d.Images, d.BuildCache = d.Images+h.Images, d.BuildCache+h.BuildCache
}

// HeldDisk is the part of a [DiskUse] that no row knows.
type HeldDisk struct{ Streams, Uploads, Images, BuildCache int64 }

// Promise is bytes of memory and disk that sandboxes and boxes are limited to, together.
// As a limit, 0 means none.
type Promise struct{ MemoryBytes, DiskBytes int64 }

// Add adds what n boxes with those resources are promised.
func (p *Promise) Add(r Resources, n int) {
	p.MemoryBytes += int64(n) * r.MemoryBytes
	p.DiskBytes += int64(n) * r.DiskBytes
}

// Admits returns an error unless there is room for n more boxes with those resources
// each beside what is promised already: one that wraps [ErrServerFull], or
// [ErrNeverFits] when they are more than the server promises in all.
func (p Promise) Admits(promised Promise, r Resources, n int) error {
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
		e := Wrap(QuotaExceeded, reason, "this server promises its sandboxes at most %s of %s (setting %s), of which %s are promised, and this needs %s; pause or destroy some sandboxes, or ask an administrator",
			showMebibytes(c.most), c.what, c.setting, showMebibytes(c.promised), showMebibytes(c.extra))
		e.RetryAfter = quotaRetry
		return e
	}
	return nil
}

// Leaves returns as much of the memory and disk of r as is left beside what is promised,
// and the rest of r as it is.
func (p Promise) Leaves(promised Promise, r Resources) Resources {
	if p.MemoryBytes > 0 {
		r.MemoryBytes = min(r.MemoryBytes, max(0, p.MemoryBytes-promised.MemoryBytes))
	}
	if p.DiskBytes > 0 {
		r.DiskBytes = min(r.DiskBytes, max(0, p.DiskBytes-promised.DiskBytes))
	}
	return r
}

// showMebibytes is ShowBytes for what need not be exact.
func showMebibytes(n int64) string { return ShowBytes(n >> 20 << 20) }

// Admission is what a workspace and the server must have room for, decided when
// it is recorded.
type Admission struct {
	// Quota is the server's; that of the workspace is laid over it.
	Quota Quota
	// Held is what the workspace has on disk beside what is recorded.
	Held HeldDisk
	// Most is what the installation promises at most.
	Most Promise
	// MaxLive is how many sandboxes may be made or run in the installation; 0 means no limit.
	MaxLive int
	// Ahead is how many sandboxes each of those wants whose turn comes first when the
	// installation is full.
	Ahead []int
	// Refuse, when not nil, is why nothing new is let in, whatever room there is.
	Refuse error
}

// WaitForQuotaMax is how long a request may wait for room.
const WaitForQuotaMax = 10 * time.Minute

// quotaRetry is what a caller is told to wait for room that comes when something
// ends: nobody knows when that is.
const quotaRetry = 10 * time.Second

// AdmitsLive returns an error that wraps [ErrServerFull] unless the installation, in
// which live sandboxes are made or run, has room for n more beside those ahead. Who
// wants more than there is holds nobody up.
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
		e := Wrap(QuotaExceeded, ErrNeverFits, "this server runs at most %d sandboxes at once, and this is %d", a.MaxLive, n)
		e.RetryAfter = quotaRetry
		return e
	case n > free:
		e := Wrap(QuotaExceeded, ErrServerFull, "this server runs at most %d sandboxes at once; pause or destroy some, or try again when some have ended", a.MaxLive)
		e.RetryAfter = quotaRetry
		return e
	}
	return nil
}

// Admits returns an error with code QuotaExceeded, naming the limit, what it is
// and what is used, unless there is room for n sandboxes with those resources each
// beside what is used; one that wraps [ErrNeverFits] when they are more than all of it.
func (q Quota) Admits(used QuotaUse, r Resources, n int64) error {
	return q.admits([]claim{
		{LimitSandboxes, used.Sandboxes, n, func(n int64) string { return fmt.Sprint(n) }},
		{LimitMemory, used.MemoryBytes, n * r.MemoryBytes, ShowBytes},
		{LimitCPU, used.CPUMilli, n * r.CPUMilli, ShowMilli},
		{LimitDisk, used.Disk.Total(), n * r.DiskBytes, ShowBytes},
	})
}

// AdmitsBuild is Admits for the boxes of a build, which are no sandboxes, and for which
// DiskUse.BuildCache does not count: the build may need it.
func (q Quota) AdmitsBuild(used QuotaUse, r Resources) error {
	return q.admits([]claim{
		{LimitMemory, used.MemoryBytes, r.MemoryBytes, ShowBytes},
		{LimitCPU, used.CPUMilli, r.CPUMilli, ShowMilli},
		{LimitDisk, used.Disk.Total() - used.Disk.BuildCache, r.DiskBytes, ShowBytes},
	})
}

// Leaves returns as much of r as is left for the boxes of a build beside what is used, as
// that counts for [Quota.AdmitsBuild].
func (q Quota) Leaves(used QuotaUse, r Resources) Resources {
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

// claim is what is used and wanted of a limit.
type claim struct {
	limit     Limit
	used, add int64
	show      func(int64) string
}

func (q Quota) admits(claims []claim) error {
	for _, c := range claims {
		switch most := q[c.limit]; {
		case most <= 0 || c.add == 0:
		case c.add > most:
			e := Wrap(QuotaExceeded, ErrNeverFits, "the workspace's quota of %s is %s, and this alone needs %s; ask for less, or an administrator for more",
				c.limit, c.show(most), c.show(c.add))
			e.RetryAfter = quotaRetry
			return e
		case c.used+c.add > most:
			return full(c.limit, c.used+c.add-most, c.show(most), c.show(c.used), "and this needs "+c.show(c.add)+" more")
		}
	}
	return nil
}

// AdmitsDisk is Admits for something that takes disk alone: add bytes, or what is
// not known before it is made where add is 0.
func (q Quota) AdmitsDisk(used DiskUse, add int64) error {
	total, most := used.Total(), q[LimitDisk]
	switch {
	case most <= 0:
		return nil
	case total+add > most && add > 0:
		return full(LimitDisk, total+add-most, ShowBytes(most), ShowBytes(total), "and this needs "+ShowBytes(add)+" more")
	case total >= most:
		return full(LimitDisk, total+1-most, ShowBytes(most), ShowBytes(total), "which leaves no room for this")
	}
	return nil
}

func full(limit Limit, short int64, most, used, rest string) error {
	e := Errorf(QuotaExceeded, "the workspace's quota of %s is %s, of which %s is used, %s; end or delete something, or ask an administrator for more", limit, most, used, rest)
	e.RetryAfter, e.Err = quotaRetry, shortage{limit, short}
	return e
}

var (
	// ErrServerFull is wrapped by the error for a sandbox that is one too many for the installation.
	ErrServerFull = errors.New("the server is full")
	// ErrNeverFits is wrapped by the error for what there is no room for however long one waits.
	ErrNeverFits = errors.New("it never fits")
)

// shortage is by how much too little a limit is.
type shortage struct {
	limit Limit
	short int64
}

func (s shortage) Error() string { return fmt.Sprintf("quota of %s: %d short", s.limit, s.short) }

// DiskShort returns how many bytes of disk a workspace lacks for what an error of
// [Quota.Admits] or [Quota.AdmitsDisk] refuses; 0 when it is about something else.
func DiskShort(err error) int64 {
	var s shortage
	if errors.As(err, &s) && s.limit == LimitDisk {
		return s.short
	}
	return 0
}

// BehindOthers is the error for a sandbox for which others would have to be passed over.
func BehindOthers() error {
	e := Errorf(QuotaExceeded, "others of the workspace wait for room in its quota and come first; try again, or wait too")
	e.RetryAfter = quotaRetry
	return e
}

// ShowBytes writes n as callers write it: in the largest unit that keeps it whole.
func ShowBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}, {1 << 10, "Ki"}} {
		if n%u.size == 0 && n != 0 {
			return fmt.Sprintf("%d%s", n/u.size, u.name)
		}
	}
	return fmt.Sprint(n)
}

// ShowMilli writes thousandths of a core as callers write them.
func ShowMilli(n int64) string { return fmt.Sprintf("%dm", n) }
