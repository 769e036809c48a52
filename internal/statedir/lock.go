package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/retry"
)

// releaseTime bounds the wait for the lock of a server that has ended.
const releaseTime = 10 * time.Second

// errEnded says that the lock is taken, but the process in its file has ended. A killed server's
// lock lasts until the child that it was just forking has begun its own program.
var errEnded = errors.New("the process with the lock has ended")

// takenError says that another server, or a process that it started, has the lock.
type takenError struct{ error }

// Unwrap returns the description.
func (e takenError) Unwrap() error { return e.error }

// Lock makes sure that only a single server, which has the state directory stateDir, works on dir.
// unlock releases the lock; the end of the process also releases it. Lock waits up to 10 seconds
// for the lock of a server that was killed.
//
// Errors: when another server has the lock, with its process ID.
func Lock(ctx context.Context, dir, stateDir string) (unlock func(), err error) {
	return backoff.Retry(ctx, func() (func(), error) {
		held, err := lock(dir, stateDir)
		if err != nil {
			if !errors.Is(err, errEnded) {
				err = backoff.Permanent(err)
			}
			return nil, err
		}
		return held.Release, nil
	}, retry.Pauses(10*time.Millisecond, 500*time.Millisecond), backoff.WithMaxElapsedTime(releaseTime))
}

// awaitPause is the time between two attempts of [Await].
const awaitPause = 200 * time.Millisecond

// Await is [Lock] that waits until no other server works on dir. Servers on several machines have the directory from a file server,
// which must have locks.
//
// Errors: of the disk; the cause of ctx.
func Await(ctx context.Context, dir, stateDir string) (held *Held, err error) {
	err = await(ctx, dir, func() error {
		held, err = lock(dir, stateDir)
		return err
	})
	return held, err
}

// await calls try until it returns another error than takenError.
func await(ctx context.Context, dir string, try func() error) error {
	waits, err := os.OpenFile(filepath.Join(dir, waitFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock directory: %w", err)
	}
	defer waits.Close() // nothing is written
	for {
		_ = unix.Flock(int(waits.Fd()), unix.LOCK_SH|unix.LOCK_NB) // for Awaited, which may have it at this moment
		var taken takenError
		if err := try(); !errors.As(err, &taken) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(awaitPause):
		}
	}
}

// Awaited reports whether a server waits in [Await] or [AwaitPart] for the lock of dir.
func Awaited(dir string) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, waitFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// Held is a lock that this process has.
type Held struct {
	f    *os.File
	text []byte // its content, or the part of it that names this process
	at   int64  // where text is in f
	// directory has the lock of the directory, which the process shares; nil if it has that alone, in f.
	directory *os.File
}

// Release gives the lock up, as the end of the process does.
func (h *Held) Release() {
	if h.directory != nil {
		_ = h.directory.Close()
	}
	_ = h.f.Close()
}

// Check returns an error if the lock is lost: a file server gives up the locks of a machine that it has not heard for a while, and
// then refuses what the machine writes to a file that it had locked. Check waits as long as the file server is away.
func (h *Held) Check() error {
	_, err := h.f.WriteAt(h.text, h.at)
	if err == nil {
		err = h.f.Sync()
	}
	if err != nil && !ballast.IsFull(err) {
		return fmt.Errorf("lock %s: %w", h.f.Name(), err)
	}
	return nil
}

func lock(dir, stateDir string) (*Held, error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if part := partHolder(dir); part != "" {
			_ = f.Close() // nothing was written
			return nil, takenError{fmt.Errorf("another server (%s) works on a part of the sandboxes of %s", part, dir)}
		}
		holder, _ := io.ReadAll(io.LimitReader(f, 8<<10)) // only to name it
		_ = f.Close()                                     // nothing was written
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid, rest, _ := strings.Cut(strings.TrimSpace(string(holder)), "\n")
		other, host, _ := strings.Cut(rest, "\n")
		if host != "" && host != hostName() { // the directory is of a file server
			return nil, takenError{fmt.Errorf("another server (process %s on %s, state directory %s) works on %s", pid, host, other, dir)}
		}
		if !isAlive(pid) {
			return nil, takenError{fmt.Errorf("lock %s of process %s: %w; a process that it started still has the lock", path, pid, errEnded)}
		}
		if dir == stateDir {
			return nil, takenError{fmt.Errorf("another server (process %s) works on %s", pid, dir)}
		}
		return nil, takenError{fmt.Errorf("another server (process %s, state directory %s) works on the run directory %s; give this server a run directory of its own (--run-dir or MODBOX_RUN_DIR)",
			pid, other, dir)}
	}
	if err := writeHolder(f, stateDir); err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Held{f: f, text: lockText(stateDir)}, nil
}

// hostName returns the name of this machine; "" if it is not known.
func hostName() string {
	name, _ := os.Hostname()
	return name
}

// RunningAddress returns the address, as host:port, that the server of a state directory
// listens on; "" when no server runs or this user may not read it. Only the user of the server
// can write the address. The address of a server that was killed does not count, because
// another program may listen there now.
func RunningAddress(stateDir string) string {
	address, err := os.ReadFile(filepath.Join(stateDir, AddressFile))
	if err != nil || !isLocked(filepath.Join(stateDir, lockFile)) {
		return ""
	}
	return strings.TrimSpace(string(address))
}

// isLocked reports whether a server has the lock at path. It tries the lock only while the
// process that the file names lives and so holds it: otherwise the try could refuse the lock to
// a server that starts.
func isLocked(path string) bool {
	holder, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(holder), "\n")
	if !isAlive(strings.TrimSpace(first)) {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()                                                                        // and unlocks
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) // servers may share it
}

// isAlive reports whether a process with the ID that a lock file contains exists.
func isAlive(text string) bool {
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}
