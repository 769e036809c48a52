package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/telemetry"
	"github.com/modbox/modbox/internal/warmbox"
)

// Creations records new sandboxes, each as a whole or not at all.
type Creations interface {
	// CreateSandbox records a new sandbox with its event and idempotency key,
	// unless the key was used before or a live sandbox of the workspace has the
	// name and is not replaced: then it answers that one. Errors: QuotaExceeded.
	CreateSandbox(ctx context.Context, c sandbox.Creation, a quota.Admission) (sandbox.Recorded, error)
	// CreateForks records the children of a fork whose names are free. Errors: QuotaExceeded unless
	// the quota fits all of them.
	CreateForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]sandbox.Recorded, error)
}

// registrar records new sandboxes, and has their boxes in the index before.
type registrar struct {
	store    Creations
	quotas   *quota.Controller
	warm     *warmbox.Keeper
	maker    *maker
	ender    *ender
	networks *network.Service
	boxes    *box.Index[*entry]
	metrics  *telemetry.Metrics
}

// recordIn is record for a sandbox that may wait for admission. With Replace the live sandbox of
// its name ends when the quota fits the new sandbox in its place, and not before.
func (r *registrar) recordIn(ctx context.Context, c sandbox.Caller, creation sandbox.Creation, req *CreateRequest, kind pool.Kind) (b *entry, rec sandbox.Recorded, err error) {
	if req.ID != "" {
		kind = pool.Kind{} // no box of the pool has that id
	}
	admit := func(a quota.Admission) (int, error) {
		now := time.Now().UTC() // its ttl begins with its admission
		sb := &creation.Sandbox
		sb.CreatedAt, sb.UpdatedAt, sb.LastActivityAt, creation.Event.Time = now, now, now, now
		var old *entry
		if req.Replace {
			end := ending(sandbox.Cause{Code: sandbox.CauseReplaced, Message: sandbox.OneLine("a new sandbox of the same name was asked for by " + string(c.User))})
			creation.Replaces = &end
			old = r.boxes.ByName(c.Workspace, sb.Name)
		}
		b, rec, err = r.recordInPlace(ctx, creation, a, old, kind)
		if err == nil && rec.By == sandbox.MatchNone {
			return 1, nil
		}
		return 0, err
	}
	err = r.metrics.Do(ctx, telemetry.Admission, func(ctx context.Context) error {
		return r.quotas.Admit(ctx, quota.Request{Workspace: c.Workspace, Count: 1, MaxWait: req.WaitForQuota}, admit)
	})
	return b, rec, err
}

// recordInPlace is record for a sandbox that may replace old, which may be nil.
func (r *registrar) recordInPlace(ctx context.Context, creation sandbox.Creation, a quota.Admission, old *entry, kind pool.Kind) (*entry, sandbox.Recorded, error) {
	if old == nil {
		b, rec, err := r.record(ctx, creation, a, kind)
		if rec.Dying != nil { // another had taken the name meanwhile
			r.ender.foundEnding(*rec.Dying)
		}
		return b, rec, err
	}
	old.Lock()
	b, rec, err := r.record(ctx, creation, a, kind)
	dying := rec.Dying
	if dying != nil && dying.ID == old.ID {
		r.ender.seeEnding(old, *dying)
		dying = nil
	}
	old.Unlock()
	if dying != nil { // another had taken the name
		r.ender.foundEnding(*dying)
	}
	return b, rec, err
}

// record writes a creation, of a sandbox that gets a warm box of its kind if the pool has
// one. The box is non-nil when a new sandbox was recorded: it counts as being provisioned by
// the caller, who launches or ends it.
func (r *registrar) record(ctx context.Context, creation sandbox.Creation, a quota.Admission, kind pool.Kind) (*entry, sandbox.Recorded, error) {
	var warm *pool.Reservation[warmbox.Box]
	if a.Refuse == nil { // a create that is refused anyway must not keep a box from others
		warm = r.warm.Reserve(ctx, creation.Sandbox.Workspace, kind)
	}
	// The box is locked until the outcome is known: callers that find the row meanwhile wait.
	var b *entry
	if warm != nil {
		b = r.boxes.Reserved(warm.Box().Value.ID)
		creation.Sandbox.ID, creation.Sandbox.Handle = b.ID, warm.Box().Value.Handle
		b.Lock()
	} else {
		b = r.maker.newBox(creation.Sandbox.ID)
		b.Lock()
		r.boxes.Claim(b)
	}
	rec, err := r.store.CreateSandbox(ctx, creation, a)
	// It is another one when a second attempt to write found that there is one by now.
	if err == nil && rec.By == sandbox.MatchNone && rec.Sandbox.ID == b.ID {
		defer b.Unlock()
		if warm != nil {
			b.warm = &warm.Box().Value
			warm.Commit()
			warm.Box().Value.Unwatch()
		}
		r.boxes.Reserve(b)
		b.Set(rec.Sandbox)
		b.provisioning = true // by who recorded it, whatever the sweep thinks of that
		r.index(b)
		return b, rec, nil
	}
	if warm == nil {
		r.unreserve(b)
		b.Unlock()
		return nil, rec, err
	}
	b.Unlock()
	// The row may have been written although the store says otherwise: without the box
	// the sweep finds it.
	if sandbox.CodeOf(err) == sandbox.Internal {
		warm.Commit()
		r.warm.Destroy(warm.Box())
	} else if !warm.Cancel() {
		r.warm.Destroy(warm.Box())
	}
	return nil, rec, err
}

// recordForks writes the creations of the children of a fork, as record does. The box of a child is
// nil if another sandbox has its name.
func (r *registrar) recordForks(ctx context.Context, children []sandbox.Creation, a quota.Admission) ([]*entry, []sandbox.Recorded, error) {
	list := make([]*entry, len(children))
	for i, c := range children {
		list[i] = r.maker.newBox(c.Sandbox.ID)
		list[i].Lock()
		r.boxes.Reserve(list[i])
	}
	recs, err := r.store.CreateForks(ctx, children, a)
	for i, b := range list {
		if err == nil && recs[i].By == sandbox.MatchNone {
			b.Set(recs[i].Sandbox)
			b.provisioning = true
			r.index(b)
			b.Unlock()
			continue
		}
		r.unreserve(b)
		b.Unlock()
		list[i] = nil
	}
	return list, recs, err
}

// index makes a recorded box findable.
//
// Preconditions: b is locked.
func (r *registrar) index(b *entry) {
	r.boxes.Register(b)
	r.networks.Publish(b.Box)
}

// unreserve forgets a box that was not recorded.
func (r *registrar) unreserve(b *entry) {
	r.boxes.Remove(b.Box)
	b.Cancel()
}

// adopt makes an entry for a live row that has none. It returns nil if the id belonged to a sandbox
// that was then not recorded.
func (r *registrar) adopt(sb sandbox.Sandbox) *entry {
	b := r.maker.newBox(sb.ID)
	b.Lock()
	defer b.Unlock()
	if old, ok := r.boxes.Adopt(b); !ok {
		b.Cancel()
		return old
	}
	b.Set(sb)
	r.index(b)
	return b
}
