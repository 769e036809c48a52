package ballast

import "sync"

// Reservations are the bytes that are about to be written to a file system, so that several that write at the same time
// do not fill it together. The zero value has none. It is safe for concurrent use.
type Reservations struct {
	mu      sync.Mutex
	pending int64 // guarded by mu
}

// Reserve reserves need bytes on the file system of path, on which keep bytes more must stay free beside all that is reserved.
// Without space for that it returns how many bytes are missing.
func (r *Reservations) Reserve(path string, need, keep int64) (_ *Reservation, missing int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have, err := Free(path)
	if err != nil {
		return nil, 0, err
	}
	if missing = need - (have.Usable() - r.pending - keep); missing > 0 {
		return nil, missing, nil
	}
	r.pending += need
	return &Reservation{of: r, left: need}, 0, nil
}

// Reservation is space for something that is being written.
type Reservation struct {
	of   *Reservations
	left int64 // guarded by of.mu
}

// Wrote counts bytes that are written, which take their own space from now on.
func (r *Reservation) Wrote(n int64) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	n = min(n, r.left)
	r.left -= n
	r.of.pending -= n
}

// Release ends the reservation. It may be called several times.
func (r *Reservation) Release() { r.Wrote(1 << 62) }
