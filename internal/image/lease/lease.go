// Package lease records when images were used last, and holds images that no process may remove.
//
// The time of the last use of an image is the time of an empty file, named by the digest of the
// image. A hold is a shared lock on that file. A process that removes images lists the images in
// use first, and takes the lock of the index then. Between the two, other images may come into use:
// [Leases.Since] and [Leases.InUse] report them.
package lease

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/modbox/modbox/internal/image/lock"
)

// Leases are the uses and holds of images, in a directory that several processes share. They are
// safe for concurrent use.
type Leases struct {
	dir       string
	precision time.Duration

	mu      sync.Mutex
	used    map[string]time.Time // last use in this process, by digest; guarded by mu
	written map[string]time.Time // when this process wrote the time of the file; guarded by mu
}

// New returns the leases in a directory that exists. The time of a file is at most precision
// older than the last use.
func New(dir string, precision time.Duration) *Leases {
	return &Leases{dir: dir, precision: precision, used: map[string]time.Time{}, written: map[string]time.Time{}}
}

// Dir is the directory of the files. The name of a file is the digest without "sha256:".
func (l *Leases) Dir() string { return l.dir }

func (l *Leases) path(digest string) string {
	return filepath.Join(l.dir, strings.TrimPrefix(digest, "sha256:"))
}

// Note records that an image is being used.
func (l *Leases) Note(digest string) error {
	now := time.Now()
	l.mu.Lock()
	l.used[digest] = now
	recent := now.Sub(l.written[digest]) < l.precision
	l.mu.Unlock()
	if recent {
		return nil
	}
	return l.write(digest, now)
}

// write writes a time to the file of an image.
func (l *Leases) write(digest string, now time.Time) error {
	f, err := os.Create(l.path(digest))
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Chtimes(l.path(digest), now, now)
	}
	if err != nil {
		return fmt.Errorf("note the use of an image: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used[digest], l.written[digest] = now, now
	return nil
}

// Hold holds an image until release or the end of this process. The release counts as a use that
// all processes see. The caller prevents that another process removes the image at the same time.
func (l *Leases) Hold(ctx context.Context, digest string) (release func() error, err error) {
	f := flock.New(l.path(digest))
	if _, err := f.TryRLockContext(ctx, lock.Retry); err != nil {
		return nil, fmt.Errorf("hold image %s: %w", digest, err)
	}
	return sync.OnceValue(func() error {
		err := l.write(digest, time.Now())
		_ = f.Close() // the kernel releases it in any case
		return err
	}), nil
}

// InUse reports whether a process uses an image.
func (l *Leases) InUse(digest string) bool {
	if _, err := os.Stat(l.path(digest)); err != nil {
		return false
	}
	f := flock.New(l.path(digest))
	free, err := f.TryLock()
	_ = f.Close()
	return !free || err != nil
}

// Last returns the time of the last use of an image that its file records; zero for none.
func (l *Leases) Last(digest string) time.Time {
	info, err := os.Stat(l.path(digest))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Since reports whether an image was used at a time or later: by this process, or held by any.
func (l *Leases) Since(digest string, t time.Time) bool {
	l.mu.Lock()
	used := l.used[digest]
	l.mu.Unlock()
	return !used.Before(t) || !l.Last(digest).Before(t)
}
