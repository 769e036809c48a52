package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// op is one thing to measure: it does its own set-up, and returns how long the
// measured part took.
type op func(ctx context.Context) (time.Duration, error)

// side is one system under measurement in one row.
type side struct {
	name string
	run  op
}

// series are the measurements of a side of a row, in the order of the rounds.
type series struct {
	name    string
	samples []time.Duration
}

// alternate runs the sides of a row one after the other, rounds times, so that
// a machine whose speed drifts drifts for all of them alike; the side that begins
// changes with each round. The first round is a warm-up and not counted.
func alternate(ctx context.Context, rounds int, sides ...side) ([]series, error) {
	out := make([]series, len(sides))
	for i, s := range sides {
		out[i].name = s.name
	}
	for round := range rounds + 1 {
		for turn := range sides {
			i := (round + turn) % len(sides)
			s := sides[i]
			d, err := s.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", s.name, round, err)
			}
			if round > 0 {
				out[i].samples = append(out[i].samples, d)
			}
		}
	}
	return out, nil
}

// quantile returns the q-quantile (0..1) of the samples by the nearest rank.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(samples))
	i := int(q*float64(len(s)-1) + 0.5)
	return s[i]
}

// spread is the range of the middle half of the samples.
func (s series) spread() string {
	return fmt.Sprintf("%.1f–%s", float64(quantile(s.samples, .25))/float64(time.Millisecond), ms(quantile(s.samples, .75)))
}

// timed measures f.
func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// settleTime is the pause before the memory of sandboxes counts as idle: starting takes memory that
// they free a few seconds later.
const settleTime = 6 * time.Second

// settle waits for settleTime.
func settle(ctx context.Context) error {
	select {
	case <-time.After(settleTime):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
