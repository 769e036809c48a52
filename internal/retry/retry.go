// Package retry has the options that retries of the backoff library share, and repeats changes of records that
// others change at the same time.
package retry

import (
	"context"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/sandbox"
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

// changeAttempts bounds the attempts of [Change]. A failed attempt means that another change succeeded.
const changeAttempts = 20

// Change repeats change, which reads a record and replaces it, while its error has code Conflict: another change
// came between the two. After changeAttempts it returns that error.
func Change(ctx context.Context, change func() error) error {
	var err error
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		if err = change(); sandbox.CodeOf(err) != sandbox.Conflict {
			return struct{}{}, nil
		}
		return struct{}{}, err
	}, Pauses(time.Millisecond, 50*time.Millisecond), Forever(), backoff.WithMaxTries(changeAttempts))
	return err
}
