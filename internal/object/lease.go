package object

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
)

// Uploads, holds and collections exclude each other by objects in the bucket. Each writes its own, and only then looks
// for others: of two that begin at the same time at least one sees the other, and gives up.
const (
	leasesPrefix   = "leases/"
	uploadPrefix   = leasesPrefix + "upload-"
	holdPrefix     = leasesPrefix + "hold-"
	excludePrefix  = leasesPrefix + "collect-"
	leaseRenewal   = 5 * time.Minute
	leaseRenewable = 20 * time.Minute
	// leaseExpiry is when the lease of a process that has ended does not count any more.
	leaseExpiry = 30 * time.Minute
)

// lease keeps blobs from being removed, or from being used.
type lease struct {
	s    *Store
	key  string
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	renewed time.Duration // begin of the last renewal
	lost    bool          // it may have expired, also when it was renewed later
}

// sinceBoot returns a time that goes on while the machine sleeps, and that no change of the clock moves.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails only without that clock
	return time.Duration(t.Nano())
}

// Hold keeps the blobs of a store from being removed while they are read. It must be released.
type Hold struct{ lease *lease }

// ErrCollecting is wrapped by errors because of a collection in progress.
var ErrCollecting = errors.New("unused data is being removed")

// Hold begins a hold. Errors: ErrCollecting; others when the bucket cannot be written.
func (s *Store) Hold(ctx context.Context) (*Hold, error) {
	l, err := s.share(ctx, holdPrefix)
	if err != nil {
		return nil, err
	}
	return &Hold{l}, nil
}

// Check returns an error when the hold may have lapsed at any time, so that blobs may have been removed.
func (h *Hold) Check() error { return h.lease.check() }

// Release ends the hold.
func (h *Hold) Release(ctx context.Context) { h.lease.release(ctx) }

// share takes a lease that excludes collections. Errors: Unavailable when there is one.
func (s *Store) share(ctx context.Context, prefix string) (*lease, error) {
	l, err := s.take(ctx, prefix)
	if err != nil {
		return nil, err
	}
	_, others, err := l.others(ctx)
	for _, o := range others {
		if strings.HasPrefix(o.Key, excludePrefix) {
			err = sandbox.Wrap(sandbox.Unavailable, ErrCollecting, "a prune of the bucket %s is in progress; try again later, or within %s if it was killed, or delete its object %s if it was", s.url, leaseExpiry, o.Key)
		}
	}
	if err != nil {
		l.release(ctx)
		return nil, err
	}
	return l, nil
}

// exclude takes a lease that excludes uploads, holds and other collections, and returns the time of the bucket. Errors:
// Unavailable when there are any.
func (s *Store) exclude(ctx context.Context) (*lease, time.Time, error) {
	l, err := s.take(ctx, excludePrefix)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, others, err := l.others(ctx)
	if err == nil && len(others) > 0 {
		err = sandbox.Errorf(sandbox.Unavailable, "a backup, restore, verification or prune is in progress in the bucket %s, with the object %s; unused data stays until the next prune", s.url, others[0].Key)
	}
	if err != nil {
		l.release(ctx)
		return nil, time.Time{}, err
	}
	return l, now, nil
}

// take writes a lease and renews it until it is released.
func (s *Store) take(ctx context.Context, prefix string) (*lease, error) {
	l := &lease{s: s, key: prefix + strings.ToLower(rand.Text()), done: make(chan struct{}), renewed: s.o.now()}
	if err := l.renew(ctx); err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(l.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(leaseRenewal):
				_ = l.renew(ctx) // check notices
			}
		}
	}()
	return l, nil
}

func (l *lease) renew(ctx context.Context) error {
	begin := l.s.o.now()
	if err := l.s.write(ctx, l.key, []byte("{}")); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = l.lost || l.s.o.now()-l.renewed > leaseRenewable
	l.renewed = begin
	return nil
}

// check returns an error when the lease may have expired at any time, as after the machine slept.
func (l *lease) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost || l.s.o.now()-l.renewed > leaseRenewable {
		return sandbox.Errorf(sandbox.Unavailable, "the bucket %s could not be reached for too long; try again", l.s.url)
	}
	return nil
}

// release deletes the lease. If that fails it expires by itself.
func (l *lease) release(ctx context.Context) {
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = l.s.Delete(ctx, l.key)
}

// others returns the leases that have not expired, except this one, and the time of the bucket.
func (l *lease) others(ctx context.Context) (now time.Time, others []Object, err error) {
	var all []Object
	err = l.s.List(ctx, leasesPrefix, func(o Object) error {
		if o.Key == l.key {
			now = o.At
		} else {
			all = append(all, o)
		}
		return nil
	})
	if err == nil && now.IsZero() {
		err = sandbox.Errorf(sandbox.Unavailable, "the bucket %s does not list the object %s, which was just written", l.s.url, l.key)
	}
	for _, o := range all {
		if !expired(now.Sub(o.At)) {
			others = append(others, o)
		}
	}
	return now, others, err
}

// expired reports whether a lease of an age does not count any more. A time that far in the future is of a clock that was wrong.
func expired(age time.Duration) bool { return age.Abs() >= leaseExpiry }
