package agentimage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"

	"github.com/erofs/go-erofs"

	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/image/stack"
)

// Directories of a frame: the root of a box whose root filesystem has several layers, until its agent
// has made the root. Package agent knows them also.
const (
	FrameLayers = "/layers" // with mount points 0, 1, ... of the layers
	FrameUpper  = "/upper"  // mount point of the writable layer
	frameRoot   = "/root"   // where the agent makes the root
)

// framePrefix begins the names of frames.
const framePrefix = "frame-"

// MakeFrame makes the image of a frame, which has only directories, and returns its path. It is named by
// its content, so that a checkpoint finds the frame that it needs.
func (d Dir) MakeFrame() (string, error) {
	half := d.Image("new-frame")
	err := writeImage(string(d), half, func(w *erofs.Writer) error {
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
	data, err := os.ReadFile(half) // of some blocks
	if err != nil {
		return "", fmt.Errorf("frame image: %w", err)
	}
	sum := sha256.Sum256(data)
	name := d.Image(framePrefix + hex.EncodeToString(sum[:]) + suffix)
	if err := durable.Move(half, name); err != nil {
		return "", fmt.Errorf("frame image: %w", err)
	}
	return name, nil
}
