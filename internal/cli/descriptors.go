package cli

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/cli/base"
)

// keepDescriptors sets close-on-exec on every descriptor above the standard streams: the parent of
// modbox may have left files open, and neither a sandbox's process nor a tool that makes images may
// reach them. Files that Go opens have the flag already.
func keepDescriptors() error {
	const first = 3
	err := unix.CloseRange(first, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11 do not have close_range.
	names, globErr := filepath.Glob("/proc/self/fd/*")
	if globErr != nil || len(names) == 0 {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd >= first {
			unix.CloseOnExec(fd) // fails for a descriptor that was closed meanwhile
		}
	}
	return nil
}

// mustKeepDescriptors ends the process when keepDescriptors fails.
func mustKeepDescriptors() {
	if err := keepDescriptors(); err != nil {
		fmt.Fprintln(os.Stderr, "modbox:", err)
		os.Exit(base.ExitFailure)
	}
}
