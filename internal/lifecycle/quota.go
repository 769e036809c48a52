package lifecycle

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// QuotaStore keeps the quotas of workspaces; it is a part of [Store].
type QuotaStore interface {
	// Quota returns what was set for a workspace, SetQuota replaces it. Errors: NotFound.
	Quota(ctx context.Context, ws sandbox.WorkspaceID) (sandbox.Quota, error)
	SetQuota(ctx context.Context, ws sandbox.WorkspaceID, q sandbox.Quota) error
	// QuotaUse returns what a workspace has of what is limited, as far as it is recorded.
	QuotaUse(ctx context.Context, ws sandbox.WorkspaceID) (sandbox.QuotaUse, error)
	// Promised returns what all sandboxes and builds are limited to together.
	Promised(ctx context.Context) (sandbox.Promise, error)
}

// QuotaReport is the quota of a workspace and what it has of it.
type QuotaReport struct {
	// Limits are what counts; Set is the part that was set for this workspace.
	Limits, Set sandbox.Quota
	Used        sandbox.QuotaUse
}

// quotaCountMax and quotaSizeMax are far over what any host has.
const (
	quotaCountMax = 1 << 20
	quotaSizeMax  = 1 << 60
)

// Quota returns the quota of a workspace. Errors: NotFound.
func (s *Service) Quota(ctx context.Context, ws sandbox.WorkspaceID) (QuotaReport, error) {
	set, err := s.store.Quota(ctx, ws)
	if err != nil {
		return QuotaReport{}, err
	}
	used, err := s.store.QuotaUse(ctx, ws)
	if err != nil {
		return QuotaReport{}, err
	}
	used.Disk.Hold(s.held(ws))
	limits := set.Over(s.cfg.Quota)
	own := limits.SandboxMax()
	for _, r := range resourceTable {
		limits[r.limit] = *r.of(&s.cfg.Max)
		if n := *r.of(&own); n > 0 {
			limits[r.limit] = min(n, limits[r.limit])
		}
	}
	return QuotaReport{Limits: limits, Set: set, Used: used}, nil
}

// SetQuota replaces what was set for a workspace; what q leaves open is the
// server's default from then on. Sandboxes that are there stay, however many.
// Errors: Invalid, naming the limit; NotFound.
func (s *Service) SetQuota(ctx context.Context, ws sandbox.WorkspaceID, q sandbox.Quota) (QuotaReport, error) {
	if err := s.cfg.validateQuota(q); err != nil {
		return QuotaReport{}, err
	}
	if err := s.store.SetQuota(ctx, ws, q); err != nil {
		return QuotaReport{}, err
	}
	s.gate.room.Send()
	return s.Quota(ctx, ws)
}

func (c *Config) validateQuota(q sandbox.Quota) error {
	most := map[sandbox.Limit]int64{
		sandbox.LimitSandboxes: quotaCountMax, sandbox.LimitCreates: quotaCountMax,
		sandbox.LimitMemory: quotaSizeMax, sandbox.LimitCPU: quotaSizeMax, sandbox.LimitDisk: quotaSizeMax,
	}
	for limit, n := range q {
		if high, ok := most[limit]; ok && (n < 0 || n > high) {
			return sandbox.InvalidField(string(limit), "must be 0, which is no limit, to %d", high)
		}
	}
	for _, r := range resourceTable {
		if n, ok := q[r.limit]; ok && n != 0 && (n < r.min || n > *r.of(&c.Max)) {
			return sandbox.InvalidField(string(r.limit), "must be %s to %s, the maximum of this server, or 0 for that", r.show(r.min), r.show(*r.of(&c.Max)))
		}
	}
	return nil
}

// limits returns the quota that counts for a workspace. Errors: NotFound.
func (s *Service) limits(ctx context.Context, ws sandbox.WorkspaceID) (sandbox.Quota, error) {
	set, err := s.store.Quota(ctx, ws)
	if err != nil {
		return nil, fmt.Errorf("quota of workspace %s: %w", ws, err)
	}
	return set.Over(s.cfg.Quota), nil
}

