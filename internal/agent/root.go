package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

// The directories of a frame: the root of a box whose root filesystem has several layers, until its
// agent makes another.
const (
	frameLayers = "/layers" // the layers are mounted in its directories 0, 1, ..., the topmost first
	frameUpper  = "/upper"  // the writable layer
	frameRoot   = "/root"   // where the root is made
	// oldRoot begins the name of the directory where the frame is in the new root, for a moment.
	oldRoot = ".modbox-frame-"
	// lateImage is the type of file system that gives a layer that was mounted after the start what it
	// needs to be restored. The sandbox's gVisor has it.
	lateImage = "modbox-image"
)

// furnish makes the root of a sandbox that has none yet, and had layers mounted after its start.
func (a *Agent) furnish(layers int) error {
	a.furnishing.Lock()
	defer a.furnishing.Unlock()
	if a.furnished {
		return nil
	}
	if layers < 1 {
		return answer.Errorf(agentapi.CodeInvalid, "the sandbox has no root filesystem yet")
	}
	for i := range layers {
		if err := unix.Mount("none", frameLayers+"/"+strconv.Itoa(i), lateImage, 0, ""); err != nil {
			return fmt.Errorf("mount layer %d: %w", i, err)
		}
	}
	if err := ComposeRoot(layers, a.opts.Mounts); err != nil {
		return err
	}
	if err := Confine(false); err != nil {
		return err
	}
	a.furnished = true
	return nil
}

// ComposeRoot makes an overlay of layers the root of all processes, moves the mounts with the paths
// there, and removes the frame.
//
// Preconditions: the process is PID 1, has CAP_SYS_ADMIN, and its root is a frame.
func ComposeRoot(layers int, mounts []string) error {
	var lower []string
	for i := range layers {
		lower = append(lower, frameLayers+"/"+strconv.Itoa(i))
	}
	// The root of an overlay has the owner and mode of the writable layer.
	var top unix.Stat_t
	if err := unix.Stat(lower[0], &top); err != nil {
		return fmt.Errorf("compose root: %w", err)
	}
	if err := errors.Join(unix.Chown(frameUpper, int(top.Uid), int(top.Gid)), unix.Chmod(frameUpper, top.Mode&0o7777)); err != nil {
		return fmt.Errorf("compose root: %w", err)
	}
	if err := unix.Mount("none", frameRoot, "overlay", 0, "lowerdir="+strings.Join(lower, ":")+",upperdir="+frameUpper); err != nil {
		return fmt.Errorf("mount layers: %w", err)
	}
	old, err := os.MkdirTemp(frameRoot, oldRoot) // the layers may have any name
	if err != nil {
		return fmt.Errorf("compose root: %w", err)
	}
	if err := unix.PivotRoot(frameRoot, old); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	old = strings.TrimPrefix(old, frameRoot)
	for _, m := range mounts {
		// Only now, because a mount point may be a symbolic link, which begins at the root.
		if err := os.MkdirAll(m, 0o755); err != nil {
			return fmt.Errorf("make mount point: %w", err)
		}
		if err := unix.Mount(old+m, m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move mount %s: %w", m, err)
		}
	}
	if err := unix.Unmount(old, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount frame: %w", err)
	}
	return os.Remove(old)
}
