package proctree

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watchedFiles bounds the open files of a process that a look includes, and the files that a watch remembers; looks
// bounds the open files in one look, and the files that [Files.Left] looks at.
const watchedFiles, looks = 256, 1024

// Files finds the files that processes have written up to a limit. It is safe for concurrent use.
type Files struct {
	limit int64

	mu     sync.Mutex
	open   map[string]struct{} // guarded by mu; files that were open for writing
	passed map[string]struct{} // guarded by mu; files that were too large before
}

// NewFiles returns the files for a limit in bytes.
func NewFiles(limit int64) *Files {
	return &Files{limit: limit, open: make(map[string]struct{}), passed: make(map[string]struct{})}
}

// large reports whether a process has a file open for writing that has reached the size at which the kernel stops it:
// one byte more than the limit.
func (f *Files) large(members Family) bool {
	found := false
	f.each(members, func(file string, info fs.FileInfo) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, passed := f.passed[file]
		if found = !passed && f.isLarge(info); !found && !passed && len(f.open) < watchedFiles {
			f.open[file] = struct{}{}
		}
		return !found
	})
	return found
}

// pass leaves out files that are too large now.
func (f *Files) pass(members Family) {
	f.each(members, func(file string, info fs.FileInfo) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.isLarge(info) && len(f.passed) < watchedFiles {
			f.passed[file] = struct{}{}
		}
		return true
	})
}

// each calls visit for the files that processes have open for writing, until it returns false.
func (f *Files) each(members Family, visit func(file string, info fs.FileInfo) bool) {
	left := looks
	for pid := range members {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		for _, fd := range names(dir, min(left, watchedFiles)) {
			left--
			name := filepath.Join(dir, fd)
			info, err := os.Stat(name)
			if err != nil || !info.Mode().IsRegular() || !writable(pid, fd) {
				continue
			}
			target, _ := os.Readlink(name) // without a name it is only looked at
			if !visit(target, info) {
				return
			}
		}
	}
}

// names returns the names of at most n entries of a directory that may not exist any more.
func names(path string, n int) []string {
	if n <= 0 {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	list, _ := dir.Readdirnames(n)
	return list
}

// writable reports whether a process can write to one of its file descriptors.
func writable(pid int, fd string) bool {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "fdinfo", fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "flags:"); ok {
			flags, err := strconv.ParseUint(strings.TrimSpace(value), 8, 64)
			return err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY
		}
	}
	return false
}

// isLarge reports whether a file has the size at which the kernel stops its writer.
func (f *Files) isLarge(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == f.limit+1
}

// Wrote reports whether a file that a look has found open is large.
func (f *Files) Wrote() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for file := range f.open {
		if info, err := os.Lstat(file); err == nil && f.isLarge(info) {
			return true
		}
	}
	return false
}

// Left reports whether there is a large file, written since a time, in some directories: a program that ignores the
// kernel's signal, as Python does, may end before a look finds the file open.
func (f *Files) Left(places []string, since time.Time) bool {
	left, found := looks, false
	for _, place := range places {
		_ = filepath.WalkDir(place, func(_ string, entry fs.DirEntry, err error) error { // it skips directories that it cannot read
			if left--; left < 0 || found {
				return filepath.SkipAll
			}
			if err != nil || !entry.Type().IsRegular() {
				return nil
			}
			info, err := entry.Info()
			found = err == nil && f.isLarge(info) && !info.ModTime().Before(since)
			return nil
		})
	}
	return found
}
