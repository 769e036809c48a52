package lifecycle

import (
	"context"
	"sync"
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

// meter adds up what a sandbox uses.
type meter struct {
	// measuring orders the readings of the counters with adding them: one that comes
	// late would look like that of another box. Taken before mu.
	measuring sync.Mutex

	mu      sync.Mutex
	total   sandbox.Usage // guarded by mu
	running bool          // since total.At; guarded by mu
	memory  int64         // at total.At; guarded by mu
	// sent and received are what total holds of the box's line; guarded by mu.
	sent, received int64
	recorded       time.Time // total.At as the store has it; guarded by mu
}

// begin counts a box that runs from now on and was never measured.
func (m *meter) begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.At, m.total.BoxCPU, m.memory, m.running = now, 0, 0, true
}

// recall goes on with what was recorded; running says whether the box ran all the
// time since then, or since start when nothing was.
func (m *meter) recall(u sandbox.Usage, running bool, start time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total, m.recorded, m.running = u, u.At, running
	if u.At.IsZero() {
		m.total.At, m.running = start, running && !start.IsZero()
	}
}

// add counts what was used until now.
func (m *meter) add(now time.Time, u driver.Usage, sent, received int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		return
	}
	if passed := now.Sub(m.total.At); passed > 0 {
		m.total.Running += passed
		memory := (m.memory + u.MemoryBytes) / 2
		if m.memory == 0 || u.MemoryBytes == 0 { // not measured yet, or ended by now
			memory = max(m.memory, u.MemoryBytes)
		}
		m.total.MemoryByteSeconds += int64(float64(memory) * passed.Seconds())
		m.total.At = now
	}
	m.memory = u.MemoryBytes
	if u.CPU < m.total.BoxCPU { // another box, which a killed server did not record
		m.total.BoxCPU = 0
	}
	m.total.CPU += u.CPU - m.total.BoxCPU
	m.total.BoxCPU = u.CPU
	m.total.SentBytes += sent - m.sent
	m.total.ReceivedBytes += received - m.received
	m.sent, m.received = sent, received
}

// end stops counting: the box goes.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		m.running, m.total.BoxCPU, m.recorded = false, 0, time.Time{}
	}
}

// state returns the totals, whether they grow, and when they were recorded last.
func (m *meter) state() (total sandbox.Usage, running bool, recorded time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.running, m.recorded
}

func (m *meter) wasRecorded(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recorded = at
}

// Usage returns what a sandbox has used since it was made, up to now, or to its
// end. Errors: NotFound.
func (s *Service) Usage(ctx context.Context, c Caller, ref string) (sandbox.Usage, error) {
	b, sb, err := s.find(ctx, c, ref)
	if err != nil {
		return sandbox.Usage{}, err
	}
	if b == nil {
		return s.store.Usage(ctx, sb.ID)
	}
	s.measure(ctx, b)
	total, _, _ := b.meter.state()
	return total, nil
}

// measure brings the totals of a box up to date, as far as its driver can tell.
func (s *Service) measure(ctx context.Context, b *box) {
	b.meter.measuring.Lock()
	defer b.meter.measuring.Unlock()
	if _, running, _ := b.meter.state(); !running {
		return
	}
	var u driver.Usage
	if m, ok := s.driver.(driver.Meter); ok {
		var err error
		if u, err = m.Usage(ctx, b.id); err != nil {
			if ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.NotFound {
				s.log.Warn("sandbox not measured, trying again soon", "sandbox", b.id, "error", err)
			}
			return
		}
	}
	sent, received := b.line.traffic()
	b.meter.add(time.Now().UTC(), u, sent, received)
}

// letGo measures a box for the last time and closes its gateway: it is about to
// be destroyed, and whatever happens to the server it will not go on.
func (s *Service) letGo(b *box) {
	b.line.disconnect(false)
	s.measure(s.ctx, b)
	b.meter.end()
}

// saveUsage measures what was not measured for at least interval, and records
// where that is behind by at least lag.
func (s *Service) saveUsage(ctx context.Context, interval, lag time.Duration) {
	now := time.Now()
	usage := map[sandbox.ID]sandbox.Usage{}
	for _, b := range s.boxes.all() {
		total, running, recorded := b.meter.state()
		if running && now.Sub(total.At) >= interval {
			s.measure(ctx, b)
			total, _, _ = b.meter.state()
		}
		if total.At.After(recorded) && (!running || total.At.Sub(recorded) >= lag) {
			usage[b.id] = total
		}
	}
	if err := s.store.NoteUsage(ctx, usage); err != nil {
		s.log.Error("usage not recorded, trying again soon", "error", err)
		return
	}
	for id, u := range usage {
		if b := s.boxes.byID(id); b != nil {
			b.meter.wasRecorded(u.At)
		}
	}
}

// recordUsage records what a box has used in all.
func (s *Service) recordUsage(b *box) error {
	total, _, recorded := b.meter.state()
	if total.At.IsZero() || total.At.Equal(recorded) {
		return nil
	}
	if err := s.store.NoteUsage(s.ctx, map[sandbox.ID]sandbox.Usage{b.id: total}); err != nil {
		return err
	}
	b.meter.wasRecorded(total.At)
	return nil
}

// recallUsage goes on where the server before stopped counting.
func (s *Service) recallUsage(ctx context.Context, b *box) {
	sb := b.sandbox()
	u, err := s.store.Usage(ctx, b.id)
	if err != nil {
		s.log.Error("usage of a sandbox not known, counting no more", "sandbox", b.id, "error", err)
		return
	}
	b.meter.recall(u, sb.State == sandbox.Running || sb.State == sandbox.Pausing, sb.StartedAt)
}
