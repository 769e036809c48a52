package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// baselineEvery is the interval of measuring sandboxes while there is space: growth counts from
	// one to two of these intervals before the disk began to fill.
	baselineEvery = 30 * time.Second
	// growthMin is the growth, in bytes, from which a sandbox may be ended because of it.
	growthMin = 4 << 20
	// idleMin is the size, in bytes, from which ending a sandbox that did not grow helps.
	idleMin = 64 << 20
	// idlePause is the interval between ending sandboxes that did not grow.
	idlePause = time.Minute
	// endTimeout is the time for which the manager does nothing else while a sandbox is being
	// destroyed, or an entry of the quarantine removed, which will free space.
	endTimeout = 30 * time.Second
	// cachePause is the time between attempts to free space by removing caches.
	cachePause = 30 * time.Second
	// removalWait is the time for which a look waits for a removal in the background.
	removalWait = 200 * time.Millisecond
	// lookMin and lookMax bound the time between looks. In between, the next look is the earlier
	// the fewer bytes above the limit are free: fillRate is the assumed maximum of bytes written a
	// second.
	lookMin, lookMax = 100 * time.Millisecond, 2 * time.Second
	fillRate         = 1 << 30
)

// Use is the disk use of a box.
type Use struct {
	ID    sandbox.ID
	Bytes int64
	// Ending is whether the box is being destroyed, which will free its bytes.
	Ending bool
}

// Host is the machine on which the Manager frees space. All methods return soon, except
// RemoveQuarantined and RemoveCaches. These are called in goroutines of their own, each at most
// once at a time.
type Host interface {
	// Free returns the bytes that are free on the disk.
	Free() (int64, error)
	// RemoveQuarantined removes quarantined files, which nothing is known to need, until it has
	// freed that many bytes or the quarantine is empty.
	RemoveQuarantined(ctx context.Context, bytes int64) error
	// RemoveCaches removes files that can be rebuilt and returns the bytes freed.
	RemoveCaches(ctx context.Context) (int64, error)
	// DiskUse returns the disk use of every box with files on the disk.
	DiskUse(ctx context.Context) ([]Use, error)
	// Evict begins to end a box, with cause disk_full; message is for its owner.
	Evict(ctx context.Context, id sandbox.ID, message string) error
	// Looked is called at the end of each look, with the free bytes and whether they are fewer than
	// Config.Threshold.
	Looked(free int64, pressure bool)
}

// Config has the limits of free space.
type Config struct {
	// Least is the number of free bytes below which quarantined files are removed, until an eighth
	// more than that is free; it is at least Threshold.
	Least int64
	// Threshold is the number of free bytes below which space is freed, until an eighth
	// more than that is free; 0 for never.
	Threshold int64
	// Critical is the number of free bytes below which sandboxes that did not grow may end.
	Critical int64
}

// Manager frees space on a host. It must be used by a single goroutine.
type Manager struct {
	cfg  Config
	host Host
	log  *slog.Logger
	now  func() time.Time

	// baseline is the disk use of boxes some time ago, and next their use at nextAt, which becomes
	// the baseline. The baseline does not change under pressure.
	baseline, next map[sandbox.ID]int64
	nextAt         time.Time
	// atEnd is the disk use of boxes at the last eviction.
	atEnd      map[sandbox.ID]int64
	quarantine removal // of entries of the quarantine
	caches     removal
	pressure   bool
	background sync.WaitGroup // for removals
	endedAt    time.Time      // when a box was evicted last
}

// removal is a removal in the background, at most one at a time.
type removal struct {
	done chan struct{} // closed at the end of the removal in progress; nil for none
	at   time.Time     // when the last removal began
}

// underWay reports whether a removal is in progress.
func (r *removal) underWay() bool {
	if r.done == nil {
		return false
	}
	select {
	case <-r.done:
		r.done = nil
		return false
	default:
		return true
	}
}

// New returns a Manager that does nothing until Run or Look.
func New(cfg Config, host Host, log *slog.Logger) *Manager {
	return &Manager{cfg: cfg, host: host, log: log, now: time.Now}
}

// Run looks repeatedly until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	defer m.background.Wait()
	for {
		free := m.Look(ctx)
		wait := time.NewTimer(m.pause(free))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return
		}
	}
}

// pause returns the time until the next look.
func (m *Manager) pause(free int64) time.Duration {
	most := time.Duration(float64(free-m.cfg.Threshold) / fillRate * float64(time.Second))
	return min(max(most, lookMin), lookMax)
}

