// Package retry has the options that retries of the backoff library share.
package retry

import (
	"context"
	"log/slog"
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

// Persist repeats f until it works, and logs each failure with the step's name. It fails only
// when ctx ends.
func Persist(ctx context.Context, log *slog.Logger, step string, f func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, f() },
		Pauses(50*time.Millisecond, 15*time.Second), Forever(),
		backoff.WithNotify(func(err error, wait time.Duration) {
			if ctx.Err() == nil {
				log.Error("a step failed, trying again", "step", step, "error", err, "wait", wait)
			}
		}))
	return err
}
