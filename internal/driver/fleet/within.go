package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/driver"
)

// within calls f with a time limit, after which it returns [driver.ErrAway]; f may go on for a while.
func within[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	done := make(chan answer, 1)
	go func() {
		defer cancel()
		value, err := f(limited)
		done <- answer{value, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-limited.Done():
		select {
		case a = <-done: // limited ends after an answer, too
		default:
			a.err = context.Cause(limited)
		}
	}
	if ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) && errors.Is(a.err, context.DeadlineExceeded) {
		a.err = driver.ErrAway
	}
	return a.value, a.err
}
