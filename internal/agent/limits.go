package agent

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/proctree"
)

// idleLook is the longest time between two looks at the processes of limited commands.
const idleLook = 25 * time.Millisecond

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
		all, next := proctree.All(), idleLook
		for _, w := range list {
			next = min(next, w.look(all))
		}
		select {
		case <-time.After(next):
		case <-wake:
		}
	}
}

// watch enforces the limits of a command. Only the supervisor's goroutine uses it, but over and cause.
type watch struct {
	process *process
	limits  agentapi.Limits
	over    atomic.Bool     // the command has exited
	tree    *proctree.Watch // nil before the first look
	files   *proctree.Files // of the tree
	places  []string        // directories in which the command most likely writes
}

func (a *Agent) newWatch(p *process, limits agentapi.Limits, l *launch) *watch {
	places := []string{l.dir, a.root.Path("/tmp"), a.root.Path(l.account.Home)}
	return &watch{process: p, limits: limits, places: places, files: proctree.NewFiles(limits.FileSizeBytes)}
}

// look kills the command if it runs and exceeds a limit, and returns the time until the next look.
func (w *watch) look(all map[int]proctree.Process) time.Duration {
	if w.tree == nil {
		w.tree = proctree.NewWatch(w.process.pid(), proctree.Limits(w.limits), w.files)
	}
	exceeded, members, next := w.tree.Look(all)
	if exceeded != "" {
		w.process.exceed(agentapi.LimitName(exceeded), members)
	}
	return next
}

// cause returns the limit for which a command ended that was not killed: a signal of the kernel ended
// it, or it wrote as much as a file may have.
func (w *watch) cause(code int) agentapi.LimitName {
	switch {
	case w.limits.CPU > 0 && code == 128+int(unix.SIGXCPU):
		return agentapi.LimitCPU
	case w.limits.FileSizeBytes > 0 && (code == 128+int(unix.SIGXFSZ) || w.files.Wrote() || code != 0 && w.files.Left(w.places, w.process.started)):
		return agentapi.LimitFileSize
	default:
		return ""
	}
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child.pid
}

// exceed kills the process and its family because they exceed a limit. The argument known has the
// processes that the last look found; others may have started since.
func (p *process) exceed(limit agentapi.LimitName, known proctree.Family) {
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
		p.known = proctree.FamilyOf(pid, known)
		p.killTree(pid)
	})
}
