package auth

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// An account may be tried loginBurst times at once from an address, and loginRate
	// times a second for ever; an address, which may have many people behind it, may try
	// all accounts more often.
	loginBurst   = 10
	loginRate    = rate.Limit(1.0 / 30)
	addressBurst = 30
	addressRate  = rate.Limit(0.5)
	// An account that was tried brakeBurst times, from wherever, is tried brakeRate times
	// a second: further attempts wait for that, but for brakeMax at most. They are never
	// refused, since strangers would lock its owner out.
	brakeBurst = 20
	brakeRate  = rate.Limit(2)
	brakeMax   = 3 * time.Second
	// brakeHeld is how many attempts wait at the same time; more do not wait.
	brakeHeld = 256
)

// attempts counts the attempts at passwords: by account and address, by address, and by
// account. An account is what a caller types, whether there is one or not: limits do not
// tell. Safe for concurrent use.
type attempts struct {
	logins    *limiter // by account and address
	addresses *limiter
	accounts  *limiter
	held      chan struct{} // has an element of each attempt that waits
}

func newAttempts() (*attempts, error) {
	a := &attempts{held: make(chan struct{}, brakeHeld)}
	var made []*limiter
	for _, one := range []struct {
		limiter **limiter
		rate    rate.Limit
		burst   int
	}{{&a.logins, loginRate, loginBurst}, {&a.addresses, addressRate, addressBurst}, {&a.accounts, brakeRate, brakeBurst}} {
		l, err := newLimiter(one.rate, one.burst)
		if err != nil {
			for _, l := range made {
				l.close()
			}
			return nil, err
		}
		*one.limiter = l
		made = append(made, l)
	}
	return a, nil
}

func (a *attempts) close() {
	a.logins.close()
	a.addresses.close()
	a.accounts.close()
}

// begin counts an attempt at the account from a group of addresses, before its password is
// looked at: of many at the same time only so many pass. It waits for the account's brake.
// Succeeded takes back what was counted; it does not forgive the address, because who has
// an account must not guess at the passwords of others without end.
//
// Errors: QuotaExceeded, and the context's.
func (a *attempts) begin(ctx context.Context, account, group string) (succeeded func(), err error) {
	now := time.Now()
	key := account + "\x00" + group
	takeBack, ok := a.addresses.take(group, now)
	if ok {
		_, ok = a.logins.take(key, now)
	}
	if !ok {
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong passwords from this address; wait a minute")
	}
	takeBackTry, err := a.brake(ctx, account, now)
	if err != nil {
		return nil, err
	}
	return func() {
		takeBack()
		takeBackTry()
		a.logins.forgive(key)
	}, nil
}

// brake waits as long as the account's attempts have to.
func (a *attempts) brake(ctx context.Context, account string, now time.Time) (takeBack func(), err error) {
	try := a.accounts.of(account).ReserveN(now, 1)
	delay := try.DelayFrom(now)
	if delay > brakeMax { // and no further debt, or the account would be slow for long
		try.CancelAt(now)
		delay = brakeMax
	}
	if delay <= 0 {
		return func() { try.CancelAt(now) }, nil
	}
	select {
	case a.held <- struct{}{}:
		defer func() { <-a.held }()
	default:
		return func() {}, nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return func() {}, nil // the reservation is used up and cannot be taken back
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
