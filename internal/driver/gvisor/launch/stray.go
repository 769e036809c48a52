package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/sandbox"
)

// PlatformOf returns the platform of the box whose first process that is, by its command line; "" if it has none.
func PlatformOf(pid int) platform.Name {
	line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")) // it may have ended
	for word := range bytes.SplitSeq(line, []byte{0}) {
		if name, ok := bytes.CutPrefix(word, []byte(platformFlag)); ok {
			return platform.Name(name)
		}
	}
	return ""
}

// Stray is a process that an installation started for a box.
type Stray struct {
	process.Mark
	ID sandbox.ID
}

// Strays finds the first processes of all boxes of the installation root by their command lines,
// which guests can neither see nor change.
func Strays(root string) ([]Stray, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	begin := []byte(processName + "\x00--root=" + root + "\x00")
	buf := make([]byte, len(begin))
	var found []Stray
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		name := filepath.Join("/proc", e.Name(), "cmdline")
		if !beginsWith(name, begin, buf) { // most processes of a host: a sweep reads nothing else of them
			continue
		}
		_, start, err := process.ParentAndStart(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		line, err := os.ReadFile(name) // after the start, because another process may have got the id
		if err != nil || !bytes.HasPrefix(line, begin) {
			continue
		}
		words := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
		if id, ok := sandbox.ParseID(string(words[len(words)-1])); ok {
			found = append(found, Stray{ID: id, Mark: process.Mark{PID: pid, Start: start}})
		}
	}
	return found, nil
}

// beginsWith reports whether a file begins with the bytes begin. It uses buf, which has their length.
func beginsWith(name string, begin, buf []byte) bool {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	n, err := unix.Read(fd, buf)
	_ = unix.Close(fd)
	return err == nil && bytes.Equal(buf[:n], begin)
}
