package fleet

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// answerer is workers that answer after a time.
type answerer struct {
	after map[*member]time.Duration
	err   map[*member]error // nil: it agrees

	mu        sync.Mutex
	asked     []*member // guarded by mu
	now, most int       // guarded by mu; workers that are asked at the same time
}

func (a *answerer) ask(m *member) error {
	a.mu.Lock()
	a.asked = append(a.asked, m)
	a.now++
	a.most = max(a.most, a.now)
	a.mu.Unlock()
	time.Sleep(a.after[m])
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	return a.err[m]
}

// someWorkers returns n workers, by their number.
func someWorkers(n int) (list []*member) {
	for range n {
		list = append(list, &member{})
	}
	return list
}

var errOther = sandbox.Errorf(sandbox.Unsupported, "another processor")

// TestPollWaitsForBetterWorkers checks that workers which agree within betterWait after the first count, and no others.
func TestPollWaitsForBetterWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := someWorkers(5)
		quick, refuses, late, tooLate, hangs := list[0], list[1], list[2], list[3], list[4]
		a := &answerer{err: map[*member]error{refuses: errOther}, after: map[*member]time.Duration{
			quick: time.Second, refuses: 0, late: time.Second + betterWait/2, tooLate: time.Second + 2*betterWait, hangs: memberTimeout,
		}}
		p := newPoll(list, betterWait, a.ask)
		p.round()
		if want := map[*member]bool{quick: true, late: true}; !maps.Equal(p.agreed, want) || !p.refused[refuses] || p.refusal != errOther {
			t.Errorf("after a round %d have agreed, %v, want the two that are quick", len(p.agreed), p.refusal)
		}
		if others := p.others(map[*member]bool{quick: true}); len(others) != 4 || others[late] {
			t.Errorf("%d workers are no place, want all but the one that has agreed and is not excluded", len(others))
		}
		if !p.goesOn() {
			t.Error("the poll ends before all have answered")
		}
		p.round()
		if !p.agreed[tooLate] || p.agreed[hangs] {
			t.Error("the next round does not wait for the next that agrees")
		}
		for p.goesOn() {
			p.round()
		}
		if len(p.agreed) != 4 {
			t.Errorf("%d have agreed, want 4", len(p.agreed))
		}
	})
}

// TestPollInRounds checks that a poll asks few workers at a time and in their order, that a worker which hangs delays a round only for a moment, and that no
// other is asked when a worker has agreed.
func TestPollInRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := someWorkers(1000)
		agrees := list[100]
		a := &answerer{after: map[*member]time.Duration{list[3]: memberTimeout}, err: map[*member]error{}}
		for _, m := range list {
			a.err[m] = errOther
		}
		a.err[agrees] = driver.ErrNoMemory
		begin := time.Now()
		p := newPoll(list, 0, a.ask)
		rounds := 0
		for ; p.goesOn() && len(p.agreed) == 0; rounds++ {
			p.round()
		}
		took := time.Since(begin)
		synctest.Wait() // until all asks of the last round have begun
		if !p.agreed[agrees] || p.answer != driver.ErrNoMemory {
			t.Errorf("%d have agreed, the answer is %v", len(p.agreed), p.answer)
		}
		if want := 100/askAtOnce + 1; rounds != want || len(a.asked) != want*askAtOnce {
			t.Errorf("%d rounds asked %d workers, want %d rounds of %d", rounds, len(a.asked), want, askAtOnce)
		}
		for i := range 100 / askAtOnce {
			for _, m := range list[i*askAtOnce : (i+1)*askAtOnce] {
				if !slices.Contains(a.asked[i*askAtOnce:(i+1)*askAtOnce], m) {
					t.Fatalf("round %d does not ask the next workers", i)
				}
			}
		}
		if a.most > askAtOnce+1 { // and the worker that hangs
			t.Errorf("%d workers are asked at the same time", a.most)
		}
		if took > betterWait {
			t.Errorf("%d rounds take %v because a worker hangs", rounds, took)
		}
		time.Sleep(memberTimeout)
	})
}

// TestPollOfWorkersThatRefuse checks that a poll ends with the refusal that says the least about the checkpoint.
func TestPollOfWorkersThatRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := someWorkers(40)
		a := &answerer{err: map[*member]error{}}
		for _, m := range list {
			a.err[m] = sandbox.Errorf(sandbox.NotFound, "it is damaged")
		}
		a.err[list[20]] = errOther
		p := newPoll(list, betterWait, a.ask)
		for p.goesOn() {
			p.round()
		}
		if len(p.refused) != 40 || p.refusal != errOther {
			t.Errorf("%d refuse, %v", len(p.refused), fmt.Sprint(p.refusal))
		}
	})
}
