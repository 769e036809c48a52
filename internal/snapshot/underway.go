package snapshot

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// underWay holds the ids of the snapshots that this server makes. A row of an unfinished snapshot
// whose id is missing here belongs to a server that was killed. The zero value is empty. Safe for
// concurrent use.
type underWay struct {
	mu  sync.Mutex
	ids map[sandbox.SnapshotID]bool // guarded by mu
}

func (u *underWay) add(id sandbox.SnapshotID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[sandbox.SnapshotID]bool{}
	}
	u.ids[id] = true
}

func (u *underWay) remove(id sandbox.SnapshotID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ids, id)
}

func (u *underWay) has(id sandbox.SnapshotID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ids[id]
}
