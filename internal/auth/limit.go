package auth

import (
	"fmt"
	"time"

	"github.com/maypok86/otter/v2"
	"golang.org/x/time/rate"
)

// limiter slows those down who fail: each key may fail some times at once, and
// then at a rate. It forgets keys that were quiet for failMemory. Safe for
// concurrent use.
type limiter struct {
	rate  rate.Limit
	burst int
	keys  *otter.Cache[string, *rate.Limiter]
}

func newLimiter(r rate.Limit, burst int) (*limiter, error) {
	keys, err := otter.New(&otter.Options[string, *rate.Limiter]{
		MaximumSize:      failKeys,
		ExpiryCalculator: otter.ExpiryAccessing[string, *rate.Limiter](failMemory),
	})
	if err != nil {
		return nil, fmt.Errorf("make failure limiter: %w", err)
	}
	return &limiter{rate: r, burst: burst, keys: keys}, nil
}

func (l *limiter) of(key string) *rate.Limiter {
	one, _ := l.keys.ComputeIfAbsent(key, func() (*rate.Limiter, bool) { return rate.NewLimiter(l.rate, l.burst), false })
	return one
}

// open reports whether the key may try.
func (l *limiter) open(key string, now time.Time) bool { return l.of(key).TokensAt(now) >= 1 }

// take is open, and counts the try at once: of many at the same time only so many pass.
func (l *limiter) take(key string, now time.Time) bool { return l.of(key).AllowN(now, 1) }

// fail counts a failure.
func (l *limiter) fail(key string, now time.Time) { l.of(key).AllowN(now, 1) }

// forgive makes the key as new.
func (l *limiter) forgive(key string) { l.keys.Invalidate(key) }

func (l *limiter) close() { l.keys.StopAllGoroutines() }
