package background

import "golang.org/x/sync/errgroup"

// Each calls f for every item of a list, at most limit calls at a time, and waits for all of them.
func Each[T any](list []T, limit int, f func(T)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, item := range list {
		g.Go(func() error {
			f(item)
			return nil
		})
	}
	_ = g.Wait() // the calls return no errors
}
