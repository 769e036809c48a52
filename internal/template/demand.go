package template

import (
	"math"
	"time"

	"github.com/modbox/modbox/internal/pool"
)

const (
	// demandHalfLife is the time after which a create counts half as much.
	demandHalfLife = 10 * time.Minute
	// demandMin is the number of recent creates from which on a kind gets a template.
	demandMin = 1.5
	// demandKinds bounds the number of kinds whose demand is remembered.
	demandKinds = 256
	// failurePause is the time after a failure in which no template of the kind is made; it doubles with each failure.
	failurePause, failurePauseMax = time.Minute, time.Hour
)

// demand is the number of recent creates of a kind, each counting less the longer ago it was.
type demand struct {
	creates  float64
	at       time.Time // the time at which the number was creates
	failures int
	failed   time.Time
}

func (d *demand) now(now time.Time) float64 {
	return d.creates * math.Exp2(-float64(now.Sub(d.at))/float64(demandHalfLife))
}

// count counts a create of a kind.
//
// Preconditions: k.mu is held.
func (k *Keeper) count(kind pool.Kind, now time.Time) {
	d := k.demand[kind]
	if d == nil {
		if len(k.demand) >= demandKinds {
			k.forgetLeast(now)
		}
		d = &demand{}
		k.demand[kind] = d
	}
	d.creates, d.at = d.now(now)+1, now
}

// forgetLeast forgets the kind with the least demand.
//
// Preconditions: k.mu is held.
func (k *Keeper) forgetLeast(now time.Time) {
	var least pool.Kind
	creates := math.Inf(1)
	for kind, d := range k.demand {
		if n := d.now(now); n < creates {
			least, creates = kind, n
		}
	}
	delete(k.demand, least)
}

// fail counts a failure with the template of a kind.
//
// Preconditions: k.mu is held.
func (k *Keeper) fail(kind pool.Kind, now time.Time) {
	if d := k.demand[kind]; d != nil {
		d.failures++
		d.failed = now
	}
}

// missing returns the kind with the most demand that has no template and is to get one.
func (k *Keeper) missing(now time.Time) (most pool.Kind, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.made) < makePause {
		return most, false
	}
	creates := demandMin
	for kind, d := range k.demand {
		n := d.now(now)
		if n < demandMin/8 {
			delete(k.demand, kind)
		}
		pause := min(failurePause<<min(max(d.failures-1, 0), 10), failurePauseMax)
		if n >= creates && k.ready[kind] == nil && (d.failures == 0 || now.Sub(d.failed) >= pause) {
			most, creates, ok = kind, n, true
		}
	}
	return most, ok
}
