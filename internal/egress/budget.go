package egress

import "sync"

const (
	// minBuffer is the buffer of every connection for each direction, however scarce memory is;
	// maxBuffer is the size while there is plenty.
	minBuffer = 16 << 10
	maxBuffer = 512 << 10
	// copyBuffer is the unit of copying between a sandbox and the host.
	copyBuffer = 32 << 10
)

// budget is a number of flows, and the memory that they may use beyond their minimum.
type budget struct {
	mu    sync.Mutex
	flows int   // still free, guarded by mu
	extra int64 // still free bytes, guarded by mu
}

// lease is the share of the budgets that a flow has taken.
type lease struct {
	budgets []*budget
	// extra is the memory beyond the minimum, in bytes, for both directions together.
	extra int64
}

// take takes a flow from all budgets or from none. A flow asks for want bytes beyond its minimum
// and gets at most a sixteenth of the free bytes: the later flows get less, but every flow gets
// something.
func take(want int64, budgets ...*budget) (*lease, bool) {
	l := &lease{extra: want}
	for _, b := range budgets {
		l.extra = min(l.extra, b.share())
	}
	for _, b := range budgets {
		if !b.take(l.extra) {
			l.release()
			return nil, false
		}
		l.budgets = append(l.budgets, b)
	}
	return l, true
}

// buffer returns the size of the flow's buffer for each direction.
func (l *lease) buffer() int { return minBuffer + int(l.extra/2) }

// release returns the lease to the budgets. It must be called once.
func (l *lease) release() {
	for _, b := range l.budgets {
		b.mu.Lock()
		b.flows++
		b.extra += l.extra
		b.mu.Unlock()
	}
}

func (b *budget) share() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.extra / 16
}

func (b *budget) take(extra int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flows == 0 || b.extra < extra {
		return false
	}
	b.flows--
	b.extra -= extra
	return true
}
