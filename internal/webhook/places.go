package webhook

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// placesInAll, placesOfUser, placesOfWorkspace and placesOfWebhook bound the attempts under way. The
	// webhooks of a user are all that the user has made, in any workspace.
	placesInAll, placesOfUser, placesOfWorkspace, placesOfWebhook = 64, 16, 4, 2
	// A webhook in doubt has a single place, and all that are in doubt have at most half of the places of
	// their workspace, of their user and of the server. So receivers that fail or are slow leave places for
	// others. A webhook is in doubt from the start: until a first delivery has arrived it is new, and all
	// new webhooks share a quarter of the places of the server. So webhooks that are made all the time for
	// receivers that never answer hold few places.
	newInAll, newOfUser, newOfWorkspace = 16, 4, 2
	// slowAfter is the time of an attempt from which a webhook is in doubt.
	slowAfter = 3 * time.Second
	// firstPause and lastPause bound the pause of a webhook after attempts that failed in a row.
	firstPause, lastPause = 100 * time.Millisecond, time.Minute
	// healthKept is the time after which the server forgets that a webhook was in doubt.
	healthKept = time.Hour
)

// places are the places for attempts. It differs from a fair semaphore in that nothing waits for a
// place: a look at the store picks the webhooks that get the free places, and deliveries that get none
// stay in the store. Safe for concurrent use.
type places struct {
	mu         sync.Mutex
	taken      counts                         // in all; guarded by mu
	users      map[sandbox.UserID]counts      // with places; guarded by mu
	workspaces map[sandbox.WorkspaceID]counts // with places; guarded by mu
	webhooks   map[ID]int                     // with places; guarded by mu
	underWay   map[underWay]sandbox.ID        // deliveries, with their sandboxes; guarded by mu
	health     map[ID]health                  // of webhooks in doubt; guarded by mu

	turns         int64                         // guarded by mu
	userTurn      map[sandbox.UserID]int64      // the last turn that each got; guarded by mu
	workspaceTurn map[sandbox.WorkspaceID]int64 // guarded by mu
	webhookTurn   map[ID]int64                  // guarded by mu
}

// counts are numbers of places: all, and of webhooks in doubt, and of new webhooks.
type counts struct{ all, doubtful, fresh int }

func (c counts) plus(d counts) counts {
	return counts{c.all + d.all, c.doubtful + d.doubtful, c.fresh + d.fresh}
}

// below reports whether the places of a kind allow another.
func (c counts) below(kind, most counts) bool {
	return c.all < most.all && (kind.doubtful == 0 || c.doubtful < most.doubtful) && (kind.fresh == 0 || c.fresh < most.fresh)
}

// The most places in all, of a user and of a workspace.
var (
	mostInAll       = counts{placesInAll, placesInAll / 2, newInAll}
	mostOfUser      = counts{placesOfUser, placesOfUser / 2, newOfUser}
	mostOfWorkspace = counts{placesOfWorkspace, placesOfWorkspace / 2, newOfWorkspace}
)

type underWay struct {
	webhook  ID
	delivery string
}

// health is why a webhook is in doubt although a delivery has arrived.
type health struct {
	failures int       // attempts that failed in a row; 0 for a slow success
	until    time.Time // no attempt begins before
}

func newPlaces() *places {
	return &places{
		users: map[sandbox.UserID]counts{}, workspaces: map[sandbox.WorkspaceID]counts{}, webhooks: map[ID]int{},
		underWay: map[underWay]sandbox.ID{}, health: map[ID]health{},
		userTurn: map[sandbox.UserID]int64{}, workspaceTurn: map[sandbox.WorkspaceID]int64{}, webhookTurn: map[ID]int64{},
	}
}

// due returns the webhooks that are due, and the time until another is, at most most.
func (p *places) due(all []Waiting, now time.Time, most time.Duration) ([]Waiting, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Waiting
	users, workspaces, webhooks := map[sandbox.UserID]int64{}, map[sandbox.WorkspaceID]int64{}, map[ID]int64{}
	for _, w := range all {
		users[w.User] = p.userTurn[w.User]
		workspaces[w.Workspace], webhooks[w.Webhook] = p.workspaceTurn[w.Workspace], p.webhookTurn[w.Webhook]
		at := w.Due
		if h := p.health[w.Webhook]; h.until.After(at) {
			at = h.until
		}
		if until := at.Sub(now); until > 0 {
			most = min(most, until)
		} else {
			list = append(list, w)
		}
	}
	p.userTurn, p.workspaceTurn, p.webhookTurn = users, workspaces, webhooks // webhooks without waiting deliveries lose their turns
	return list, most
}

