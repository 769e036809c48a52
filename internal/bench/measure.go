package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Op is one thing to measure: it does its own set-up, and returns how long the
// measured part took.
type Op func(ctx context.Context) (time.Duration, error)

// Side is one system under measurement in one row.
type Side struct {
	Name string
	Run  Op
}

// Series are the measurements of a side of a row, in the order of the rounds.
type Series struct {
	Name    string
	Samples []time.Duration
}

// Alternate runs the sides of a row one after the other, rounds times, so that
// a machine whose speed drifts drifts for all of them alike; the side that begins
// changes with each round. The first round is a warm-up and not counted.
func Alternate(ctx context.Context, rounds int, sides ...Side) ([]Series, error) {
	out := make([]Series, len(sides))
	for i, s := range sides {
		out[i].Name = s.Name
	}
	for round := range rounds + 1 {
		for turn := range sides {
			i := (round + turn) % len(sides)
			s := sides[i]
			d, err := s.Run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", s.Name, round, err)
			}
			if round > 0 {
				out[i].Samples = append(out[i].Samples, d)
			}
		}
	}
	return out, nil
}

// Quantile returns the q-quantile (0..1) of the samples by the nearest rank.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	i := int(q*float64(len(s)-1) + 0.5)
	return s[i]
}

// Spread is the range of the middle half of the samples.
func (s Series) Spread() string {
	return fmt.Sprintf("%.1f–%s", float64(Quantile(s.Samples, .25))/float64(time.Millisecond), Milliseconds(Quantile(s.Samples, .75)))
}

// Timed measures f.
func Timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// Parallel runs f for 0..n-1 at once and returns the first error.
func Parallel(n int, f func(i int) error) error {
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// settleTime is the pause before the memory of sandboxes counts as idle: starting takes memory that
// they free a few seconds later.
const settleTime = 6 * time.Second

// Settle waits for settleTime.
func Settle(ctx context.Context) error { return wait(ctx, settleTime) }

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
