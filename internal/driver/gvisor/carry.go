package gvisor

import (
	"errors"
	"io/fs"
	"os"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/agentimage"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

var _ driver.Carrier = (*Driver)(nil)

// Needs implements [driver.Carrier]: the images of the agent and of the frame. It leaves out a missing image: without it the checkpoint
// cannot be restored anyway.
func (d *Driver) Needs(dir string) (needs []string, err error) {
	m, err := saved.ReadManifest(dir)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.NotFound, err, "there is no complete checkpoint")
	}
	if m.FilesOnly {
		return nil, nil
	}
	for _, name := range []string{m.Agent, m.Frame} {
		if !agentimage.Valid(name) {
			continue
		}
		image := d.host.paths.agents().Image(name)
		if _, err := os.Lstat(image); err == nil {
			needs = append(needs, image)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return needs, nil
}

// Place implements [driver.Carrier].
func (d *Driver) Place(name string) (string, error) {
	if !agentimage.Valid(name) {
		return "", sandbox.Errorf(sandbox.Invalid, "%.200q is no image of an agent", name)
	}
	return d.host.paths.agents().Image(name), nil
}
