package database

import (
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// logReserve is the number of bytes of the write-ahead log that are allocated in advance.
	// SQLite restarts the log every 4 MB, so writes continue for some time after the disk is
	// full, even if other programs use all space that becomes free.
	logReserve = 16 << 20
	// nothingFree is the number of free bytes below which the disk counts as full: SQLite
	// does not report why it could not write or create a file.
	nothingFree = 256 << 10
)

// relief makes space on a full disk for writes.
type relief struct {
	mu      sync.Mutex
	release func() bool   // guarded by mu; nil for none
	times   int           // how often release made space; guarded by mu
	under   chan struct{} // closed when the call of release that is under way has returned; nil without one; guarded by mu
}

// OnFull sets the function that makes space when a write finds the disk full. The write is
// repeated as long as release reports that it made space. The store calls release outside
// of transactions, and once for all writes that fail together.
func (d *DB) OnFull(release func() bool) {
	d.relief.mu.Lock()
	defer d.relief.mu.Unlock()
	d.relief.release = release
}

// count returns how often space was made.
func (r *relief) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.times
}

// since reports whether release has made space since count returned before; if not, since
// calls release itself, without the lock and after the call that is under way.
func (r *relief) since(before int) bool {
	r.mu.Lock()
	for r.times <= before && r.under != nil {
		under := r.under
		r.mu.Unlock()
		<-under
		r.mu.Lock()
	}
	if r.times > before || r.release == nil {
		defer r.mu.Unlock()
		return r.times > before
	}
	release, returned := r.release, make(chan struct{})
	r.under = returned
	r.mu.Unlock()
	made := false
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if made {
			r.times++
		}
		r.under = nil
		close(returned)
	}()
	made = release()
	return made
}

// ReserveLog allocates the beginning of the write-ahead log, if it is not allocated yet, so
// that writes need no space on the disk for some time. It returns nil on a file system that
// cannot allocate in advance.
func (d *DB) ReserveLog() error {
	return d.engine.reserveLog()
}

// retry repeats a write while it finds the disk full and release makes space.
// Errors: the errors of write; Unavailable, wrapping [sandbox.ErrNoSpace].
func (d *DB) retry(write func() error) error {
	for {
		before := d.relief.count()
		err := write()
		if !d.engine.isFull(err) {
			return err
		}
		if !d.relief.since(before) {
			return sandbox.NoSpace(err)
		}
	}
}
