package auth

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Limits of password attempts. From each address, an account may be tried loginBurst times at
	// once and then at loginRate a second. An address may have many people behind it, so its limit
	// over all accounts is higher.
	loginBurst   = 10
	loginRate    = rate.Limit(1.0 / 30)
	addressBurst = 30
	addressRate  = rate.Limit(0.5)
	// Limits of password attempts for an account, from all addresses together. After brakeBurst
	// attempts, further attempts are delayed to brakeRate a second, each by at most brakeMax. They
	// are never refused: otherwise strangers could lock the owner out.
	brakeBurst = 20
	brakeRate  = rate.Limit(2)
	brakeMax   = 3 * time.Second
	// brakeWaiters is how many attempts may be delayed at the same time; further attempts go ahead
	// without delay.
	brakeWaiters = 256
)

// attempts limits password attempts: by account and address, by address, and by account. An account
// is the name that the caller typed, whether it exists or not, so that the limits do not reveal
// which accounts exist. Safe for concurrent use.
type attempts struct {
	logins    *limiter // by account and address
	addresses *limiter
	accounts  *limiter
	delayed   chan struct{} // holds an element for each delayed attempt
}

func newAttempts() (*attempts, error) {
	a := &attempts{delayed: make(chan struct{}, brakeWaiters)}
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

// begin counts an attempt at the account from a group of addresses. It is called before the
// password is checked, so that the limit also holds for concurrent attempts. It waits for the
// account's brake. Calling succeeded gives back the attempts counted for the account, but not the attempts
// counted for the address: having an account must not permit endless guesses at other accounts.
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

// brake delays an attempt at the account when too many came before it.
func (a *attempts) brake(ctx context.Context, account string, now time.Time) (takeBack func(), err error) {
	try := a.accounts.of(account).ReserveN(now, 1)
	delay := try.DelayFrom(now)
	if delay > brakeMax { // reserve no more, or the account would stay slow for a long time
		try.CancelAt(now)
		delay = brakeMax
	}
	if delay <= 0 {
		return func() { try.CancelAt(now) }, nil
	}
	select {
	case a.delayed <- struct{}{}:
		defer func() { <-a.delayed }()
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
