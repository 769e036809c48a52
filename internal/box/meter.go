package box

import (
	"sync"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Meter adds up what a sandbox uses. The zero value counts nothing until Begin or Recall. It
// is safe for concurrent use.
type Meter struct {
	// measuring orders the readings of the counters with adding them: a reading that comes
	// late would look like a reading of another box. Taken before mu.
	measuring sync.Mutex

	mu      sync.Mutex
	total   sandbox.Usage // guarded by mu
	running bool          // since total.At; guarded by mu
	memory  int64         // at total.At; guarded by mu
	// sent and received are the part of total that came over the box's link; guarded by mu.
	sent, received int64
	recorded       time.Time // total.At as the store has it; guarded by mu
}

// Begin counts a box that runs from now on and was never measured.
func (m *Meter) Begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total.At, m.total.BoxCPU, m.memory, m.running = now, 0, 0, true
}

// Recall continues from recorded usage; running reports whether the box ran all the time
// since then, or since start if u is empty.
func (m *Meter) Recall(u sandbox.Usage, running bool, start time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total, m.recorded, m.running = u, u.At, running
	if u.At.IsZero() {
		m.total.At, m.running = start, running && !start.IsZero()
	}
}

// Measure adds what read returns, if the box counts as running; it calls read once at a time.
// Errors: the errors of read.
func (m *Meter) Measure(read func() (u driver.Usage, sent, received int64, err error)) error {
	m.measuring.Lock()
	defer m.measuring.Unlock()
	if _, running, _ := m.State(); !running {
		return nil
	}
	u, sent, received, err := read()
	if err != nil {
		return err
	}
	m.add(time.Now().UTC(), u, sent, received)
	return nil
}

// add counts the use until now.
func (m *Meter) add(now time.Time, u driver.Usage, sent, received int64) {
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

// End stops counting: the box is about to be destroyed.
func (m *Meter) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running {
		m.running, m.total.BoxCPU, m.recorded = false, 0, time.Time{}
	}
}

// State returns the totals, whether they grow, and when they were recorded last.
func (m *Meter) State() (total sandbox.Usage, running bool, recorded time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, m.running, m.recorded
}

// Memory returns the bytes of memory of a running box at its last measurement, 0 if it does not run.
func (m *Meter) Memory() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running {
		return 0
	}
	return m.memory
}

// Recorded notes that the store has the totals of that time.
func (m *Meter) Recorded(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recorded = at
}