// pick returns the index of the webhook that gets the next place, or -1 when none can have a place. The
// user with the fewest places comes first, and of several the user whose last turn is longest ago. The
// same holds for the workspaces of a user, and for the webhooks of a workspace.
func (p *places) pick(list []Waiting) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, w := range list {
		if p.allows(w) && (best < 0 || p.compare(w, list[best]) < 0) {
			best = i
		}
	}
	return best
}

// Preconditions: p.mu is held.
func (p *places) compare(a, b Waiting) int {
	return cmp.Or(
		cmp.Compare(p.users[a.User].all, p.users[b.User].all),
		cmp.Compare(p.userTurn[a.User], p.userTurn[b.User]),
		cmp.Compare(p.workspaces[a.Workspace].all, p.workspaces[b.Workspace].all),
		cmp.Compare(p.workspaceTurn[a.Workspace], p.workspaceTurn[b.Workspace]),
		cmp.Compare(p.webhooks[a.Webhook], p.webhooks[b.Webhook]),
		cmp.Compare(p.webhookTurn[a.Webhook], p.webhookTurn[b.Webhook]),
	)
}

// kind returns the place that a webhook needs.
//
// Preconditions: p.mu is held.
func (p *places) kind(w Waiting) counts {
	if !w.Answered {
		return counts{1, 1, 1}
	}
	if _, doubtful := p.health[w.Webhook]; doubtful {
		return counts{1, 1, 0}
	}
	return counts{all: 1}
}

// allows reports whether a webhook may have another place.
//
// Preconditions: p.mu is held.
func (p *places) allows(w Waiting) bool {
	kind := p.kind(w)
	most := placesOfWebhook
	if kind.doubtful > 0 {
		most = 1
	}
	return p.webhooks[w.Webhook] < most && !p.health[w.Webhook].until.After(time.Now()) &&
		p.taken.below(kind, mostInAll) && p.users[w.User].below(kind, mostOfUser) && p.workspaces[w.Workspace].below(kind, mostOfWorkspace)
}

// take takes a place of a webhook for the first of its deliveries that is not under way and whose sandbox
// has no event under way to the webhook. It reports false when there is none. The caller must call release once.
func (p *places) take(w Waiting, list []Delivery) (v Delivery, release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range list {
		if !p.allows(w) {
			break
		}
		if p.busy(&v) {
			continue
		}
		kind := p.kind(w)
		p.underWay[underWay{w.Webhook, v.ID}] = v.Event.Sandbox
		p.add(w, kind)
		p.turns++
		p.userTurn[w.User], p.workspaceTurn[w.Workspace], p.webhookTurn[w.Webhook] = p.turns, p.turns, p.turns
		return v, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.underWay, underWay{w.Webhook, v.ID})
			p.add(w, counts{-kind.all, -kind.doubtful, -kind.fresh})
		}, true
	}
	return Delivery{}, nil, false
}

// underWayTo returns the deliveries that are under way to a webhook.
func (p *places) underWayTo(id ID) (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for v := range p.underWay {
		if v.webhook == id {
			list = append(list, v.delivery)
		}
	}
	return list
}

// Preconditions: p.mu is held.
func (p *places) busy(v *Delivery) bool {
	for other, sb := range p.underWay {
		if other.webhook == v.Webhook && (other.delivery == v.ID || sb != "" && sb == v.Event.Sandbox) {
			return true
		}
	}
	return false
}

// Preconditions: p.mu is held.
func (p *places) add(w Waiting, n counts) {
	p.taken = p.taken.plus(n)
	change(p.users, w.User, n)
	change(p.workspaces, w.Workspace, n)
	if p.webhooks[w.Webhook] += n.all; p.webhooks[w.Webhook] == 0 {
		delete(p.webhooks, w.Webhook)
	}
}

func change[K comparable](of map[K]counts, key K, n counts) {
	if of[key] = of[key].plus(n); of[key].all == 0 {
		delete(of, key)
	}
}

// attempted notes the outcome of an attempt that ended now.
func (p *places) attempted(id ID, r result, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.err != "":
		n := p.health[id].failures + 1
		p.health[id] = health{failures: n, until: now.Add(interval(firstPause, lastPause, n))}
	case r.duration > slowAfter:
		p.health[id] = health{until: now}
	default:
		delete(p.health, id)
	}
}

// forget forgets webhooks, also deleted webhooks, that were in doubt long ago.
func (p *places) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.health, func(_ ID, h health) bool { return now.Sub(h.until) > healthKept })
}

// interval returns the pause after n attempts: three times as long each time up to a limit, and varied
// by 20 %.
func interval(first, last time.Duration, n int) time.Duration {
	b := backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: last, Multiplier: 3, RandomizationFactor: 0.2}
	b.Reset()
	var pause time.Duration
	for range min(n, 20) { // the limit is reached by then
		pause = b.NextBackOff()
	}
	return pause
}
