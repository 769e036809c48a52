package auth

import (
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// A client may name something unknown guessBurst times at once and guessRate times a
// second for ever.
const (
	guessBurst = 100
	guessRate  = rate.Limit(5)
)

// Guesses counts how often clients name secrets that do not exist, such as the labels
// of sandboxes. Safe for concurrent use.
type Guesses struct{ fails *limiter }

// NewGuesses returns Guesses without any.
func NewGuesses() (*Guesses, error) {
	fails, err := newLimiter(guessRate, guessBurst)
	return &Guesses{fails: fails}, err
}

// Wrong counts a guess of the client at a remote address, as [http.Request] has it.
func (g *Guesses) Wrong(remote string) {
	_, group := audit.Client(remote)
	g.fails.fail(group, time.Now())
}

// TooMany reports whether the client has guessed too often lately. What it names right
// must be answered all the same: it may share its address with others.
func (g *Guesses) TooMany(remote string) bool {
	_, group := audit.Client(remote)
	return !g.fails.open(group, time.Now())
}

// Close stops the background work. The Guesses must not be used afterwards.
func (g *Guesses) Close() { g.fails.close() }

// TryKey reports whether the client of a request knows the key of an object, such as a
// sandbox, which right says. Wrong ones count for the client's address and the object:
// keys are chosen by people. A client that has guessed too often is not told about good
// ones either.
//
// Errors: QuotaExceeded.
func (a *Authenticator) TryKey(r *http.Request, object string, right func() bool) (bool, error) {
	_, group := audit.Client(r.RemoteAddr)
	client := object + " " + group
	if !a.keys.open(client, time.Now()) {
		e := sandbox.Errorf(sandbox.QuotaExceeded, "too many wrong keys from this address; wait a minute")
		e.RetryAfter = time.Minute
		return false, e
	}
	if right() {
		return true, nil
	}
	a.keys.fail(client, time.Now())
	return false, nil
}
