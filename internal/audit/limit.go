package audit

import (
	"strconv"
	"sync"
)

// Limits of the refused requests that are recorded individually each minute; more are only counted.
// So clients without access can neither fill the disk nor displace the records of others. The
// counts are recorded once a minute, for each user, and for all anonymous clients together.
const (
	refusedPerAddress = 10  // of an address (IPv6: a /64) without a user
	refusedAnonymous  = 60  // of all anonymous clients together
	refusedPerUser    = 120 // of a user
	limitKeys         = 10_000
)

// limit counts the refusals of the current minute. Safe for concurrent use.
type limit struct {
	mu        sync.Mutex
	seen      map[string]int      // guarded by mu; by user, or group of addresses
	anonymous int                 // guarded by mu
	left      map[string]*leftOut // guarded by mu; by user
	most      int                 // limit of those without a user
}

// leftOut counts refusals without records.
type leftOut struct {
	workspace, user string
	requests        int
	addresses       map[string]struct{}
}

func newLimit(most int) *limit {
	return &limit{most: most, seen: map[string]int{}, left: map[string]*leftOut{}}
}

// allow reports whether the refusal gets its own record.
func (l *limit) allow(r *Record, group string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, most := "address "+group, refusedPerAddress
	if r.User != "" {
		key, most = "user "+r.User, refusedPerUser
	}
	n, known := l.seen[key]
	full := !known && len(l.seen) >= limitKeys
	if n < most && !full && (r.User != "" || l.anonymous < l.most) {
		l.seen[key] = n + 1
		if r.User == "" {
			l.anonymous++
		}
		return true
	}
	l.leaveOut(r, group)
	return false
}

// count counts a refusal for which the queue had no place.
func (l *limit) count(r *Record, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveOut(r, group)
}

// leaveOut counts a refusal without record; mu is held.
func (l *limit) leaveOut(r *Record, group string) {
	x := l.left[r.User]
	if x == nil {
		x = &leftOut{workspace: r.Workspace, user: r.User, addresses: map[string]struct{}{}}
		l.left[r.User] = x
	}
	if x.workspace != r.Workspace {
		x.workspace = ""
	}
	x.requests++
	if len(x.addresses) < limitKeys {
		x.addresses[group] = struct{}{}
	}
}

// next begins the next minute and returns records of the counts of the last.
func (l *limit) next() []*Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []*Record
	for _, x := range l.left {
		list = append(list, &Record{
			Action: ActionRefused, Outcome: Failed, User: x.user, Workspace: x.workspace,
			Details: map[string]string{"requests": strconv.Itoa(x.requests), "addresses": strconv.Itoa(len(x.addresses))},
		})
	}
	l.seen, l.left, l.anonymous = map[string]int{}, map[string]*leftOut{}, 0
	return list
}
