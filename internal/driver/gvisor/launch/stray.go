package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

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
	var found []Stray
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		_, start, err := process.ParentAndStart(pid)
		if err != nil {
			continue // it ended meanwhile
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
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
