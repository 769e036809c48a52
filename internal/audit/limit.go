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
	mu         sync.Mutex
	seen       map[string]int         // guarded by mu; by user, or group of addresses
	anonymous  int                    // guarded by mu
	unrecorded map[string]*unrecorded // guarded by mu; by user
	most       int                    // limit of those without a user
}

// unrecorded counts refusals without records.
type unrecorded struct {
	workspace, user string
	requests        int
	addresses       map[string]struct{}
}

func newLimit(most int) *limit {
	return &limit{most: most, seen: map[string]int{}, unrecorded: map[string]*unrecorded{}}
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
	l.countUnrecorded(r, group)
	return false
}

// count counts a refusal for which the queue had no place.
func (l *limit) count(r *Record, group string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countUnrecorded(r, group)
}

// countUnrecorded counts a refusal without record; mu is held.
func (l *limit) countUnrecorded(r *Record, group string) {
	x := l.unrecorded[r.User]
	if x == nil {
		x = &unrecorded{workspace: r.Workspace, user: r.User, addresses: map[string]struct{}{}}
		l.unrecorded[r.User] = x
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
	for _, x := range l.unrecorded {
		list = append(list, &Record{
			Action: ActionRefused, Outcome: Failed, User: x.user, Workspace: x.workspace,
			Details: map[string]string{"requests": strconv.Itoa(x.requests), "addresses": strconv.Itoa(len(x.addresses))},
		})
	}
	l.seen, l.unrecorded, l.anonymous = map[string]int{}, map[string]*unrecorded{}, 0
	return list
}
