package lifecycle

import (
	"context"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// usageInterval is how often what a running sandbox uses is measured, at most.
	usageInterval = 10 * time.Second
	// usageLag is how far the recorded usage may lag behind. The counters of the host
	// make up for what a killed server did not record, but for the network's.
	usageLag = 30 * time.Second
)

// Usage returns what a sandbox has used since it was made, up to now, or to its
// end. Errors: NotFound.
func (s *Service) Usage(ctx context.Context, c sandbox.Caller, ref string) (sandbox.Usage, error) {
	b, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return sandbox.Usage{}, err
	}
	if b == nil {
		return s.store.Usage(ctx, sb.ID)
	}
	s.measure(ctx, b)
	total, _, _ := b.Meter.State()
	return total, nil
}

// measure brings the totals of a box up to date, as far as its driver can tell.
func (s *Service) measure(ctx context.Context, b *entry) {
	err := b.Meter.Measure(func() (u driver.Usage, sent, received int64, err error) {
		if m, ok := s.driver.(driver.Meter); ok {
			u, err = m.Usage(ctx, b.ID)
		}
		sent, received = b.Link.Traffic()
		return u, sent, received, err
	})
	if err != nil && ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.NotFound {
		s.log.Warn("sandbox not measured, trying again soon", "sandbox", b.ID, "error", err)
	}
}

// letGo measures a box for the last time and closes its gateway: it is about to
// be destroyed, and whatever happens to the server it will not go on.
func (s *Service) letGo(b *entry) {
	b.Link.Disconnect(false)
	s.measure(s.ctx, b)
	b.Meter.End()
}

// saveUsage measures what was not measured for at least interval, and records
// where that is behind by at least lag.
func (s *Service) saveUsage(ctx context.Context, interval, lag time.Duration) {
	now := time.Now()
	usage := map[sandbox.ID]sandbox.Usage{}
	for _, b := range s.boxes.all() {
		total, running, recorded := b.Meter.State()
		if running && now.Sub(total.At) >= interval {
			s.measure(ctx, b)
			total, _, _ = b.Meter.State()
		}
		if total.At.After(recorded) && (!running || total.At.Sub(recorded) >= lag) {
			usage[b.ID] = total
		}
	}
	if err := s.store.NoteUsage(ctx, usage); err != nil {
		s.log.Error("usage not recorded, trying again soon", "error", err)
		return
	}
	for id, u := range usage {
		if b := s.boxes.byID(id); b != nil {
			b.Meter.Recorded(u.At)
		}
	}
}

// recordUsage records what a box has used in all.
func (s *Service) recordUsage(b *entry) error {
	total, _, recorded := b.Meter.State()
	if total.At.IsZero() || total.At.Equal(recorded) {
		return nil
	}
	if err := s.store.NoteUsage(s.ctx, map[sandbox.ID]sandbox.Usage{b.ID: total}); err != nil {
		return err
	}
	b.Meter.Recorded(total.At)
	return nil
}

// recallUsage goes on where the server before stopped counting.
func (s *Service) recallUsage(ctx context.Context, b *entry) {
	sb := b.Sandbox()
	u, err := s.store.Usage(ctx, b.ID)
	if err != nil {
		s.log.Error("usage of a sandbox not known, counting no more", "sandbox", b.ID, "error", err)
		return
	}
	b.Meter.Recall(u, sb.State == sandbox.Running || sb.State == sandbox.Pausing, sb.StartedAt)
}
