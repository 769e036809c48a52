package auth

import (
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// A client may name unknown secrets guessBurst times at once, and then guessRate times a second.
const (
	guessBurst = 100
	guessRate  = rate.Limit(5)
)

// Guesses counts how often clients name secrets that do not exist, such as the labels
// of sandboxes. Safe for concurrent use.
type Guesses struct{ fails *limiter }

// NewGuesses returns an empty counter.
func NewGuesses() (*Guesses, error) {
	fails, err := newLimiter(guessRate, guessBurst)
	return &Guesses{fails: fails}, err
}

// Wrong counts a wrong guess by the client at remote, an address as in [http.Request].
func (g *Guesses) Wrong(remote string) {
	_, group := audit.Client(remote)
	g.fails.fail(group, time.Now())
}

// TooMany reports whether the client has guessed too often lately. A correct name must be answered
// all the same: the client may share its address with others.
func (g *Guesses) TooMany(remote string) bool {
	_, group := audit.Client(remote)
	return !g.fails.open(group, time.Now())
}

// Close stops the background work. The Guesses must not be used afterwards.
func (g *Guesses) Close() { g.fails.close() }

// TryKey reports whether the request presents the key of an object, such as a sandbox; right
// compares the key. Wrong keys count against the pair of client address and object, because people
// choose keys and may choose guessable keys. After too many wrong keys, a client is not told about
// correct keys either.
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
