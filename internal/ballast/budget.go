package ballast

import (
	"io"

	"github.com/modbox/modbox/internal/sandbox"
)

// leastFree is the number of bytes that stay free with every [Budget].
const leastFree = 256 << 20

// Budget is the space of a server's disk for large files that come over the network: what is fetched from an object store, and saved states
// that workers send. All of them share it, so that they leave a number of bytes free in sum. It is safe for concurrent use.
type Budget struct {
	reservations Reservations
	keep         int64
}

// NewBudget returns the space of a disk on which keep bytes, and at least 256 MiB, stay free.
func NewBudget(keep int64) *Budget { return &Budget{keep: max(keep, leastFree)} }

// Reserve reserves need bytes on the file system of a directory for a purpose, such as "save the sandbox". The caller releases them. Errors: DiskFull.
func (b *Budget) Reserve(dir string, need int64, purpose string) (*Reservation, error) {
	r, missing, err := b.reservations.Reserve(dir, need, b.keep)
	if err == nil && missing > 0 {
		err = sandbox.Errorf(sandbox.DiskFull, "the server's disk is too full to %s, which takes %s; %s must stay free", purpose, roundUp(need), roundUp(b.keep))
	}
	return r, err
}

// roundUp shows bytes in whole MiB.
func roundUp(n int64) string { return sandbox.ShowBytes((n + 1<<20 - 1) >> 20 << 20) }

// WriterAt returns a writer to w that counts what is written, as [Reservation.Wrote] does.
func (r *Reservation) WriterAt(w io.WriterAt) io.WriterAt { return countedAt{w, r} }

type countedAt struct {
	to    io.WriterAt
	space *Reservation
}

func (c countedAt) WriteAt(p []byte, off int64) (int, error) {
	n, err := c.to.WriteAt(p, off)
	c.space.Wrote(int64(n))
	return n, err
}
