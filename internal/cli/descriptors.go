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

// keepDescriptors marks every descriptor above the standard ones as not for
// programs that this process starts: whoever starts modbox may have files open,
// and neither a sandbox's process nor a tool that makes images may reach them.
// What Go opens has the mark already.
func keepDescriptors() error {
	const first = 3
	err := unix.CloseRange(first, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11 do not know the call.
	names, globErr := filepath.Glob("/proc/self/fd/*")
	if globErr != nil || len(names) == 0 {
		return fmt.Errorf("mark descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(filepath.Base(name)); err == nil && fd >= first {
			unix.CloseOnExec(fd) // fails for what was closed meanwhile
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
