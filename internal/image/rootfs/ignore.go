package rootfs

import (
	"context"
	"runtime"
	"time"

	"github.com/moby/patternmatcher"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds on the patterns of a .dockerignore: each file of a context is matched with each pattern,
// and the match of a file cannot be interrupted.
const (
	ignorePatternsMax = 1000
	ignorePatternMax  = pathMax  // bytes of a pattern
	ignoreBytesMax    = 64 << 10 // bytes of all patterns
	ignoreTimeMax     = time.Minute
)

// Ignore removes the files that match the patterns of a .dockerignore. Errors: Invalid for an
// invalid pattern, and for patterns that are too many or take too long to match.
func (f *Files) Ignore(ctx context.Context, patterns []string) error {
	total := 0
	for _, p := range patterns {
		if total += len(p); len(p) > ignorePatternMax {
			return sandbox.Errorf(sandbox.Invalid, "it has a pattern of %d bytes, more than %d", len(p), ignorePatternMax)
		}
	}
	if len(patterns) > ignorePatternsMax || total > ignoreBytesMax {
		return sandbox.Errorf(sandbox.Invalid, "it has %d patterns of %d bytes together, more than %d or %d", len(patterns), total, ignorePatternsMax, ignoreBytesMax)
	}
	pm, err := patternmatcher.New(patterns)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "a pattern cannot be understood: %.300s", err)
	}
	runtime.LockOSThread() // so that the thread's time is the time of this work
	defer runtime.UnlockOSThread()
	i := ignorer{patterns: pm, clock: threadTime}
	i.until = i.clock() + ignoreTimeMax
	_, err = i.dir(ctx, f.tree.root, "", patternmatcher.MatchInfo{})
	return err
}

// threadTime returns the processor time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // Linux has this clock
	}
	return time.Duration(t.Nano())
}

// ignorer removes matching files from a tree, within a time limit.
type ignorer struct {
	patterns *patternmatcher.PatternMatcher
	clock    func() time.Duration // processor time
	until    time.Duration        // of clock
}

// dir does the work for a directory and reports whether any entry stays.
func (i *ignorer) dir(ctx context.Context, dir *node, prefix string, above patternmatcher.MatchInfo) (left bool, err error) {
	for base, n := range dir.names {
		if err := ctx.Err(); err != nil { // a directory may have very many entries
			return false, err
		}
		if i.clock() > i.until {
			return false, sandbox.Errorf(sandbox.Invalid, "its patterns take more than %s of processor time for the files of the context; use fewer or simpler patterns", ignoreTimeMax)
		}
		matched, info, err := i.patterns.MatchesUsingParentResults(prefix+base, above)
		if err != nil {
			return false, sandbox.Errorf(sandbox.Invalid, "a pattern cannot be used: %.300s", err)
		}
		some := false
		if n.isDir() && (!matched || i.patterns.Exclusions()) {
			if some, err = i.dir(ctx, n.node, prefix+base+"/", info); err != nil {
				return false, err
			}
		}
		if matched && !some {
			delete(dir.names, base)
		}
	}
	return len(dir.names) > 0, nil
}
