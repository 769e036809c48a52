package snapshot

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// collectInterval is the longest time between two collections of root filesystems.
const collectInterval = 10 * time.Minute

// Sweep deletes the records of snapshots that no goroutine makes, and assemblies whose time is
// over. It removes the root filesystems that nothing needs: after the deletion of a snapshot at
// once, otherwise, as primary, every ten minutes.
func (s *Service) Sweep() {
	ids, err := s.drafts.SnapshotsBegun(s.ctx)
	if err != nil {
		s.logFailure("list snapshots", err)
	}
	for _, id := range ids {
		if s.making.has(id) || !s.owner.Owns(sandbox.ID(id)) { // another server may be making it
			continue
		}
		if err := s.drafts.AbandonSnapshot(s.ctx, id, ""); err != nil {
			s.logFailure("forget snapshot "+string(id), err)
		}
	}
	s.assemblies.known.expire(time.Now().Add(-assemblyLifetime))
	due := s.owner.Primary() && time.Since(time.Unix(0, s.collected.Load())) >= collectInterval
	if s.layers != nil && (s.collectNow.Load() || due) {
		s.collect()
	}
}

// collect removes the root filesystems that nothing needs any more.
func (s *Service) collect() {
	s.collectNow.Store(false)
	s.collected.Store(time.Now().UnixNano())
	freed, err := s.layers.Collect(s.ctx, s.drafts.DigestsInUse)
	if err != nil {
		s.logFailure("collect root filesystems", err)
	}
	if freed > 0 {
		s.log.Info("removed root filesystems that nothing needs", "bytes", freed)
	}
}

// UploadedBytes returns the bytes of the uploaded files of a workspace's assemblies.
func (s *Service) UploadedBytes(ws sandbox.WorkspaceID) int64 { return s.assemblies.known.bytes(ws) }

// logFailure logs a failure that the next sweep tries again.
func (s *Service) logFailure(what string, err error) {
	if s.ctx.Err() == nil {
		s.log.Error("snapshots: "+what, "error", err)
	}
}
