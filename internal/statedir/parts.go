package statedir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/sandbox"
)

// partsFile has a lock for each range of shards of the sandboxes: byte n is locked by the server that works on range n. Such a server has
// the lock of the directory together with the others, and a server that works on all sandboxes has that alone.
const partsFile = "lock.parts"

// holderSize is the size of the text that names the holder in partsFile; the text of range n begins at n times the size.
const holderSize = 128

// AwaitPart is [Await] for servers that work at the same time, each on a part of the sandboxes: it waits until no server works on one of
// parts, whose ranges follow each other, and returns its index.
//
// Errors: as of [Await].
func AwaitPart(ctx context.Context, dir, stateDir string, parts []sandbox.Ranges) (held *Held, part int, err error) {
	err = await(ctx, dir, func() error {
		for part = range parts {
			if held, err = lockPart(dir, stateDir, parts[part]); !errors.As(err, new(takenError)) {
				return err
			}
		}
		return err
	})
	return held, part, err
}

// lockPart takes the locks of a part for this process. The lock of the directory comes last: a server that waits for a part does not keep
// others from having the directory alone.
func lockPart(dir, stateDir string, r sandbox.Ranges) (_ *Held, err error) {
	path := filepath.Join(dir, partsFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock part of a directory: %w", err)
	}
	h := &Held{f: f, text: holderText(), at: int64(r.First() * holderSize)}
	defer func() {
		if err != nil {
			h.Release()
		}
	}()
	lock := partLock(r)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, takenError{fmt.Errorf("another server works on this part of the sandboxes of %s", dir)}
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	shared := filepath.Join(dir, lockFile)
	if h.directory, err = os.OpenFile(shared, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := unix.Flock(int(h.directory.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, takenError{fmt.Errorf("another server works on all sandboxes of %s", dir)}
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", shared, err)
	}
	err = h.Check() // it writes the name of the holder
	if err == nil && r.HasRange(0) {
		err = writeHolder(h.directory, stateDir) // for RunningAddress
	}
	return h, err
}

// partLock is the lock of the bytes of ranges, which follow each other.
func partLock(r sandbox.Ranges) unix.Flock_t {
	return unix.Flock_t{Type: unix.F_WRLCK, Start: int64(r.First()), Len: int64(len(r.Digits()))}
}

// holderText names this process in partsFile.
func holderText() []byte {
	return fmt.Appendf(nil, "%-*.*s\n", holderSize-1, holderSize-1, fmt.Sprintf("process %d on %s", os.Getpid(), hostName()))
}

// partHolder names a server that works on a part of the sandboxes of a directory; "" for none.
func partHolder(dir string) string {
	f, err := os.OpenFile(filepath.Join(dir, partsFile), os.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	found := partLock(sandbox.AllRanges)
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &found); err != nil || found.Type == unix.F_UNLCK {
		return ""
	}
	text := make([]byte, holderSize)
	n, _ := f.ReadAt(text, found.Start*holderSize) // only to name it
	return strings.Trim(string(text[:n]), "\x00 \n")
}

// Alone calls f while no other process that shares a state directory is in Alone: servers that start at the same time make files there.
func Alone(ctx context.Context, dir string, f func() error) error {
	path := filepath.Join(dir, startFile)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("wait for servers that start: %w", err)
	}
	defer lock.Close() // and with it the lock
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(awaitPause):
		}
	}
}

// writeHolder writes into the lock of a directory who has it. On a full disk the text may be out of date.
func writeHolder(f *os.File, stateDir string) error {
	text := lockText(stateDir)
	_, err := f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil && !ballast.IsFull(err) {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return nil
}

func lockText(stateDir string) []byte {
	return fmt.Appendf(nil, "%d\n%s\n%s\n", os.Getpid(), stateDir, hostName())
}
