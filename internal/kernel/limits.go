package kernel

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/proctree"
)

// limiter enforces the limits of a run while it executes. Runs that exceed the limit of processor time or of files are
// interrupted, so that their context keeps its state. The interpreter of a run that exceeds the limit of memory or
// processes is killed.
type limiter struct {
	run    *run
	kernel kernel
	limits kernelapi.Limits
	tree   *proctree.Watch
	files  *proctree.Files
	places []string // directories in which the code most likely writes
	begun  time.Time
	before unix.Rlimit // of the size of files, before the run
	done   chan struct{}
	left   chan struct{}

	mu       sync.Mutex
	exceeded proctree.Limit // guarded by mu
}

// limit begins to enforce limits of a run that is about to execute; it returns nil if there are none.
func limit(r *run, k kernel, limits kernelapi.Limits, dir string) (*limiter, error) {
	if limits == (kernelapi.Limits{}) {
		return nil, nil
	}
	l := &limiter{
		run: r, kernel: k, limits: limits, files: proctree.NewFiles(limits.FileSizeBytes), begun: time.Now(),
		places: []string{dir, "/tmp", os.Getenv("HOME")}, done: make(chan struct{}), left: make(chan struct{}),
	}
	if limits.FileSizeBytes > 0 {
		if err := unix.Prlimit(k.pid(), unix.RLIMIT_FSIZE, nil, &l.before); err != nil {
			return nil, fmt.Errorf("read the limit of files of the interpreter: %w", err)
		}
		// The processes that the code starts inherit it. A file of one byte more shows that the limit was exceeded.
		now := unix.Rlimit{Cur: min(uint64(limits.FileSizeBytes)+1, l.before.Max), Max: l.before.Max}
		if err := unix.Prlimit(k.pid(), unix.RLIMIT_FSIZE, &now, nil); err != nil {
			return nil, fmt.Errorf("set the limit of files of the interpreter: %w", err)
		}
	}
	l.tree = proctree.NewWatch(k.pid(), proctree.Limits(limits), l.files)
	l.tree.Begin(proctree.All())
	go l.watch()
	return l, nil
}

// watch looks at the processes of the context until the run has ended.
func (l *limiter) watch() {
	defer close(l.left)
	for {
		exceeded, members, next := l.tree.Look(proctree.All())
		if exceeded != "" {
			l.note(exceeded)
		}
		switch exceeded {
		case proctree.Memory, proctree.Processes:
			if !l.kernel.hasEnded() {
				proctree.Kill(l.kernel.pid(), members)
			}
			l.kernel.kill()
		case proctree.CPU, proctree.FileSize:
			l.run.interrupt(kernelapi.Interrupted)
		}
		select {
		case <-l.done:
			return
		case <-time.After(next):
		}
	}
}

// note keeps the first limit that was exceeded.
func (l *limiter) note(exceeded proctree.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exceeded == "" {
		l.exceeded = exceeded
	}
}

// end ends the limits, and returns the limit that the run exceeded. failed says that its code or its interpreter ended
// with an error.
func (l *limiter) end(failed bool) kernelapi.LimitName {
	if l == nil {
		return ""
	}
	close(l.done)
	<-l.left
	if l.limits.FileSizeBytes > 0 {
		_ = unix.Prlimit(l.kernel.pid(), unix.RLIMIT_FSIZE, &l.before, nil) // fails if the interpreter has ended
		if l.files.Wrote() || failed && l.files.Left(l.places, l.begun) {
			l.note(proctree.FileSize)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return kernelapi.LimitName(l.exceeded)
}
