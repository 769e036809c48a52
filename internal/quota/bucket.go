package quota

import (
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// buckets limit the creates of each workspace in a minute. Safe for concurrent use.
type buckets struct {
	mu sync.Mutex
	of map[sandbox.WorkspaceID]*Rate // guarded by mu
}

// Rate is a token bucket: the creates in a minute that a workspace has left. A [golang.org/x/time/rate.Limiter] does not fit: of tokens that are
// given back it takes fewer than it gave when others took some meanwhile.
type Rate struct {
	PerMinute int64
	Tokens    float64
	At        time.Time // the time at which there were that many tokens
}

// NewRate returns a rate with all its tokens.
func NewRate(perMinute int64, now time.Time) Rate {
	return Rate{PerMinute: perMinute, Tokens: float64(perMinute), At: now}
}

// refill adds the tokens of the time that has passed.
func (b *Rate) refill(now time.Time) {
	if passed := now.Sub(b.At); passed > 0 {
		b.giveBack(float64(b.PerMinute) * passed.Minutes())
		b.At = now
	}
}

func (b *Rate) giveBack(tokens float64) { b.Tokens = min(float64(b.PerMinute), b.Tokens+tokens) }

// Take takes n creates. Errors: QuotaExceeded.
func (b *Rate) Take(n int, now time.Time) error {
	if int64(n) > b.PerMinute {
		e := sandbox.Wrap(sandbox.QuotaExceeded, ErrNeverFits, "the workspace's quota of %s is %d, and this alone needs %d", LimitCreates, b.PerMinute, n)
		e.RetryAfter = time.Minute
		return e
	}
	b.refill(now)
	if b.Tokens < float64(n) {
		// The added microsecond makes up for rounding.
		delay := time.Duration((float64(n)-b.Tokens)/float64(b.PerMinute)*float64(time.Minute)) + time.Microsecond
		e := sandbox.Errorf(sandbox.QuotaExceeded, "the workspace's quota of %s is %d, and too few of them remain; try again in %s",
			LimitCreates, b.PerMinute, delay.Round(time.Millisecond))
		e.RetryAfter = delay
		return e
	}
	b.Tokens -= float64(n)
	return nil
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
	b := s.of[ws]
	if b == nil || b.PerMinute != perMinute {
		made := NewRate(perMinute, now)
		b = &made
		if s.of == nil {
			s.of = map[sandbox.WorkspaceID]*Rate{}
		}
		s.of[ws] = b
	}
	if err := b.Take(n, now); err != nil {
		return nil, err
	}
	return func(some int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.giveBack(float64(some))
	}, nil
}

// tidy forgets the buckets that are full.
func (s *buckets) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ws, b := range s.of {
		if b.refill(now); b.Tokens >= float64(b.PerMinute) {
			delete(s.of, ws)
		}
	}
}
