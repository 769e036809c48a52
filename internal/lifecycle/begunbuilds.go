package lifecycle

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// begunBuilds are those begun, by id: first those that wait for their files or
// their finish, then those being made, then, for a while, those that are over.
type begunBuilds struct {
	mu     sync.Mutex
	ids    map[sandbox.SnapshotID]*build // guarded by mu
	making map[sandbox.SnapshotID]*build // guarded by mu
	over   map[sandbox.SnapshotID]*build // guarded by mu
}

func newBegunBuilds() *begunBuilds {
	return &begunBuilds{ids: map[sandbox.SnapshotID]*build{}, making: map[sandbox.SnapshotID]*build{}, over: map[sandbox.SnapshotID]*build{}}
}

// add adds one. Errors: QuotaExceeded.
func (x *begunBuilds) add(id sandbox.SnapshotID, b *build) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, builds := range []map[sandbox.SnapshotID]*build{x.ids, x.making} {
		for _, other := range builds {
			if other.caller.Workspace == b.caller.Workspace {
				n++
			}
		}
	}
	if n >= buildsMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a workspace has at most %d builds that are not over; finish them, or wait", buildsMax)
	}
	x.ids[id] = b
	return nil
}

// find returns the build that match says is meant. Errors: NotFound.
func (x *begunBuilds) find(match func(sandbox.SnapshotID, *build) bool) (*build, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, b := range x.ids {
		if match(id, b) {
			return b, nil
		}
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "there is no such build; it may have taken too long, or the server was restarted: begin again")
}

// take returns a caller's build, which waits no more but is being made, until it is
// released. Errors: NotFound.
func (x *begunBuilds) take(c sandbox.Caller, id sandbox.SnapshotID) (*build, error) {
	b, err := x.find(func(at sandbox.SnapshotID, b *build) bool { return at == id && b.caller.Workspace == c.Workspace })
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ids[id] != b {
		return nil, sandbox.Errorf(sandbox.Conflict, "the build is being finished already")
	}
	delete(x.ids, id)
	x.making[id] = b
	b.mu.Lock()
	b.over = true // an upload that is under way must not replace the files that are being read
	b.mu.Unlock()
	b.report(sandbox.ImageEvent{Phase: "waiting", Message: "for its turn"})
	return b, nil
}

// release ends a build that was taken, with what came of it, and forgets its
// files; its log stays for a while.
func (x *begunBuilds) release(id sandbox.SnapshotID, b *build, err error) {
	b.end(err)
	b.close()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.making, id)
	x.over[id] = b
	x.forget(b.caller.Workspace)
}

// forget forgets the build of a workspace that has been over for longest, when
// the logs of too many are kept. x.mu is held.
func (x *begunBuilds) forget(ws sandbox.WorkspaceID) {
	var oldest sandbox.SnapshotID
	n := 0
	for id, b := range x.over {
		if b.caller.Workspace != ws {
			continue
		}
		n++
		if oldest == "" || b.begun.Before(x.over[oldest].begun) {
			oldest = id
		}
	}
	if n > buildsMax {
		delete(x.over, oldest)
	}
}

// bytes returns what the files of a workspace's builds take.
func (x *begunBuilds) bytes(ws sandbox.WorkspaceID) (n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, builds := range []map[sandbox.SnapshotID]*build{x.ids, x.making} {
		for _, b := range builds {
			if b.caller.Workspace == ws {
				n += b.size.Load()
			}
		}
	}
	return n
}

// expire forgets those begun before a time.
func (x *begunBuilds) expire(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, b := range x.ids {
		if b.begun.Before(before) {
			delete(x.ids, id)
			b.close()
		}
	}
	for id, b := range x.over {
		if b.begun.Before(before) {
			delete(x.over, id)
		}
	}
}

// known returns a build of a caller, in whatever phase. Errors: NotFound.
func (x *begunBuilds) known(c sandbox.Caller, id sandbox.SnapshotID) (*build, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := cmp.Or(x.ids[id], x.making[id], x.over[id])
	if b == nil || b.caller.Workspace != c.Workspace {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such build, it was over long ago, or the server was restarted")
	}
	return b, nil
}

// takeBuild takes the begun build of a snapshot, when there is room for it where it may wait
// for that. Until then it stays as it was begun. Errors: NotFound; QuotaExceeded; as
// [quota.Controller.Admit].
func (s *Service) takeBuild(ctx context.Context, c sandbox.Caller, id sandbox.SnapshotID, maxWait time.Duration) (*build, error) {
	if _, err := s.begun.known(c, id); err != nil {
		return nil, err
	}
	room, err := s.quotas.ReserveAhead(ctx, c.Workspace, maxWait)
	if err != nil {
		return nil, err
	}
	b, err := s.begun.take(c, id)
	if err != nil {
		room.Release()
		return nil, err
	}
	b.room = room
	return b, nil
}
