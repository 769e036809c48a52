package agent

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	// slowLook and fastLook are the longest and shortest time between two looks at the processes of
	// limited commands.
	slowLook, fastLook = 25 * time.Millisecond, 5 * time.Millisecond
	// growth estimates the fastest growth of the memory of a command, in bytes per second, for
	// the time of the next look.
	growth = 4 << 30
	// tick is the unit of processor time in /proc.
	tick = time.Second / 100
	// watchedFiles bounds the open files of a process that a look includes, and the files of a command
	// that a watch remembers; looks bounds the open files of a command in one look, and the files that
	// the agent looks at after its end.
	watchedFiles, looks = 256, 1024
)

// Limited replaces this process by a program under limits of the kernel. args are, as launch.limit
// makes them: the maximum size of files in bytes and of processor time in seconds, 0 for none, the
// program's path, and its arguments beginning with its name. It returns only if that is impossible,
// with the exit code that shells use.
func Limited(args []string) (code int, err error) {
	const cannotRun, notFound = 126, 127
	if len(args) < 4 {
		return cannotRun, fmt.Errorf("limited has %d arguments, want at least 4", len(args))
	}
	for i, resource := range []int{unix.RLIMIT_FSIZE, unix.RLIMIT_CPU} {
		n, err := strconv.ParseUint(args[i], 10, 63)
		if err != nil {
			return cannotRun, err
		}
		if n == 0 {
			continue
		}
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return cannotRun, fmt.Errorf("set limit %d: %w", resource, err)
		}
	}
	err = syscall.Exec(args[2], args[3:], os.Environ())
	if err == unix.ENOENT {
		return notFound, fmt.Errorf("start %s: it or its interpreter does not exist", args[2])
	}
	return cannotRun, fmt.Errorf("start %s: %w", args[2], err)
}

// limit makes the command start by [Limited] if it has limits that the kernel enforces: there is
// no other way to have them in force before the program runs, because the agent may not change the
// limits of a process of another user.
func (l *launch) limit(limits agentapi.Limits) error {
	switch {
	case limits.MemoryBytes < 0 || limits.CPU < 0 || limits.FileSizeBytes < 0 || limits.Processes < 0:
		return answer.Invalid("a limit of the command is negative")
	case limits.FileSizeBytes == 0 && limits.CPU == 0:
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return answer.Errorf(agentapi.CodeInternal, "find the agent's own program: %v", err)
	}
	var fileSize, seconds int64
	if limits.FileSizeBytes > 0 {
		fileSize = limits.FileSizeBytes + 1 // a file of that size shows that the limit was exceeded
	}
	if limits.CPU > 0 {
		seconds = int64((limits.CPU+time.Second-1)/time.Second) + 1 // for processes that escape the looks
	}
	l.argv = append([]string{self, "limited", strconv.FormatInt(fileSize, 10), strconv.FormatInt(seconds, 10), l.program}, l.argv...)
	l.program = self
	return nil
}

// supervisor looks at the processes of all limited commands, as long as there are any. The zero
// value is ready.
type supervisor struct {
	mu      sync.Mutex
	watches map[*watch]struct{} // guarded by mu
	wake    chan struct{}       // guarded by mu; nil while nothing is watched
}

// add begins to watch a command. The watch ends with the command.
func (s *supervisor) add(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches == nil {
		s.watches = make(map[*watch]struct{})
	}
	s.watches[w] = struct{}{}
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
		go s.run(s.wake)
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// current returns the commands that run; without any the supervisor's goroutine ends.
func (s *supervisor) current() []*watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.watches, func(w *watch, _ struct{}) bool { return w.over.Load() })
	if len(s.watches) == 0 {
		s.wake = nil
	}
	return slices.Collect(maps.Keys(s.watches))
}

func (s *supervisor) run(wake <-chan struct{}) {
	for {
		list := s.current()
		if len(list) == 0 {
			return
		}
		all, next := processes(), slowLook
		for _, w := range list {
			next = min(next, w.look(all))
		}
		select {
		case <-time.After(next):
		case <-wake:
		}
	}
}

// watch enforces the limits of a command. Only the supervisor's goroutine uses it, but cause.
type watch struct {
	process *process
	limits  agentapi.Limits
	over    atomic.Bool // the command has exited

	started uint64         // of the command's process; 0 before the first look
	known   family         // the processes that the last look found
	cpu     map[int]uint64 // their processor time, in ticks
	ended   uint64         // processor time of processes that have ended, in ticks, as far as it was seen

	places []string // directories in which the command most likely writes

	mu    sync.Mutex
	files map[string]struct{} // guarded by mu; files that were open for writing
}

func (a *Agent) newWatch(p *process, limits agentapi.Limits, l *launch) *watch {
	places := []string{l.dir, a.root.Path("/tmp"), a.root.Path(l.account.Home)}
	return &watch{process: p, limits: limits, places: places, files: make(map[string]struct{})}
}

