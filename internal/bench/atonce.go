package bench

import (
	"context"
	"time"
)

// The work of each client in a round of a comparison.
const (
	CommitsEach  = 5
	RequestsEach = 50
)

// ManyCommits measures commits of many clients at once.
func (m *Server) ManyCommits(ctx context.Context) (time.Duration, error) {
	return Timed(func() error {
		return Parallel(CommitsAtOnce, func(int) error {
			for range CommitsEach {
				if _, err := m.Commits(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// Requests measures requests of many clients at once to a server of [Serve].
func Requests(url string) Op {
	c := keepingClient()
	return func(ctx context.Context) (time.Duration, error) {
		return Timed(func() error {
			return Parallel(LoadAtOnce, func(int) error {
				for range RequestsEach {
					if err := get(ctx, c, url); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}
