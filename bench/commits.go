package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/modbox/modbox/client"
)

// commitsAtOnce is the number of concurrent clients in the commit benchmark.
const commitsAtOnce = 16

// commits creates an API token and revokes it. The server answers each of the two requests
// after it has synced the change and its audit record to disk.
func (m *modbox) commits(ctx context.Context) (time.Duration, error) {
	return timed(func() error {
		made, err := m.c.Tokens.Create(ctx, "bench", client.TokenOptions{Lifetime: ttl})
		if err != nil {
			return err
		}
		return m.c.Tokens.Revoke(ctx, made.ID)
	})
}

// syncs writes 4 KiB to a file in the directory of the server's state and waits for the
// disk, twice: what two commits cost at least.
func syncs(context.Context) (time.Duration, error) {
	f, err := os.CreateTemp(os.Getenv("MODBOX_STATE_DIR"), "bench-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory is the benchmark's
	page := make([]byte, 4096)
	took, err := timed(func() error {
		for range 2 {
			if _, err := f.Write(page); err != nil {
				return err
			}
			if err := f.Sync(); err != nil {
				return err
			}
		}
		return nil
	})
	return took, errors.Join(err, f.Close())
}

// addCommits measures changes that are on the disk before they are answered, of a client
// alone and of many at once, which share the wait for the disk.
func (r *report) addCommits(ctx context.Context, rounds int, m *modbox) error {
	alone := line{
		what: "make and revoke an API token, both on the disk when answered, API", ours: m.commits,
		peer: "2 × write and sync 4 KiB on the same disk", theirs: syncs,
	}
	if err := r.add(ctx, rounds, alone); err != nil {
		return err
	}
	one := r.rows[len(r.rows)-1].ours
	one.name = "one client"
	each := make([][]time.Duration, commitsAtOnce)
	took, err := timed(func() error {
		return parallel(commitsAtOnce, func(i int) error {
			got, err := alternate(ctx, rounds, side{"modbox", m.commits})
			if err == nil {
				each[i] = got[0].samples
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	together := row{what: fmt.Sprintf("the same of each of %d clients at once", commitsAtOnce), ours: series{"modbox", slices.Concat(each...)}, peer: one}
	r.rows = append(r.rows, together)
	fmt.Fprint(os.Stderr, together.line())
	single := time.Duration(0)
	for _, d := range one.samples {
		single += d
	}
	// All rounds are in the time, also those for warming up.
	many := float64(commitsAtOnce*(rounds+1)) / took.Seconds()
	few := float64(len(one.samples)) / single.Seconds()
	r.facts = append(r.facts, fact{
		what: fmt.Sprintf("tokens made and revoked a second, %d clients at once", commitsAtOnce), ours: fmt.Sprintf("%.0f", many),
		against: "one client", theirs: fmt.Sprintf("%.0f", few), ratio: fmt.Sprintf("%.2f", many/few),
		target: fmt.Sprintf("≥ %d ×", targetGroup), met: many/few >= targetGroup,
	})
	return nil
}
