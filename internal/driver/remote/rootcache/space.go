package rootcache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// wrote counts what is written.
type wrote struct{ *ballast.Reservation }

func (w wrote) Write(p []byte) (int, error) { w.Wrote(int64(len(p))); return len(p), nil }

// full gives the error of a full disk its code.
func full(err error) error {
	if ballast.IsFull(err) {
		return sandbox.Wrap(sandbox.DiskFull, err, "the worker's disk is full")
	}
	return err
}

// KeepFree returns the number of bytes of the disk that fetches leave free.
func (c *Cache) KeepFree() int64 { return c.keepFree }

// Reserve reserves need bytes of the disk while keep bytes stay free. If there is not enough space, it removes files from the cache, the least
// recently used first. Errors: DiskFull.
func (c *Cache) Reserve(need, keep int64) (*ballast.Reservation, error) {
	for {
		r, missing, err := c.space.Reserve(c.dir, need, keep)
		if err != nil || missing <= 0 {
			return r, err
		}
		removed := false
		if missing <= c.Unused() { // otherwise nothing is gained
			if removed, err = c.removeOldest(); err != nil {
				return nil, err
			}
		}
		if !removed {
			e := sandbox.Errorf(sandbox.DiskFull, "the worker's disk is too full: this needs %s, and %s more must stay free", sandbox.ShowBytes((need+1<<20-1)>>20<<20), sandbox.ShowBytes(keep))
			e.RetryAfter = retryAfter
			return nil, e
		}
	}
}

// Unused returns the bytes of the files that nothing uses.
func (c *Cache) Unused() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.files {
		if f.pins == 0 {
			n += f.size
		}
	}
	return n
}

// removeOldest removes the least recently used file that nothing uses. It reports false if there is none.
func (c *Cache) removeOldest() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	oldest := ""
	for digest, f := range c.files {
		if f.pins == 0 && (oldest == "" || f.used.Before(c.files[oldest].used)) {
			oldest = digest
		}
	}
	if oldest == "" {
		return false, nil
	}
	if err := c.remove(oldest); err != nil {
		return false, err
	}
	c.log.Info("a root filesystem was removed from the worker to make space", "digest", oldest)
	return true, nil
}

// remove removes a file that nothing uses, and its records. Preconditions: c.mu is held.
func (c *Cache) remove(digest string) error {
	if err := os.Remove(c.Path(digest)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a root filesystem: %w", err)
	}
	delete(c.files, digest)
	c.records.Forget(digest)
	_ = os.Remove(c.usedPath(digest)) // the next start removes it
	return nil
}
