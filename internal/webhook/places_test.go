package webhook

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// takeAll gives places until none can have one, and returns how many each webhook got.
func takeAll(t *testing.T, p *places, all []Waiting, releases *[]func()) map[ID]int {
	t.Helper()
	got := map[ID]int{}
	list, _ := p.due(all, time.Now(), time.Hour)
	for n := 0; ; n++ {
		i := p.pick(list)
		if i < 0 {
			return got
		}
		w := list[i]
		_, release, ok := p.take(w, []Delivery{{ID: fmt.Sprint("d", n, len(*releases)), Webhook: w.Webhook, Workspace: w.Workspace}})
		if !ok {
			t.Fatalf("%s was picked but gets no place", w.Webhook)
		}
		*releases = append(*releases, release)
		got[w.Webhook]++
	}
}

// waiting returns n webhooks of a workspace, all made by a user of their own, that have answered before.
func waiting(ws sandbox.WorkspaceID, n int) []Waiting {
	var list []Waiting
	for i := range n {
		list = append(list, Waiting{Workspace: ws, Webhook: ID(fmt.Sprint(ws, i)), User: sandbox.UserID(ws), Answered: true, Pending: 1000})
	}
	return list
}

func TestPlacesAreShared(t *testing.T) {
	var releases []func()
	p := newPlaces()
	one := takeAll(t, p, waiting("a", 1), &releases)
	if one["a0"] != placesOfWebhook {
		t.Errorf("a single webhook gets %d places, want %d", one["a0"], placesOfWebhook)
	}
	if more := takeAll(t, p, waiting("a", 20), &releases); len(more) != placesOfWorkspace-placesOfWebhook || more["a0"] != 0 {
		t.Errorf("twenty webhooks of the workspace then get %v, want a place for two others", more)
	}
	var all []Waiting
	for i := range 100 {
		all = append(all, waiting(sandbox.WorkspaceID(fmt.Sprint("w", i, "-")), 20)...)
	}
	got := takeAll(t, p, all, &releases)
	if len(got) != placesInAll-placesOfWorkspace {
		t.Errorf("%d webhooks get a place, want one of each of %d workspaces: %v", len(got), placesInAll-placesOfWorkspace, got)
	}
	for _, release := range releases {
		release()
	}
	releases = nil
	second := takeAll(t, p, all, &releases)
	for _, w := range all {
		if workspace := string(w.Workspace); !served(got, workspace) && !served(second, workspace) {
			t.Errorf("workspace %s has no turn twice, although others have two", workspace)
		}
	}
}

// served reports whether a webhook of the workspace got a place.
func served(got map[ID]int, workspace string) bool {
	for id := range got {
		if strings.HasPrefix(string(id), workspace) {
			return true
		}
	}
	return false
}

// TestFailingWebhooksLeavePlaces checks that receivers that fail never have all places.
func TestFailingWebhooksLeavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []Waiting
		p := newPlaces()
		for i := range 100 {
			list := waiting(sandbox.WorkspaceID(fmt.Sprint("w", i, "-")), 20)
			for j, w := range list {
				if i == 0 || j < 19 { // the first workspace has only failing webhooks
					p.attempted(w.Webhook, result{err: "the receiver answered 500"}, time.Now())
				}
			}
			all = append(all, list...)
		}
		time.Sleep(lastPause * 2) // of the fake clock: the pauses are over
		var releases []func()
		got := takeAll(t, p, all, &releases)
		failing, others := 0, 0
		for id, n := range got {
			if _, bad := p.health[id]; bad {
				failing += n
			} else {
				others += n
			}
		}
		if failing > placesInAll/2 || others < placesInAll/2 {
			t.Errorf("webhooks that fail have %d places, others %d, want at most half", failing, others)
		}
		for ws, c := range p.workspaces {
			if c.doubtful > placesOfWorkspace/2 {
				t.Errorf("webhooks that fail have %d places of workspace %s, want at most half", c.doubtful, ws)
			}
		}
	})
}

// TestNewWebhooksShareFewPlaces has users with many workspaces who make webhooks all the time.
func TestNewWebhooksShareFewPlaces(t *testing.T) {
	p := newPlaces()
	made := func(user string) (list []Waiting) {
		for i := range 16 {
			for _, w := range waiting(sandbox.WorkspaceID(fmt.Sprint(user, "-", i, "-")), 16) {
				w.User, w.Answered = sandbox.UserID(user), false
				list = append(list, w)
			}
		}
		return list
	}
	var releases []func()
	held := 0
	for id, n := range takeAll(t, p, made("a"), &releases) {
		if held += n; n != 1 {
			t.Errorf("the new webhook %s has %d places, want 1", id, n)
		}
	}
	if held != newOfUser {
		t.Errorf("the new webhooks of a user have %d places, want %d", held, newOfUser)
	}
	for i := range 8 {
		for _, n := range takeAll(t, p, made(fmt.Sprint("b", i)), &releases) {
			held += n
		}
	}
	if held != newInAll || p.taken != (counts{newInAll, newInAll, newInAll}) {
		t.Errorf("all new webhooks have %d places, counted as %+v, want %d", held, p.taken, newInAll)
	}
	var all []Waiting
	for i := range 64 {
		all = append(all, waiting(sandbox.WorkspaceID(fmt.Sprint("w", i, "-")), 1)...)
	}
	if got := takeAll(t, p, all, &releases); len(got) < placesInAll-newInAll-1 {
		t.Errorf("beside new webhooks, %d webhooks that answer get a place, want about %d", len(got), placesInAll-newInAll)
	}
	for _, release := range releases {
		release()
	}
	if p.taken != (counts{}) || len(p.users)+len(p.workspaces)+len(p.webhooks)+len(p.underWay) != 0 {
		t.Errorf("after all attempts %+v places are taken, by %v, %v and %v", p.taken, p.users, p.workspaces, p.webhooks)
	}
}