// Look measures the free space, takes at most one step to free space, and returns the bytes that
// were free.
func (m *Manager) Look(ctx context.Context) int64 {
	free, err := m.host.Free()
	if err != nil {
		m.log.Error("cannot measure the free space", "error", err)
		return m.cfg.Threshold
	}
	if least := max(m.cfg.Least, m.cfg.Threshold); free < least && !m.quarantine.underWay() {
		bytes := least + least/8 - free
		m.remove(&m.quarantine, func() {
			if err := m.host.RemoveQuarantined(ctx, bytes); err != nil && ctx.Err() == nil {
				m.log.Error("cannot remove quarantined files to free space", "error", err)
			}
		})
		if now, err := m.host.Free(); err == nil {
			free = now
		}
	}
	was := m.pressure
	m.pressure = free < m.cfg.Threshold || was && free < m.cfg.Threshold+m.cfg.Threshold/8
	switch {
	case m.pressure && !was:
		m.log.Warn("the disk of the state directory is nearly full: space is freed", "free", free, "threshold", m.cfg.Threshold)
	case was && !m.pressure:
		m.log.Info("the disk of the state directory has space again", "free", free)
	}
	if err := m.step(ctx, free); err != nil && ctx.Err() == nil {
		m.log.Error("cannot free space, trying again soon", "error", err)
	}
	m.host.Looked(free, m.pressure)
	return free
}

// step measures the boxes, or takes a step to free space.
func (m *Manager) step(ctx context.Context, free int64) error {
	now := m.now()
	if !m.pressure {
		if now.Sub(m.nextAt) < baselineEvery {
			return nil
		}
		uses, err := m.host.DiskUse(ctx)
		if err != nil {
			return fmt.Errorf("measure sandboxes: %w", err)
		}
		m.baseline, m.next, m.nextAt = m.next, sizes(uses), now
		if m.baseline == nil { // the first look
			m.baseline = m.next
		}
		return nil
	}
	if m.quarantine.underWay() && now.Sub(m.quarantine.at) < endTimeout && free >= m.cfg.Threshold/2 {
		return nil // that will free space, and the disk is not full yet
	}
	if m.removeCaches(ctx, now) {
		return nil
	}
	uses, err := m.host.DiskUse(ctx)
	if err != nil {
		return fmt.Errorf("measure sandboxes: %w", err)
	}
	since := m.baseline
	if m.waits(now, uses) {
		// Another box ends meanwhile only if its growth would use up the rest.
		if free >= m.cfg.Threshold/2 {
			return nil
		}
		since = m.atEnd
	}
	chosen, message := m.choose(now, free, uses, since)
	if chosen == "" {
		return nil
	}
	m.endedAt, m.atEnd = now, sizes(uses)
	if err := m.host.Evict(ctx, chosen, message); err != nil {
		return fmt.Errorf("end box %s: %w", chosen, err)
	}
	m.log.Warn("a sandbox is ended to free space", "sandbox", chosen, "reason", message)
	return nil
}

// removeCaches removes caches when it is time and reports whether that freed space.
func (m *Manager) removeCaches(ctx context.Context, now time.Time) (freed bool) {
	if m.caches.underWay() || now.Sub(m.caches.at) < cachePause {
		return false
	}
	bytes := int64(0)
	ended := m.remove(&m.caches, func() {
		var err error
		bytes, err = m.host.RemoveCaches(ctx)
		if err != nil && ctx.Err() == nil {
			m.log.Error("cannot remove caches to free space", "error", err)
		}
		if bytes > 0 {
			m.log.Warn("caches were removed to free space", "bytes", bytes)
		}
	})
	return ended && bytes > 0
}

// remove begins a removal and reports whether it ended within removalWait. Otherwise it continues
// in the background while the manager goes on. No removal may be in progress.
func (m *Manager) remove(r *removal, f func()) (ended bool) {
	done := make(chan struct{})
	r.done, r.at = done, m.now()
	m.background.Go(func() {
		defer close(done)
		f()
	})
	late := time.NewTimer(removalWait)
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-late.C:
		return false
	}
}

// waits reports whether a box is being destroyed that will free space soon.
func (m *Manager) waits(now time.Time, uses []Use) bool {
	if now.Sub(m.endedAt) >= endTimeout {
		return false
	}
	for _, u := range uses {
		if u.Ending && u.Bytes >= growthMin {
			return true
		}
	}
	return false
}

// choose returns the box to end, and the reason; "" for none. Growth counts from the disk use in
// since.
func (m *Manager) choose(now time.Time, free int64, uses []Use, since map[sandbox.ID]int64) (sandbox.ID, string) {
	var grown, largest Use
	for _, u := range uses {
		if u.Ending {
			continue
		}
		if growth := u.Bytes - since[u.ID]; growth > grown.Bytes {
			grown = Use{ID: u.ID, Bytes: growth}
		}
		if u.Bytes > largest.Bytes {
			largest = u
		}
	}
	left := humanize.IBytes(uint64(max(0, free)))
	switch {
	case grown.Bytes >= growthMin:
		return grown.ID, fmt.Sprintf("the server's disk was nearly full (%s free), and the files of this sandbox had grown more than any other's: by %s", left, humanize.IBytes(uint64(grown.Bytes)))
	case free < m.cfg.Critical && largest.Bytes >= idleMin && now.Sub(m.endedAt) >= idlePause:
		return largest.ID, fmt.Sprintf("the server's disk was full (%s free), and the files of this sandbox were the largest: %s", left, humanize.IBytes(uint64(largest.Bytes)))
	}
	return "", ""
}

func sizes(uses []Use) map[sandbox.ID]int64 {
	of := make(map[sandbox.ID]int64, len(uses))
	for _, u := range uses {
		of[u.ID] = u.Bytes
	}
	return of
}
