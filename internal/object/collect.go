package object

import (
	"context"
	"strings"
	"time"
)

// Collected is the result of a collection.
type Collected struct {
	Removed      int // blobs
	RemovedBytes int64
	Kept         int
	// Young are the unused blobs that are younger than the grace period.
	Young int
}

// Collect removes the blobs that are not in use and older than the grace period. Reachable returns the names of the blobs in
// use; it is called when no new use can begin any more. The leftovers of interrupted processes are removed too.
//
// The grace period keeps the blobs of an interrupted upload for the next attempt, and the blobs of an upload whose lease was lost.
// Errors: Unavailable while an upload, a hold or another collection is in progress; the error of reachable, and then nothing is removed.
func (s *Store) Collect(ctx context.Context, grace time.Duration, reachable func(ctx context.Context) (map[Name]bool, error)) (c Collected, err error) {
	l, now, err := s.exclude(ctx)
	if err != nil {
		return c, err
	}
	defer l.release(ctx)
	used, err := reachable(ctx)
	if err != nil {
		return c, err
	}
	err = s.List(ctx, "", func(o Object) error {
		age := now.Sub(o.At)
		if strings.HasPrefix(o.Key, leasesPrefix) && expired(age) || partial(o.Key) && age >= max(grace, leaseExpiry) {
			return s.Delete(ctx, o.Key)
		}
		n, ok := nameOf(o.Key)
		switch {
		case !ok:
			return nil
		case used[n]:
			c.Kept++
			return nil
		case age < grace:
			c.Young++
			return nil
		}
		if err := l.check(); err != nil {
			return err
		}
		if err := s.Delete(ctx, o.Key); err != nil {
			return err
		}
		c.Removed++
		c.RemovedBytes += o.Size
		return nil
	})
	return c, err
}