// TestPlacesOfAUser checks that a user's webhooks leave places for others, in however many workspaces they are.
func TestPlacesOfAUser(t *testing.T) {
	p := newPlaces()
	var many []Waiting
	for i := range 100 {
		for _, w := range waiting(sandbox.WorkspaceID(fmt.Sprint("m", i, "-")), 16) {
			w.User = "many"
			many = append(many, w)
		}
	}
	var releases []func()
	alone := 0
	for _, n := range takeAll(t, p, many, &releases) {
		alone += n
	}
	if alone != placesOfUser {
		t.Errorf("the webhooks of a user have %d places, want %d", alone, placesOfUser)
	}
	for _, release := range releases {
		release()
	}
	releases = nil
	// Beside others, a user has as many turns as each of them.
	all := append(many, waiting("one", 1)...)
	list, _ := p.due(all, time.Now(), time.Hour)
	for range 4 {
		w := list[p.pick(list)]
		_, release, _ := p.take(w, []Delivery{{ID: fmt.Sprint("d", len(releases)), Webhook: w.Webhook, Workspace: w.Workspace}})
		releases = append(releases, release)
	}
	if p.users["many"].all != 2 || p.users["one"].all != 2 {
		t.Errorf("of four places, the user with 100 workspaces has %d and the other %d, want 2 each", p.users["many"].all, p.users["one"].all)
	}
}

func TestPausesAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, all := newPlaces(), waiting("a", 2)
		last := time.Duration(0)
		for range 12 {
			p.attempted("a0", result{err: "the receiver answered 500"}, time.Now())
			list, pause := p.due(all, time.Now(), time.Hour)
			if len(list) != 1 || list[0].Webhook != "a1" || pause > lastPause*6/5 {
				t.Fatalf("due are %v, the next in %s, want a1, and a0 within %s", list, pause, lastPause*6/5)
			}
			if pause <= last && pause < lastPause*4/5 {
				t.Errorf("the pause is %s after %s, want it longer", pause, last)
			}
			last = pause
			time.Sleep(pause)
		}
		if last < lastPause*4/5 {
			t.Errorf("the last pause is %s, want about %s", last, lastPause)
		}
		p.attempted("a0", result{duration: slowAfter + 1}, time.Now())
		var releases []func()
		if got := takeAll(t, p, all[:1], &releases); got["a0"] != 1 {
			t.Errorf("a slow webhook gets %d places, want 1", got["a0"])
		}
		releases[0]()
		p.attempted("a0", result{}, time.Now())
		if got := takeAll(t, p, all[:1], &releases); got["a0"] != placesOfWebhook {
			t.Errorf("a webhook that answers well again gets %d places, want %d", got["a0"], placesOfWebhook)
		}
		p.attempted("a1", result{err: "e"}, time.Now())
		time.Sleep(2 * healthKept)
		if p.forget(time.Now()); len(p.health) != 0 {
			t.Errorf("webhooks are in doubt for ever: %v", p.health)
		}
	})
}

func TestOneEventOfASandboxAtATime(t *testing.T) {
	p := newPlaces()
	delivery := func(id, sb string) Delivery {
		return Delivery{ID: id, Webhook: "h", Workspace: "w", Event: sandbox.Event{Sandbox: sandbox.ID(sb)}}
	}
	list := []Delivery{delivery("1", "a"), delivery("2", "a"), delivery("3", "b")}
	hook := Waiting{Workspace: "w", Webhook: "h", User: "u", Answered: true}
	first, release, _ := p.take(hook, list)
	second, releaseSecond, ok := p.take(hook, list)
	if first.ID != "1" || !ok || second.ID != "3" {
		t.Fatalf("deliveries %s and %s are under way, want 1 and 3", first.ID, second.ID)
	}
	releaseSecond()
	if v, _, ok := p.take(hook, list[:2]); ok {
		t.Errorf("delivery %s is under way beside an earlier event of its sandbox", v.ID)
	}
	release()
	if v, _, ok := p.take(hook, list[1:]); !ok || v.ID != "2" {
		t.Errorf("delivery %s follows, %t, want 2", v.ID, ok)
	}
}

func TestInterval(t *testing.T) {
	want := firstRetry
	for n := 1; n < 40; n++ {
		if got := interval(firstRetry, lastRetry, n); got < want*79/100 || got > want*121/100 {
			t.Errorf("the pause after %d attempts is %s, want about %s", n, got, want)
		}
		want = min(want*3, lastRetry)
	}
}
