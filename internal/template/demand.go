package template

import (
	"math"
	"time"

	"github.com/modbox/modbox/internal/pool"
)

const (
	// failurePause is the time after a failure in which no template of the kind is made; it doubles with each failure.
	failurePause, failurePauseMax = time.Minute, time.Hour
	// replaceMin is how many times the demand of a template a kind must have to take its place: kinds with about the same
	// demand do not replace each other for ever.
	replaceMin = 2
)

// failures are the failures with the template of a kind since it was last restored.
type failures struct {
	n    int
	last time.Time
}

// fail counts a failure with the template of a kind.
//
// Preconditions: k.mu is held.
func (k *Keeper) fail(kind pool.Kind, now time.Time) {
	k.failed[kind] = failures{k.failed[kind].n + 1, now}
}

// pauses reports whether no template of a kind is made after failures.
//
// Preconditions: k.mu is held.
func (k *Keeper) pauses(kind pool.Kind, now time.Time) bool {
	f := k.failed[kind]
	return f.n > 0 && now.Sub(f.last) < min(failurePause<<min(f.n-1, 10), failurePauseMax)
}

// missing returns the kind with the most demand that has no template and is to get one, without the kinds of skip.
func (k *Keeper) missing(now time.Time, skip map[pool.Kind]bool) (most pool.Kind, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.made) < makePause {
		return most, false
	}
	for kind, f := range k.failed {
		if now.Sub(f.last) > 2*failurePauseMax {
			delete(k.failed, kind)
		}
	}
	demand := k.demand.Images(maxTemplates, now)
	least := 0.0
	if len(k.ready) >= maxTemplates || k.bytes()+k.lastBytes > k.cfg.MaxBytes {
		least = replaceMin * demand[k.least(demand, most)]
	}
	creates := 0.0
	for kind, n := range demand {
		if n > creates && n >= least && k.ready[kind] == nil && !skip[kind] && !k.pauses(kind, now) {
			most, creates, ok = kind, n, true
		}
	}
	return most, ok
}

// least returns the kind of template with the least demand, but not the kind given; of several the least recently used.
//
// Preconditions: k.mu is held.
func (k *Keeper) least(demand map[pool.Kind]float64, but pool.Kind) (kind pool.Kind) {
	creates := math.Inf(1)
	var used time.Time
	for other, t := range k.ready {
		n := demand[other]
		if other != but && (n < creates || n == creates && t.used.Before(used)) {
			kind, creates, used = other, n, t.used
		}
	}
	return kind
}
