package lifecycle

import "sync"

// underWay are the ids of what this server is making: a row that says that something is
// being made, and whose id is not among them, is of a server that was killed. The zero
// value has none. Safe for concurrent use.
type underWay[ID comparable] struct {
	mu  sync.Mutex
	ids map[ID]bool // guarded by mu
}

func (u *underWay[ID]) add(id ID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[ID]bool{}
	}
	u.ids[id] = true
}

func (u *underWay[ID]) remove(id ID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}

func (u *underWay[ID]) has(id ID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids[id]
}
