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
	// placesInAll, placesOfWorkspace and placesOfWebhook bound the attempts under way. A webhook in
	// doubt has a single place, and all that are in doubt have at most half of the places of their
	// workspace, and of the server. So receivers that fail or are slow leave places for others.
	placesInAll, placesOfWorkspace, placesOfWebhook = 64, 4, 2
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
	workspaces map[sandbox.WorkspaceID]counts // with places; guarded by mu
	webhooks   map[ID]int                     // with places; guarded by mu
	underWay   map[underWay]sandbox.ID        // deliveries, with their sandboxes; guarded by mu
	health     map[ID]health                  // of webhooks in doubt; guarded by mu

	turns         int64                         // guarded by mu
	workspaceTurn map[sandbox.WorkspaceID]int64 // the last turn that each got; guarded by mu
	webhookTurn   map[ID]int64                  // guarded by mu
}

// counts are numbers of places.
type counts struct{ all, doubtful int }

type underWay struct {
	webhook  ID
	delivery string
}

// health is why a webhook is in doubt.
type health struct {
	failures int       // attempts that failed in a row; 0 for a slow success
	until    time.Time // no attempt begins before
}

func newPlaces() *places {
	return &places{
		workspaces: map[sandbox.WorkspaceID]counts{}, webhooks: map[ID]int{}, underWay: map[underWay]sandbox.ID{}, health: map[ID]health{},
		workspaceTurn: map[sandbox.WorkspaceID]int64{}, webhookTurn: map[ID]int64{},
	}
}

// due returns the webhooks that are due, and the time until another is, at most most.
func (p *places) due(all []Waiting, now time.Time, most time.Duration) ([]Waiting, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Waiting
	workspaces, webhooks := map[sandbox.WorkspaceID]int64{}, map[ID]int64{}
	for _, w := range all {
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
	p.workspaceTurn, p.webhookTurn = workspaces, webhooks // without workspaces and webhooks that wait for nothing now
	return list, most
}

// pick returns the index of the webhook that gets the next place, or -1 when none can have a place. The
// workspace with the fewest places comes first, and of several the workspace whose last turn is longest
// ago. The same holds for the webhooks of a workspace.
func (p *places) pick(list []Waiting) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, w := range list {
		if p.allows(w.Workspace, w.Webhook) && (best < 0 || p.compare(w, list[best]) < 0) {
			best = i
		}
	}
	return best
}

// Preconditions: p.mu is held.
func (p *places) compare(a, b Waiting) int {
	return cmp.Or(
		cmp.Compare(p.workspaces[a.Workspace].all, p.workspaces[b.Workspace].all),
		cmp.Compare(p.workspaceTurn[a.Workspace], p.workspaceTurn[b.Workspace]),
		cmp.Compare(p.webhooks[a.Webhook], p.webhooks[b.Webhook]),
		cmp.Compare(p.webhookTurn[a.Webhook], p.webhookTurn[b.Webhook]),
	)
}

// allows reports whether a webhook may have another place.
//
// Preconditions: p.mu is held.
func (p *places) allows(ws sandbox.WorkspaceID, id ID) bool {
	if p.taken.all >= placesInAll || p.workspaces[ws].all >= placesOfWorkspace {
		return false
	}
	if h, doubtful := p.health[id]; doubtful {
		return !h.until.After(time.Now()) && p.webhooks[id] == 0 && p.taken.doubtful < placesInAll/2 && p.workspaces[ws].doubtful < placesOfWorkspace/2
	}
	return p.webhooks[id] < placesOfWebhook
}

// take takes a place for the first delivery that is not under way and whose sandbox has no event under
// way to the same webhook. It reports false when there is none. The caller must call release once.
func (p *places) take(list []Delivery) (v Delivery, release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range list {
		if !p.allows(v.Workspace, v.Webhook) {
			break
		}
		if p.busy(&v) {
			continue
		}
		_, doubtful := p.health[v.Webhook]
		p.underWay[underWay{v.Webhook, v.ID}] = v.Event.Sandbox
		p.add(v.Workspace, v.Webhook, doubtful, 1)
		p.turns++
		p.workspaceTurn[v.Workspace], p.webhookTurn[v.Webhook] = p.turns, p.turns
		return v, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.underWay, underWay{v.Webhook, v.ID})
			p.add(v.Workspace, v.Webhook, doubtful, -1)
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
func (p *places) add(ws sandbox.WorkspaceID, id ID, doubtful bool, n int) {
	c := p.workspaces[ws]
	c.all, p.taken.all = c.all+n, p.taken.all+n
	if doubtful {
		c.doubtful, p.taken.doubtful = c.doubtful+n, p.taken.doubtful+n
	}
	if p.workspaces[ws] = c; c.all == 0 {
		delete(p.workspaces, ws)
	}
	if p.webhooks[id] += n; p.webhooks[id] == 0 {
		delete(p.webhooks, id)
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
