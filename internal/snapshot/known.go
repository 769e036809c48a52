package snapshot

import (
	"cmp"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// known holds the assemblies of this server by id: first among the begun, which wait for their
// files and for Finish, then among the running, then for a while among the ended.
type known struct {
	mu      sync.Mutex
	begun   map[sandbox.SnapshotID]*assembly // guarded by mu
	running map[sandbox.SnapshotID]*assembly // guarded by mu
	ended   map[sandbox.SnapshotID]*assembly // guarded by mu
}

func newKnown() *known {
	return &known{begun: map[sandbox.SnapshotID]*assembly{}, running: map[sandbox.SnapshotID]*assembly{}, ended: map[sandbox.SnapshotID]*assembly{}}
}

// add adds an assembly that was begun. Errors: QuotaExceeded.
func (x *known) add(id sandbox.SnapshotID, a *assembly) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for _, list := range []map[sandbox.SnapshotID]*assembly{x.begun, x.running} {
		for _, other := range list {
			if other.caller.Workspace == a.caller.Workspace {
				n++
			}
		}
	}
	if n >= assembliesMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "a workspace has at most %d builds that are not over; finish them, or wait", assembliesMax)
	}
	x.begun[id] = a
	return nil
}

// find returns the begun assembly that match selects. Errors: NotFound.
func (x *known) find(match func(sandbox.SnapshotID, *assembly) bool) (*assembly, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, a := range x.begun {
		if match(id, a) {
			return a, nil
		}
	}
	return nil, sandbox.Somewhere("there is no such build; it may have taken too long, or the server was restarted: begin again")
}

// run returns a caller's begun assembly, which is running from now on until end. Errors: NotFound;
// Conflict, also during an upload, without whose files the snapshot would be made.
func (x *known) run(c sandbox.Caller, id sandbox.SnapshotID) (*assembly, error) {
	a, err := x.find(func(at sandbox.SnapshotID, a *assembly) bool { return at == id && a.caller.Workspace == c.Workspace })
	if err != nil {
		return nil, err
	}
	if !a.uploading.TryLock() {
		return nil, sandbox.Errorf(sandbox.Conflict, "the files of this build are being uploaded; finish the build when they are there")
	}
	defer a.uploading.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.begun[id] != a {
		return nil, sandbox.Errorf(sandbox.Conflict, "the build is being finished already")
	}
	delete(x.begun, id)
	x.running[id] = a
	a.mu.Lock()
	a.closed = true // a later upload must not replace the files that are being read
	a.mu.Unlock()
	a.report(phase.Event{Phase: "waiting", Message: "for its turn"})
	return a, nil
}

// end ends a running assembly with its result and deletes its files; its log stays for a while.
func (x *known) end(id sandbox.SnapshotID, a *assembly, err error) {
	a.end(err)
	a.close()
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.running, id)
	x.ended[id] = a
	x.dropOldest(a.caller.Workspace)
}

// dropOldest forgets the ended assembly of a workspace that began first, if there are too many.
// x.mu is held.
func (x *known) dropOldest(ws sandbox.WorkspaceID) {
	var oldest sandbox.SnapshotID
	n := 0
	for id, a := range x.ended {
		if a.caller.Workspace != ws {
			continue
		}
		n++
		if oldest == "" || a.begun.Before(x.ended[oldest].begun) {
			oldest = id
		}
	}
	if n > assembliesMax {
		delete(x.ended, oldest)
	}
}

// bytes returns the bytes of the files of a workspace's assemblies.
func (x *known) bytes(ws sandbox.WorkspaceID) (n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, list := range []map[sandbox.SnapshotID]*assembly{x.begun, x.running} {
		for _, a := range list {
			if a.caller.Workspace == ws {
				n += a.size.Load()
			}
		}
	}
	return n
}

// expire forgets the assemblies that began before a time and do not run.
func (x *known) expire(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, a := range x.begun {
		if a.begun.Before(before) {
			delete(x.begun, id)
			a.close()
		}
	}
	for id, a := range x.ended {
		if a.begun.Before(before) {
			delete(x.ended, id)
		}
	}
}

// get returns an assembly of a caller in any phase. Errors: NotFound.
func (x *known) get(c sandbox.Caller, id sandbox.SnapshotID) (*assembly, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := cmp.Or(x.begun[id], x.running[id], x.ended[id])
	if a == nil || a.caller.Workspace != c.Workspace {
		return nil, sandbox.Somewhere("there is no such build, it was over long ago, or the server was restarted")
	}
	return a, nil
}
