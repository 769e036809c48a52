package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/warmbox"
)

// recordIn is record for a sandbox that may wait for admission. With Replace the live sandbox of
// its name ends when the quota fits the new sandbox in its place, and not before.
func (s *Service) recordIn(ctx context.Context, c sandbox.Caller, creation sandbox.Creation, req *CreateRequest, kind pool.Kind) (b *entry, rec sandbox.Recorded, err error) {
	if req.ID != "" {
		kind = pool.Kind{} // no box of the pool has that id
	}
	err = s.quotas.Admit(ctx, quota.Request{Workspace: c.Workspace, Count: 1, MaxWait: req.WaitForQuota}, func(a quota.Admission) (int, error) {
		now := time.Now().UTC() // its ttl begins when it is let in
		sb := &creation.Sandbox
		sb.CreatedAt, sb.UpdatedAt, sb.LastActivityAt, creation.Event.Time = now, now, now, now
		var old *entry
		if req.Replace {
			end := ending(sandbox.Cause{Code: sandbox.CauseReplaced, Message: sandbox.OneLine("a new sandbox of the same name was asked for by " + string(c.User))})
			creation.Replaces = &end
			old = s.boxes.ByName(c.Workspace, sb.Name)
		}
		b, rec, err = s.recordInPlace(ctx, creation, a, old, kind)
		if err == nil && rec.By == sandbox.MatchNone {
			return 1, nil
		}
		return 0, err
	})
	return b, rec, err
}

// recordInPlace is record for a sandbox that may replace old, which may be nil.
func (s *Service) recordInPlace(ctx context.Context, creation sandbox.Creation, a quota.Admission, old *entry, kind pool.Kind) (*entry, sandbox.Recorded, error) {
	if old == nil {
		b, rec, err := s.record(ctx, creation, a, kind)
		if rec.Dying != nil { // another had taken the name meanwhile
			s.foundEnding(*rec.Dying)
		}
		return b, rec, err
	}
	old.Lock()
	b, rec, err := s.record(ctx, creation, a, kind)
	dying := rec.Dying
	if dying != nil && dying.ID == old.ID {
		s.seeEnding(old, *dying)
		dying = nil
	}
	old.Unlock()
	if dying != nil { // another had taken the name
		s.foundEnding(*dying)
	}
	return b, rec, err
}

// foundEnding sees to the end of a sandbox whose row says that it is being destroyed.
func (s *Service) foundEnding(row sandbox.Sandbox) {
	b := s.boxes.ByID(row.ID)
	if b == nil {
		return // it has ended, or the sweep finds it
	}
	b.Lock()
	defer b.Unlock()
	s.seeEnding(b, row)
}

// seeEnding sees to the end of b as its row has it, unless that is seen to.
//
// Preconditions: b is locked.
func (s *Service) seeEnding(b *entry, row sandbox.Sandbox) {
	if sb := b.Sandbox(); sb.State != sandbox.Destroying && !sb.State.Ended() {
		s.ending(b, row)
		s.quotas.Released()
	}
}

// record writes a creation, of a sandbox that gets a warm box of its kind if the pool has
// one. The box is non-nil when a new sandbox was recorded: it counts as being provisioned by
// the caller, who launches or ends it.
func (s *Service) record(ctx context.Context, creation sandbox.Creation, a quota.Admission, kind pool.Kind) (*entry, sandbox.Recorded, error) {
	var warm *pool.Reservation[warmbox.Box]
	if a.Refuse == nil { // a create that is refused anyway must not keep a box from others
		warm = s.pool.Reserve(ctx, kind)
	}
	// The box is locked until the outcome is known: callers that find the row meanwhile wait.
	var b *entry
	if warm != nil {
		b = s.boxes.Reserved(warm.Box().Value.ID)
		creation.Sandbox.ID, creation.Sandbox.Handle = b.ID, warm.Box().Value.Handle
		b.Lock()
	} else {
		b = s.newBox(creation.Sandbox.ID)
		b.Lock()
		s.boxes.Claim(b)
	}
	rec, err := s.store.CreateSandbox(ctx, creation, a)
	// It is another one when a second attempt to write found that there is one by now.
	if err == nil && rec.By == sandbox.MatchNone && rec.Sandbox.ID == b.ID {
		defer b.Unlock()
		if b.warm = warm != nil; b.warm {
			warm.Commit()
			warm.Box().Value.Unwatch()
		}
		s.boxes.Reserve(b)
		b.Set(rec.Sandbox)
		b.provisioning = true // by who recorded it, whatever the sweep thinks of that
		s.index(b)
		return b, rec, nil
	}
	if warm == nil {
		s.unreserve(b)
		b.Unlock()
		return nil, rec, err
	}
	b.Unlock()
	// The row may have been written although the store says otherwise: without the box
	// the sweep finds it.
	if sandbox.CodeOf(err) == sandbox.Internal {
		warm.Commit()
		s.warm.Destroy(warm.Box())
	} else if !warm.Cancel() {
		s.warm.Destroy(warm.Box())
	}
	return nil, rec, err
}

// recordForks writes the creations of the children of a fork, as record does. The box of a child is
// nil if another sandbox has its name.
func (s *Service) recordForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]*entry, []sandbox.Recorded, error) {
	list := make([]*entry, len(children))
	for i, c := range children {
		list[i] = s.newBox(c.Sandbox.ID)
		list[i].Lock()
		s.boxes.Reserve(list[i])
	}
	recs, err := s.store.CreateForks(ctx, children, a)
	for i, b := range list {
		if err == nil && recs[i].By == sandbox.MatchNone {
			b.Set(recs[i].Sandbox)
			b.provisioning = true
			s.index(b)
			b.Unlock()
			continue
		}
		s.unreserve(b)
		b.Unlock()
		list[i] = nil
	}
	return list, recs, err
}

// index makes a recorded box findable.
//
// Preconditions: b is locked.
func (s *Service) index(b *entry) {
	s.boxes.Register(b)
	s.networks.Publish(b.Box)
}

// unreserve forgets a box that was not recorded.
func (s *Service) unreserve(b *entry) {
	s.boxes.Remove(b.Box)
	b.Cancel()
}
