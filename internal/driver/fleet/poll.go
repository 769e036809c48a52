package fleet

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// askAtOnce bounds the workers that a round of a poll asks.
	askAtOnce = 16
	// betterWait limits the wait for the answers of other workers, which may have more memory, after a worker has agreed. A worker that does not answer
	// delays the next round only so long.
	betterWait = 250 * time.Millisecond
)

// poll asks workers whether they can restore a checkpoint, in rounds: the machine of a worker that is lost counts as connected for a while, and its
// missing answer delays only one round.
type poll struct {
	ask     func(*member) error
	patient time.Duration    // how long a round goes on after a worker has agreed
	list    []*member        // all, in their order
	left    []*member        // not asked yet
	silent  map[*member]bool // asked, without an answer so far
	agreed  map[*member]bool
	refused map[*member]bool
	answer  error // of a worker that has agreed: nil or [driver.ErrNoMemory]
	refusal error // the refusal that counts; nil: no worker has refused
	answers chan pollAnswer
}

// pollAnswer is the answer of a worker.
type pollAnswer struct {
	member *member
	err    error
}

// newPoll returns a poll of workers, which are asked in the order of the list. ask may be called for several at a time. It returns nil or
// [driver.ErrNoMemory] if a worker agrees.
func newPoll(list []*member, patient time.Duration, ask func(*member) error) *poll {
	return &poll{
		ask: ask, patient: patient, list: list, left: list, silent: map[*member]bool{}, agreed: map[*member]bool{}, refused: map[*member]bool{},
		answers: make(chan pollAnswer, len(list)),
	}
}

// goesOn reports whether another round may bring answers.
func (p *poll) goesOn() bool { return len(p.left)+len(p.silent) > 0 }

// round asks the next workers and receives answers, also of rounds before, until all workers that it has asked have answered, or no more answers are worth a
// wait: after a worker has agreed, or while there are others to ask. The last round waits for all answers, or a worker that agrees.
func (p *poll) round() {
	n := min(askAtOnce, len(p.left))
	open := map[*member]bool{} // asked in this round, without an answer
	for _, m := range p.left[:n] {
		open[m], p.silent[m] = true, true
		go func() { p.answers <- pollAnswer{m, p.ask(m)} }()
	}
	p.left = p.left[n:]
	var enough <-chan time.Time
	if len(p.left) > 0 {
		enough = time.After(betterWait)
	}
	for before := len(p.agreed); len(open) > 0 || len(p.left) == 0 && len(p.silent) > 0; {
		select {
		case a := <-p.answers:
			delete(open, a.member)
			delete(p.silent, a.member)
			if a.err != nil && !errors.Is(a.err, driver.ErrNoMemory) {
				p.refused[a.member] = true
				p.refusal = lesser(p.refusal, a.err)
				continue
			}
			p.agreed[a.member], p.answer = true, a.err
			if p.patient == 0 {
				return
			}
			if len(p.agreed) == before+1 {
				enough = time.After(p.patient)
			}
		case <-enough:
			return
		}
	}
}

// others returns some workers, and the workers of the poll that have not agreed.
func (p *poll) others(some map[*member]bool) map[*member]bool {
	others := maps.Clone(some)
	for _, m := range p.list {
		if !p.agreed[m] {
			others[m] = true
		}
	}
	return others
}

// canRestore asks a worker. One that hangs counts as away.
func (m *member) canRestore(ctx context.Context, dir string) error {
	_, err := within(ctx, memberTimeout, func(context.Context) (struct{}, error) { return struct{}{}, m.boxes.CanRestore(dir) })
	return err
}

// lesser returns which of two refusals of workers counts, the first may be nil: the refusal that says less about the checkpoint. That a
// checkpoint is damaged, as not found says, counts if all workers say so.
func lesser(a, b error) error {
	weight := func(err error) int {
		switch sandbox.CodeOf(err) {
		case sandbox.NotFound:
			return 0
		case sandbox.Unsupported:
			return 1
		}
		return 2
	}
	if a == nil || weight(b) > weight(a) {
		return b
	}
	return a
}
