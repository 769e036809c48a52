// Package retry has the options that retries of the backoff library share.
package retry

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Pauses makes the first pause between attempts take first, and each later pause half as
// long again, up to most; each varies by 20 %.
func Pauses(first, most time.Duration) backoff.RetryOption {
	return backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: first, MaxInterval: most, Multiplier: 1.5, RandomizationFactor: 0.2,
	})
}

// Forever repeats until the context ends.
func Forever() backoff.RetryOption { return backoff.WithMaxElapsedTime(0) }
