// Package share divides a number of bytes of memory among workspaces: a workspace may have at most
// twice as much as it leaves for the others. A single workspace has up to two thirds of the whole,
// two have two fifths each, and so on; the next workspace always gets something. The package does
// not know the purpose of the memory.
package share

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The errors of [Account.Take].
var (
	// ErrTooLarge: a single account wants more than the budget can ever give it.
	ErrTooLarge = errors.New("more than the budget of one key")
	// ErrBusy: other accounts have too much at the moment.
	ErrBusy = errors.New("other keys use the budget at the moment")
)

// Budget is a shared number of bytes. Safe for concurrent use.
type Budget struct {
	total   int64
	maxWait time.Duration

	mu      sync.Mutex
	used    int64            // guarded by mu
	peak    int64            // the most that used was; guarded by mu
	has     map[string]int64 // by the key of accounts; guarded by mu
	holders int              // accounts that have something; guarded by mu
	waiting []*waiter        // the longest first; guarded by mu
}

// waiter is an account that waits for n bytes.
type waiter struct {
	account *Account
	n       int64
	done    chan error // receives the result
}

// New returns a budget of total bytes, for which an account waits at most maxWait.
func New(total int64, maxWait time.Duration) *Budget {
	return &Budget{total: total, maxWait: maxWait, has: map[string]int64{}}
}

// Total returns the size of the budget.
func (b *Budget) Total() int64 { return b.total }

// Used returns the bytes that all accounts have, and their maximum so far.
func (b *Budget) Used() (now, peak int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used, b.peak
}

// most returns the bytes that a key may have while others have a number of bytes.
func (b *Budget) most(others int64) int64 { return (b.total - others) / 3 * 2 }

// Account is the share of a piece of work in a budget. Only one goroutine at a time may call its
// methods. All methods of a nil account do nothing, and succeed.
type Account struct {
	budget *Budget
	key    string
	has    int64 // guarded by budget.mu
}

// Open returns an empty account of a key. Accounts of the same key share the limit of the key.
func (b *Budget) Open(key string) *Account { return &Account{budget: b, key: key} }

// Take adds n bytes to an account, at once or when others have released enough. When all holders of
// bytes wait for each other, the latest gets an error at once.
//
// Errors: [ErrTooLarge]; [ErrBusy]; the error of a context that has ended.
func (a *Account) Take(ctx context.Context, n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	b := a.budget
	b.mu.Lock()
	if a.has+n > b.most(0) {
		b.mu.Unlock()
		return ErrTooLarge
	}
	if b.give(a, n) {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{account: a, n: n, done: make(chan error, 1)}
	b.waiting = append(b.waiting, w)
	b.unlock()
	over := time.NewTimer(b.maxWait)
	defer over.Stop()
	var err error
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		err = ctx.Err()
	case <-over.C:
		err = ErrBusy
	}
	b.mu.Lock()
	defer b.unlock()
	if i := slices.Index(b.waiting, w); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return err
	}
	return <-w.done // it was given at this moment
}

// TryTake is Take without waiting. It reports whether there was enough.
func (a *Account) TryTake(n int64) bool {
	if a == nil || n <= 0 {
		return true
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.budget.give(a, n)
}

// Give gives n bytes back, at most all bytes of the account.
func (a *Account) Give(n int64) {
	if a == nil {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.unlock()
	if n = min(n, a.has); n <= 0 {
		return
	}
	b.used -= n
	if b.has[a.key] -= n; b.has[a.key] == 0 {
		delete(b.has, a.key)
	}
	if a.has -= n; a.has == 0 {
		b.holders--
	}
}

// Has returns the bytes of the account.
func (a *Account) Has() int64 {
	if a == nil {
		return 0
	}
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.has
}

// Close gives all bytes back. The account can be used again.
func (a *Account) Close() { a.Give(a.Has()) }

// give gives an account n bytes if its key may have them.
//
// Preconditions: b.mu is held.
func (b *Budget) give(a *Account, n int64) bool {
	if mine := b.has[a.key]; mine+n > b.most(b.used-mine) {
		return false
	}
	if a.has == 0 {
		b.holders++
	}
	a.has += n
	b.has[a.key] += n
	b.used += n
	b.peak = max(b.peak, b.used)
	return true
}

// unlock gives the waiters the bytes that are available now, and unlocks b.mu.
//
// Preconditions: b.mu is held.
func (b *Budget) unlock() {
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		given := b.give(w.account, w.n)
		if given {
			w.done <- nil
		}
		return given
	})
	stuck := 0 // waiters that have bytes
	for _, w := range b.waiting {
		if w.account.has > 0 {
			stuck++
		}
	}
	if stuck == 0 || stuck < b.holders {
		return
	}
	for i, w := range slices.Backward(b.waiting) {
		if w.account.has > 0 { // the others need it to give its bytes up
			b.waiting = slices.Delete(b.waiting, i, i+1)
			w.done <- ErrBusy
			return
		}
	}
}
