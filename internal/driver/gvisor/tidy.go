package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/modbox/modbox/internal/driver/gvisor/saved"
)

// abandonedAfter is the age at which control groups of a server that has ended are removed.
const abandonedAfter = 10 * time.Minute

// Tidy removes the images of agents and frames that no box or checkpoint needs any more, and the empty control
// groups of other servers that were killed.
func (d *Driver) Tidy(checkpoints []string) error {
	if d.host.groups != nil {
		if err := d.host.groups.RemoveAbandoned(installationName.MatchString, abandonedAfter); err != nil {
			d.host.logger.Warn("control groups of servers that have ended may stay", "error", err)
		}
	}
	return d.tidyAgents(checkpoints)
}

func (d *Driver) tidyAgents(checkpoints []string) error {
	needed := map[string]bool{filepath.Base(d.agent): true, filepath.Base(d.frame): true}
	boxes, err := os.ReadDir(d.host.paths.boxes())
	if err != nil {
		return fmt.Errorf("list boxes: %w", err)
	}
	for _, b := range boxes {
		s, err := readState(filepath.Join(d.host.paths.boxes(), b.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise its making was never completed
			return err
		}
		needed[s.Agent], needed[s.Frame] = true, true
	}
	for _, dir := range checkpoints {
		m, err := saved.ReadManifest(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise it was never complete
			return fmt.Errorf("read checkpoint %s: %w", dir, err)
		}
		needed[m.Agent], needed[m.Frame] = true, true
	}
	return d.host.paths.agents().Retain(needed)
}
