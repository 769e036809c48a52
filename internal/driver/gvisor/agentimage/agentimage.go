// Package agentimage has the read-only images with the agent that are mounted in boxes, one for each
// version of the agent, and the frames of boxes.
package agentimage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/erofs/go-erofs"

	"github.com/modbox/modbox/internal/durable"
)

// Where the agent is in a box.
const (
	Mount = "/.modbox" // of the image
	Path  = Mount + "/agent"
)

// suffix ends the names of images.
const suffix = ".erofs"

// Dir is a directory with images. Their names have hashes of the agents, and of the frames.
type Dir string

// Make returns the path of an EROFS image that contains only the agent, and makes it if necessary.
// It is named by the agent's content, so that boxes of different versions can run at the same time
// and a checkpoint finds the agent that it needs.
func (d Dir) Make(binary string) (string, error) {
	agent, err := os.Open(binary)
	if err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	defer agent.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, agent); err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	name := d.Image(hex.EncodeToString(sum.Sum(nil)) + suffix)
	if _, err := os.Stat(name); err == nil {
		return name, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("agent image: %w", err)
	}
	if _, err := agent.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	if err := write(agent, string(d), name); err != nil {
		return "", fmt.Errorf("agent image: %w", err)
	}
	return name, nil
}

// Image returns the path of an image.
func (d Dir) Image(name string) string { return filepath.Join(string(d), name) }

// Valid reports whether name is a name that an image can have.
func Valid(name string) bool { return name == filepath.Base(name) && strings.HasSuffix(name, suffix) }

// Retain removes all files but the images with the names.
func (d Dir) Retain(names map[string]bool) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !names[e.Name()] {
			errs = append(errs, os.Remove(d.Image(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// write writes an image with the agent.
func write(agent io.Reader, dir, name string) error {
	return writeImage(dir, name, func(w *erofs.Writer) error {
		file, err := w.Create("/" + path.Base(Path))
		if err != nil {
			return err
		}
		if _, err := io.Copy(file, agent); err != nil {
			return err
		}
		return errors.Join(file.Chmod(0o755), file.Close())
	})
}

// writeImage writes a temporary file and renames it, so that an image under its final name is
// always complete.
func writeImage(dir, name string, fill func(*erofs.Writer) error) error {
	out, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	w := erofs.Create(out, erofs.WithTempDir(dir), erofs.WithBuildTime(0, 0))
	if err := errors.Join(fill(w), w.Close()); err != nil {
		return err
	}
	if err := errors.Join(out.Chmod(0o444), out.Sync(), out.Close()); err != nil {
		return err
	}
	return durable.Move(out.Name(), name) // checkpoints refer to it by name
}
