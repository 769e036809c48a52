package agentimage

import (
	"errors"
	"fmt"
	"path"
	"strconv"

	"github.com/erofs/go-erofs"

	"github.com/modbox/modbox/internal/image/stack"
)

// Directories of a frame: the root of a box whose root filesystem has several layers, until its agent
// has made the root. Package agent knows them also.
const (
	FrameLayers = "/layers" // with mount points 0, 1, ... of the layers
	FrameUpper  = "/upper"  // mount point of the writable layer
	frameRoot   = "/root"   // where the agent makes the root
)

// MakeFrame writes the image of a frame, which has only directories, into a directory, and returns
// its path.
func MakeFrame(dir string) (string, error) {
	name := path.Join(dir, "frame"+suffix)
	err := writeImage(dir, name, func(w *erofs.Writer) error {
		dirs := []string{"/proc", "/sys", "/dev", "/tmp", Mount, FrameLayers, FrameUpper, frameRoot}
		for i := range stack.Max + 1 {
			dirs = append(dirs, path.Join(FrameLayers, strconv.Itoa(i)))
		}
		var errs []error
		for _, d := range dirs {
			errs = append(errs, w.Mkdir(d, 0o755))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return "", fmt.Errorf("frame image: %w", err)
	}
	return name, nil
}