// look kills the command if it runs and exceeds a limit, and returns the time until the next look.
func (w *watch) look(all map[int]relation) time.Duration {
	pid := w.process.pid()
	root, ok := all[pid]
	if !ok || w.started != 0 && w.started != root.started {
		return slowLook
	}
	w.started = root.started
	members := make(family)
	members.grow(all, pid, w.known)
	w.known = members
	memory := uint64(0)
	for pid := range members {
		memory += all[pid].resident
	}
	memory *= uint64(os.Getpagesize())
	limits := &w.limits
	exceeded := agentapi.LimitName("")
	switch {
	case limits.Processes > 0 && len(members) > limits.Processes:
		exceeded = agentapi.LimitProcesses
	case limits.MemoryBytes > 0 && memory > uint64(limits.MemoryBytes):
		exceeded = agentapi.LimitMemory
	case limits.CPU > 0 && w.used(all) >= limits.CPU:
		exceeded = agentapi.LimitCPU
	case limits.FileSizeBytes > 0 && w.largeFile(members):
		exceeded = agentapi.LimitFileSize
	}
	if exceeded != "" {
		w.process.exceed(exceeded, members)
		return slowLook
	}
	next := slowLook
	if limits.FileSizeBytes > 0 {
		next = fastLook
	}
	if limits.MemoryBytes > 0 {
		left := time.Duration(float64(uint64(limits.MemoryBytes)-memory) / growth * float64(time.Second))
		next = min(next, max(left, fastLook))
	}
	return next
}

// used returns the processor time of the command's processes. Processes that ended between two looks
// count if their parent has waited for them.
func (w *watch) used(all map[int]relation) time.Duration {
	now := make(map[int]uint64, len(w.known))
	var own, waited uint64
	for pid := range w.known {
		now[pid] = all[pid].cpu
		own += all[pid].cpu
		waited += all[pid].cpu + all[pid].childCPU
	}
	for pid, was := range w.cpu {
		if is, ok := now[pid]; !ok || is < was {
			w.ended += was
		}
	}
	w.cpu = now
	return time.Duration(max(own+w.ended, waited)) * tick
}

// largeFile reports whether a process has a file open for writing that has reached the size at
// which the kernel stops it: one byte more than the limit.
func (w *watch) largeFile(members family) bool {
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
			if w.isLarge(info) {
				return true
			}
			if target, err := os.Readlink(name); err == nil {
				w.remember(target)
			}
		}
	}
	return false
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

func (w *watch) remember(file string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.files) < watchedFiles {
		w.files[file] = struct{}{}
	}
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

// cause returns the limit for which a command ended that was not killed: a signal of the kernel ended
// it, or it wrote as much as a file may have.
func (w *watch) cause(code int) agentapi.LimitName {
	switch {
	case w.limits.CPU > 0 && code == 128+int(unix.SIGXCPU):
		return agentapi.LimitCPU
	case w.limits.FileSizeBytes > 0 && (code == 128+int(unix.SIGXFSZ) || w.wroteLarge() || code != 0 && w.leftLarge()):
		return agentapi.LimitFileSize
	default:
		return ""
	}
}

// isLarge reports whether a file has the size at which the kernel stops its writer.
func (w *watch) isLarge(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == w.limits.FileSizeBytes+1
}

// wroteLarge reports whether a file that a look has found open is large.
func (w *watch) wroteLarge() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for file := range w.files {
		if info, err := os.Lstat(file); err == nil && w.isLarge(info) {
			return true
		}
	}
	return false
}

// leftLarge reports whether there is a large file, written since the command began, in the places
// where it most likely writes: a program that ignores the kernel's signal, as Python does, may end
// before a look finds the file open.
func (w *watch) leftLarge() bool {
	left, found := looks, false
	for _, place := range w.places {
		_ = filepath.WalkDir(place, func(_ string, entry fs.DirEntry, err error) error { // it skips directories that it cannot read
			if left--; left < 0 || found {
				return filepath.SkipAll
			}
			if err != nil || !entry.Type().IsRegular() {
				return nil
			}
			info, err := entry.Info()
			found = err == nil && w.isLarge(info) && !info.ModTime().Before(w.process.started)
			return nil
		})
	}
	return found
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.pid
}

// exceed kills the process and its family because they exceed a limit. The argument known has the
// processes that the last look found; others may have started since.
func (p *process) exceed(limit agentapi.LimitName, known family) {
	p.mu.Lock()
	if p.status != nil || p.exceeded != "" {
		p.mu.Unlock()
		return
	}
	p.exceeded = limit
	p.mu.Unlock()
	p.killing.Store(true)
	p.out.unblock()
	p.child.alive(func(pid int) {
		p.known = familyOf(pid, known)
		p.killTree(pid)
	})
}
