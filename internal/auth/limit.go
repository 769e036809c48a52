package auth

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/cache"
	"github.com/modbox/modbox/internal/sandbox"
)

// limiter limits failures: each key may fail a number of times at once, and then at a rate. It
// forgets keys without failures for failMemory. Safe for concurrent use.
type limiter struct {
	rate   rate.Limit
	burst  int
	keys   *cache.Cache[string, *rate.Limiter]
	lookup chan struct{} // held during the lookup for a key that has failed too often
}

func newLimiter(r rate.Limit, burst int) (*limiter, error) {
	keys, err := cache.New[string](cache.Options[*rate.Limiter]{Size: failKeys, AfterAccess: failMemory})
	if err != nil {
		return nil, fmt.Errorf("make failure limiter: %w", err)
	}
	return &limiter{rate: r, burst: burst, keys: keys, lookup: make(chan struct{}, 1)}, nil
}

func (l *limiter) of(key string) *rate.Limiter {
	return l.keys.GetOrMake(key, func() *rate.Limiter { return rate.NewLimiter(l.rate, l.burst) })
}

// lookUp looks a secret up for a key; an error with code NotFound counts as a failure. Keys that
// have failed too often still get an answer, because clients that share an address with an attacker
// may have a valid secret; but only one lookup runs at a time, and a failure becomes QuotaExceeded.
func (l *limiter) lookUp(ctx context.Context, key string, look func() error) error {
	slow := !l.open(key, time.Now())
	if slow {
		select {
		case l.lookup <- struct{}{}:
			defer func() { <-l.lookup }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := look()
	if sandbox.CodeOf(err) != sandbox.NotFound {
		return err
	}
	l.fail(key, time.Now())
	if slow {
		return sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong tokens or codes from this address; wait a minute")
	}
	return err
}

// open reports whether the key is below its limit.
func (l *limiter) open(key string, now time.Time) bool { return l.of(key).TokensAt(now) >= 1 }

// take is open, and counts the attempt at once, so that concurrent attempts cannot exceed the
// limit. An attempt that succeeds calls giveBack.
func (l *limiter) take(key string, now time.Time) (giveBack func(), ok bool) {
	one := l.of(key).ReserveN(now, 1)
	if one.DelayFrom(now) > 0 {
		one.CancelAt(now)
		return nil, false
	}
	return func() { one.CancelAt(now) }, true
}

// fail counts a failure.
func (l *limiter) fail(key string, now time.Time) { l.of(key).AllowN(now, 1) }

// forgive resets the failures of the key.
func (l *limiter) forgive(key string) { l.keys.Remove(key) }

func (l *limiter) close() { l.keys.Close() }
