// Package usage measures the resources that sandboxes use, records them, and records when sandboxes
// were last used.
package usage

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Interval is the least time between two measurements of a running sandbox.
	Interval = 10 * time.Second
	// Lag bounds how far the recorded usage lags behind. When a server is killed, the counters of
	// the host have the rest, except traffic.
	Lag = 30 * time.Second
	// ActivityLag bounds how far the recorded last activity lags behind.
	ActivityLag = 15 * time.Second
)

// Store records usage. Its methods are safe for concurrent use; internal/store implements it.
type Store interface {
	// NoteActivity records when sandboxes were last used.
	NoteActivity(ctx context.Context, at map[sandbox.ID]time.Time) error
	// NoteUsage records the usage of sandboxes so far.
	NoteUsage(ctx context.Context, usage map[sandbox.ID]sandbox.Usage) error
	// Usage returns the recorded usage of a sandbox. Errors: NotFound.
	Usage(ctx context.Context, id sandbox.ID) (sandbox.Usage, error)
}

// Recorder measures boxes and records their usage. Its methods are safe for concurrent use.
type Recorder struct {
	store  Store
	driver driver.Driver
	log    *slog.Logger
}

// New returns a recorder for the boxes of a driver.
func New(store Store, d driver.Driver, log *slog.Logger) *Recorder {
	return &Recorder{store: store, driver: d, log: log}
}

// Of returns the usage of a sandbox up to now, or to its end. The box b is nil if the sandbox has
// ended. Errors: NotFound.
func (r *Recorder) Of(ctx context.Context, id sandbox.ID, b *box.Box) (sandbox.Usage, error) {
	if b == nil {
		return r.store.Usage(ctx, id)
	}
	r.measure(ctx, b)
	total, _, _ := b.Meter.State()
	return total, nil
}

// measure updates the totals of a box that the driver can measure.
func (r *Recorder) measure(ctx context.Context, b *box.Box) {
	err := b.Meter.Measure(func() (u driver.Usage, sent, received int64, err error) {
		if m, ok := r.driver.(driver.Meter); ok {
			u, err = m.Usage(ctx, b.ID)
		}
		sent, received = b.Link.Traffic()
		return u, sent, received, err
	})
	if err != nil && ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.NotFound && !errors.Is(err, driver.ErrAway) {
		r.log.Warn("sandbox not measured, trying again soon", "sandbox", b.ID, "error", err)
	}
}

// Finish measures a box for the last time, before it is destroyed. The caller has disconnected its
// network.
func (r *Recorder) Finish(ctx context.Context, b *box.Box) {
	r.measure(ctx, b)
	b.Meter.End()
}

// Save measures the boxes that were not measured for at least the interval and are not out of reach, and records usage that
// lags behind by at least lag.
func (r *Recorder) Save(ctx context.Context, boxes []*box.Box, interval, lag time.Duration) {
	now := time.Now()
	usage := map[sandbox.ID]sandbox.Usage{}
	var saved []*box.Box
	for _, b := range boxes {
		total, running, recorded := b.Meter.State()
		if running && now.Sub(total.At) >= interval && !driver.OutOfReach(r.driver, b.ID) {
			r.measure(ctx, b)
			total, _, _ = b.Meter.State()
		}
		if total.At.After(recorded) && (!running || total.At.Sub(recorded) >= lag) {
			usage[b.ID] = total
			saved = append(saved, b)
		}
	}
	if err := r.store.NoteUsage(ctx, usage); err != nil {
		r.log.Error("usage not recorded, trying again soon", "error", err)
		return
	}
	for _, b := range saved {
		b.Meter.Recorded(usage[b.ID].At)
	}
}

// Record records the total usage of a box, unless it is recorded.
func (r *Recorder) Record(ctx context.Context, b *box.Box) error {
	total, _, recorded := b.Meter.State()
	if total.At.IsZero() || total.At.Equal(recorded) {
		return nil
	}
	if err := r.store.NoteUsage(ctx, map[sandbox.ID]sandbox.Usage{b.ID: total}); err != nil {
		return err
	}
	b.Meter.Recorded(total.At)
	return nil
}

// Recall continues the totals of a box at the usage that an earlier server recorded.
func (r *Recorder) Recall(ctx context.Context, b *box.Box) {
	sb := b.Sandbox()
	u, err := r.store.Usage(ctx, b.ID)
	if err != nil {
		r.log.Error("usage of a sandbox unknown, not measured any more", "sandbox", b.ID, "error", err)
		return
	}
	b.Meter.Recall(u, sb.State == sandbox.Running || sb.State == sandbox.Pausing, sb.StartedAt)
}

// SaveActivity records the last activity of boxes whose record lags behind by at least lag.
func (r *Recorder) SaveActivity(ctx context.Context, boxes []*box.Box, lag time.Duration) {
	at := map[sandbox.ID]time.Time{}
	var saved []*box.Box
	for _, b := range boxes {
		if last := b.Activity.Unrecorded(lag); !last.IsZero() {
			at[b.ID] = last
			saved = append(saved, b)
		}
	}
	if err := r.store.NoteActivity(ctx, at); err != nil {
		r.log.Error("activity not recorded, trying again soon", "error", err)
		return
	}
	for _, b := range saved {
		b.Activity.Recorded(at[b.ID])
	}
}

// RecallActivity sets the activity of a box to the time that an earlier server recorded, plus the
// greatest lag of that record: a sandbox may be idle for too long, but must not end too early.
func RecallActivity(b *box.Box, now time.Time) {
	sb := b.View().Sandbox
	last := sb.LastActivityAt
	if last.IsZero() {
		last = sb.UpdatedAt
	}
	if last = last.Add(ActivityLag); last.After(now) {
		last = now
	}
	b.Activity.At(last)
}
