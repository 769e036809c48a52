package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/modbox/modbox/client"
)

// CommitsAtOnce is the number of concurrent clients in the commit benchmark.
const CommitsAtOnce = 16

// Commits creates an API token and revokes it. The server answers each of the two requests
// after it has synced the change and its audit record to disk.
func (m *Server) Commits(ctx context.Context) (time.Duration, error) {
	return Timed(func() error {
		made, err := m.c.Tokens.Create(ctx, "bench", client.TokenOptions{Lifetime: ttl})
		if err != nil {
			return err
		}
		return m.c.Tokens.Revoke(ctx, made.ID)
	})
}

// syncs writes 4 KiB to a file in the directory of the server's state and waits for the
// disk, twice: two commits cost at least that.
func (m *Server) syncs(context.Context) (time.Duration, error) {
	f, err := os.CreateTemp(m.StateDir, "bench-*")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory is the benchmark's
	page := make([]byte, 4096)
	took, err := Timed(func() error {
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

// AddCommits measures changes that are on the disk before they are answered, of a client
// alone and of many at once, which share the wait for the disk.
func (r *Report) AddCommits(ctx context.Context, rounds int, m *Server) error {
	alone := Line{
		What: "make and revoke an API token, both on the disk when answered, API", Ours: m.Commits,
	}
	if m.StateDir != "" {
		alone.Peer, alone.Theirs = "2 × write and sync 4 KiB on the same disk", m.syncs
	}
	if err := r.Add(ctx, rounds, alone); err != nil {
		return err
	}
	one := r.Rows[len(r.Rows)-1].Ours
	one.Name = "one client"
	each := make([][]time.Duration, CommitsAtOnce)
	took, err := Timed(func() error {
		return Parallel(CommitsAtOnce, func(i int) error {
			got, err := Alternate(ctx, rounds, Side{Name: "modbox", Run: m.Commits})
			if err == nil {
				each[i] = got[0].Samples
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	together := Row{What: fmt.Sprintf("the same of each of %d clients at once", CommitsAtOnce), Ours: Series{"modbox", slices.Concat(each...)}, Peer: one}
	r.Rows = append(r.Rows, together)
	r.see(together)
	single := time.Duration(0)
	for _, d := range one.Samples {
		single += d
	}
	// All rounds are in the time, also those for warming up.
	many := float64(CommitsAtOnce*(rounds+1)) / took.Seconds()
	few := float64(len(one.Samples)) / single.Seconds()
	r.Facts = append(r.Facts, Fact{
		What: fmt.Sprintf("tokens made and revoked a second, %d clients at once", CommitsAtOnce), Ours: fmt.Sprintf("%.0f", many),
		Against: "one client", Theirs: fmt.Sprintf("%.0f", few), Ratio: fmt.Sprintf("%.2f", many/few),
		Target: fmt.Sprintf("≥ %d ×", targetGroup), Met: many/few >= targetGroup,
	})
	return nil
}
