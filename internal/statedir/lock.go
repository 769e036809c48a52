package statedir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/ballast"
)

// Lock makes sure that only a single server, which has the state directory stateDir, works on dir.
// unlock releases the lock; the end of the process also releases it.
//
// Errors: when another server has the lock, with its process ID.
func Lock(dir, stateDir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 8<<10)) // only to name it
		_ = f.Close()                                     // nothing was written
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid, other, _ := strings.Cut(strings.TrimSpace(string(holder)), "\n")
		if dir == stateDir {
			return nil, fmt.Errorf("another server (process %s) works on %s", pid, dir)
		}
		return nil, fmt.Errorf("another server (process %s, state directory %s) works on the run directory %s; give this server a run directory of its own (--run-dir or MODBOX_RUN_DIR)",
			pid, other, dir)
	}
	// The file names the holder of the lock; on a full disk it may be out of date.
	text := fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), stateDir)
	if _, err = f.WriteAt(text, 0); err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil && !ballast.IsFull(err) {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // closing gives up the lock
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
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // and unlocks
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