// checkMax refuses resources beyond what one sandbox of the workspace may have.
func checkMax(ws sandbox.WorkspaceID, limits sandbox.Quota, asked sandbox.Resources) error {
	most := limits.SandboxMax()
	for _, r := range resourceTable {
		if m := *r.of(&most); m > 0 && *r.of(&asked) > m {
			return sandbox.InvalidField("resources."+r.name, "must be at most %s, the maximum of a sandbox in workspace %s (quota %s)", r.show(m), ws, r.limit)
		}
	}
	return nil
}

// cut reduces resources that nobody asked for to what one sandbox may have.
func cut(limits sandbox.Quota, have *sandbox.Resources) {
	most := limits.SandboxMax()
	for _, r := range resourceTable {
		if m := *r.of(&most); m > 0 {
			*r.of(have) = min(*r.of(have), m)
		}
	}
}

// held is what a workspace has on disk that no row knows.
func (s *Service) held(ws sandbox.WorkspaceID) sandbox.HeldDisk {
	images, left, err := s.images.Owned(ws)
	if err != nil { // nothing is built or started of a store that cannot be read
		s.log.Error("what a workspace's images take is not known", "workspace", ws, "error", err)
	}
	return sandbox.HeldDisk{Streams: s.streamBytes.get(ws), Uploads: s.begun.bytes(ws), Images: images, BuildCache: left}
}

// admit has record record something of a workspace when there is room for it, for
// which what its builds have left goes.
func (s *Service) admit(ctx context.Context, a sandbox.Admission, ws sandbox.WorkspaceID, record func(sandbox.Admission) error) error {
	err := record(a)
	if !s.madeRoom(ctx, ws, err) {
		return err
	}
	a.Held = s.held(ws)
	return record(a)
}

// madeRoom reports whether what was refused with err has room now, because what the
// workspace's builds have left was removed for it.
func (s *Service) madeRoom(ctx context.Context, ws sandbox.WorkspaceID, err error) bool {
	short := sandbox.DiskShort(err)
	if short == 0 {
		return false
	}
	made, rerr := s.images.MakeRoom(ctx, ws, short)
	if rerr != nil && ctx.Err() == nil {
		s.log.Error("what builds have left was not removed for something else", "workspace", ws, "error", rerr)
	}
	return made
}

// mayKeep returns why nothing more of a workspace may be kept on the disk, whatever builds
// under way have reserved. What comes of work that takes long is looked at again when it
// is recorded.
func (s *Service) mayKeep(ctx context.Context, ws sandbox.WorkspaceID) error {
	return s.mayKeepBeside(ctx, ws, math.MaxInt64)
}

// mayKeepBeside is mayKeep where but so many bytes that builds have reserved do not count.
func (s *Service) mayKeepBeside(ctx context.Context, ws sandbox.WorkspaceID, reserved int64) error {
	err := s.hasRoom(ctx, ws, reserved, 0)
	if s.madeRoom(ctx, ws, err) {
		return s.hasRoom(ctx, ws, reserved, 0)
	}
	return err
}

// hasRoom returns why add bytes more of a workspace, or with 0 what nobody knows yet,
// may not be kept on the disk, where so many bytes that builds have reserved do not count.
func (s *Service) hasRoom(ctx context.Context, ws sandbox.WorkspaceID, reserved, add int64) error {
	if err := s.saved.enough(s.cfg.MinFreeDisk); err != nil {
		return err
	}
	q, err := s.Quota(ctx, ws)
	if err != nil {
		return err
	}
	q.Used.Disk.Builds -= min(reserved, q.Used.Disk.Builds)
	return q.Limits.AdmitsDisk(q.Used.Disk, add)
}

// streamBytes is what the streams of each workspace took when they were measured last.
type streamBytes struct {
	mu sync.Mutex
	of map[sandbox.WorkspaceID]int64 // guarded by mu
}

func (b *streamBytes) set(of map[sandbox.WorkspaceID]int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of = of
}

func (b *streamBytes) get(ws sandbox.WorkspaceID) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[ws]
}
