package events

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// leastInterval and greatestInterval bound the time between two messages with measurements, in seconds.
	leastInterval, greatestInterval = 1, 60
	// measureTimeout bounds a measurement of a sandbox, for which its events wait.
	measureTimeout = 2 * time.Second
	// sharedFor is the age up to which streams share a measurement of a sandbox. It is shorter than the least interval,
	// so that no stream sends the same measurement twice.
	sharedFor = leastInterval * 900 * time.Millisecond
)

// measured has measurements of single sandboxes, which all streams share: a sandbox is measured once in sharedFor, however
// many streams ask, because a measurement reads the memory of all its processes.
type measured struct {
	flights singleflight.Group

	mu   sync.Mutex
	last map[sandbox.ID]wire.SandboxUse // no older than sharedFor when one was added last; guarded by mu
}

// recent returns a measurement that is no older than sharedFor.
func (m *measured) recent(id sandbox.ID) (wire.SandboxUse, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, ok := m.last[id]
	return u, ok && time.Since(u.Time) < sharedFor
}

func (m *measured) add(id sandbox.ID, u wire.SandboxUse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[sandbox.ID]wire.SandboxUse{}
	}
	maps.DeleteFunc(m.last, func(_ sandbox.ID, old wire.SandboxUse) bool { return time.Since(old.Time) >= sharedFor })
	m.last[id] = u
}

// interval reads the parameter stats; 0 is none.
func interval(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < leastInterval || n > greatestInterval {
		return 0, sandbox.InvalidField("stats", "must be a number of seconds from %d to %d", leastInterval, greatestInterval)
	}
	return time.Duration(n) * time.Second, nil
}

// measurements makes the messages of a stream about the use of sandboxes.
type measurements struct {
	*Events
	caller  sandbox.Caller
	sandbox sandbox.ID    // "" for all of the workspace
	every   time.Duration // 0 for none
	last    time.Time     // the newest measurement that was sent

	asked     time.Time                    // when the usage of sandboxes of other servers was read
	elsewhere map[sandbox.ID]sandbox.Usage // as it was then
}

// take returns the measurements since the last call: of a stream for one sandbox the present use, if it runs.
func (m *measurements) take(ctx context.Context) []wire.SandboxUse {
	if m.sandbox != "" {
		return m.one(ctx)
	}
	newest := m.last
	var list []wire.SandboxUse
	for _, u := range m.Sandboxes.Used(m.caller.Workspace) {
		if !u.Time.After(m.last) {
			continue
		}
		if u.Time.After(newest) {
			newest = u.Time
		}
		list = append(list, wire.SandboxUse{
			SandboxID: string(u.Sandbox), Time: u.Time, CPUNanos: int64(u.CPU), MemoryBytes: u.MemoryBytes, SentBytes: u.SentBytes, ReceivedBytes: u.ReceivedBytes,
		})
	}
	m.last = newest
	return append(list, m.ofOthers(ctx)...)
}

// elsewherePause is the least time between two looks at what the sandboxes of other servers use. It is recorded less often.
const elsewherePause = 5 * time.Second

// ofOthers returns the measurements of sandboxes of other servers that were recorded since the last call. The memory is the mean since the measurement
// before.
func (m *measurements) ofOthers(ctx context.Context) (list []wire.SandboxUse) {
	if m.Elsewhere == nil || time.Since(m.asked) < elsewherePause {
		return nil
	}
	m.asked = time.Now()
	now, err := m.Elsewhere(ctx, m.caller.Workspace)
	if err != nil {
		if ctx.Err() == nil {
			edge.Log(ctx, err)
		}
		return nil
	}
	for id, u := range now {
		before := m.elsewhere[id]
		if u.At.IsZero() || !u.At.After(before.At) {
			continue
		}
		use := wire.SandboxUse{SandboxID: string(id), Time: u.At, CPUNanos: int64(u.CPU), SentBytes: u.SentBytes, ReceivedBytes: u.ReceivedBytes}
		if passed := (u.Running - before.Running).Seconds(); passed > 0 {
			use.MemoryBytes = int64(float64(u.MemoryByteSeconds-before.MemoryByteSeconds) / passed)
		}
		list = append(list, use)
	}
	m.elsewhere = now
	return list
}

// one returns the present use of the stream's sandbox, or nil if it does not run or cannot be measured now.
func (m *measurements) one(ctx context.Context) []wire.SandboxUse {
	if u, ok := m.shared.recent(m.sandbox); ok {
		return []wire.SandboxUse{u}
	}
	// Other streams wait for this measurement also, so it does not end with this stream.
	u, err, _ := m.shared.flights.Do(string(m.sandbox), func() (any, error) { return m.measure(context.WithoutCancel(ctx)) })
	if err != nil {
		return nil
	}
	return []wire.SandboxUse{u.(wire.SandboxUse)}
}

func (m *measurements) measure(ctx context.Context) (wire.SandboxUse, error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	s, err := m.Guest.Stats(ctx, m.caller, string(m.sandbox))
	if err != nil {
		if sandbox.CodeOf(err) == sandbox.Internal && ctx.Err() == nil {
			edge.Log(ctx, err)
		}
		return wire.SandboxUse{}, err
	}
	u := wire.SandboxUse{
		SandboxID: string(m.sandbox), Time: s.Time, CPUNanos: s.CPUNanos, MemoryBytes: s.MemoryBytes,
		SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes, DiskBytes: &s.DiskBytes, Processes: &s.Processes,
	}
	m.shared.add(m.sandbox, u)
	return u, nil
}

// measurements sends what sandboxes use, unless there is nothing to send.
func (o *writer) measurements(list []wire.SandboxUse) error {
	if len(list) == 0 {
		return nil
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return o.send("event: stats\ndata: " + string(data) + "\n\n")
}
