package quota

import (
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// buckets limit the creates of each workspace in a minute. Safe for concurrent use.
type buckets struct {
	mu sync.Mutex
	of map[sandbox.WorkspaceID]*bucket // guarded by mu
}

// bucket is a token bucket. A [golang.org/x/time/rate.Limiter] does not fit: of tokens that are
// given back it takes fewer than it gave when others took some meanwhile.
type bucket struct {
	perMinute, tokens float64
	at                time.Time // the time at which there were that many tokens
}

// refill adds the tokens of the time that has passed.
func (b *bucket) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.tokens = min(b.perMinute, b.tokens+b.perMinute*passed.Minutes())
		b.at = now
	}
}

// take takes n of the perMinute creates of a workspace; perMinute 0 is no limit. It returns a
// function that gives some of them back. Errors: QuotaExceeded.
func (s *buckets) take(ws sandbox.WorkspaceID, n int, perMinute int64, now time.Time) (giveBack func(int), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if perMinute <= 0 {
		delete(s.of, ws)
		return func(int) {}, nil
	}
	if int64(n) > perMinute {
		e := sandbox.Wrap(sandbox.QuotaExceeded, ErrNeverFits, "the workspace's quota of %s is %d, and this alone needs %d", LimitCreates, perMinute, n)
		e.RetryAfter = time.Minute
		return nil, e
	}
	b := s.of[ws]
	if b == nil || b.perMinute != float64(perMinute) {
		b = &bucket{perMinute: float64(perMinute), tokens: float64(perMinute), at: now}
		if s.of == nil {
			s.of = map[sandbox.WorkspaceID]*bucket{}
		}
		s.of[ws] = b
	}
	b.refill(now)
	if b.tokens < float64(n) {
		// The added microsecond makes up for rounding.
		delay := time.Duration((float64(n)-b.tokens)/b.perMinute*float64(time.Minute)) + time.Microsecond
		e := sandbox.Errorf(sandbox.QuotaExceeded, "the workspace's quota of %s is %d, and too few of them remain; try again in %s",
			LimitCreates, perMinute, delay.Round(time.Millisecond))
		e.RetryAfter = delay
		return nil, e
	}
	b.tokens -= float64(n)
	return func(some int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.tokens = min(b.perMinute, b.tokens+float64(some))
	}, nil
}

// tidy forgets the buckets that are full.
func (s *buckets) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ws, b := range s.of {
		if b.refill(now); b.tokens >= b.perMinute {
			delete(s.of, ws)
		}
	}
}
