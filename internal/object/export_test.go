package object

import (
	"context"
	"time"
)

// WithClock returns options with another clock for leases.
func (o Options) WithClock(now func() time.Duration) Options {
	o.now = now
	return o
}

// WithAnswer returns options with another limit of time for an answer.
func (o Options) WithAnswer(d time.Duration) Options {
	o.answer = d
	return o
}

// Renew renews the lease of an upload.
func (u *Upload) Renew(ctx context.Context) error { return u.lease.renew(ctx) }
