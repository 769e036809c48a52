package gvisor

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
	"time"

	"github.com/erofs/go-erofs"
)

// agentSuffix ends the names of agent images.
const agentSuffix = ".erofs"

// agentImage returns an EROFS image in dir that contains only the agent, and makes it if necessary.
// It is named by the agent's content, so that boxes of different versions can run at the same time
// and a checkpoint finds the agent that it needs.
func agentImage(binary, dir string) (string, error) {
	agent, err := os.Open(binary)
	if err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	defer agent.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, agent); err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	name := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil))+agentSuffix)
	if _, err := os.Stat(name); err == nil {
		return name, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("agent image: %w", err)
	}
	if _, err := agent.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	if err := writeAgentImage(agent, dir, name); err != nil {
		return "", fmt.Errorf("agent image: %w", err)
	}
	return name, nil
}

// abandonedAfter is the age at which control groups of a server that has ended are removed.
const abandonedAfter = 10 * time.Minute

// Tidy removes the images of agents that no box or checkpoint needs any more, and the empty control
// groups of other servers that were killed.
func (d *Driver) Tidy(checkpoints []string) error {
	if d.groups != nil {
		if err := d.groups.RemoveAbandoned(installationName.MatchString, abandonedAfter); err != nil {
			d.cfg.Logger.Warn("control groups of servers that have ended may stay", "error", err)
		}
	}
	return d.tidyAgents(checkpoints)
}

func (d *Driver) tidyAgents(checkpoints []string) error {
	needed := map[string]bool{filepath.Base(d.agent): true}
	boxes, err := os.ReadDir(d.boxesDir())
	if err != nil {
		return fmt.Errorf("list boxes: %w", err)
	}
	for _, b := range boxes {
		s, err := readState(filepath.Join(d.boxesDir(), b.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise its making was never completed
			return err
		}
		needed[s.Agent] = true
	}
	for _, dir := range checkpoints {
		m, err := readManifest(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // otherwise it was never complete
			return fmt.Errorf("read checkpoint %s: %w", dir, err)
		}
		needed[m.Agent] = true
	}
	agents, err := os.ReadDir(d.agentsDir())
	if err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	var errs []error
	for _, a := range agents {
		if !needed[a.Name()] {
			errs = append(errs, os.Remove(filepath.Join(d.agentsDir(), a.Name())))
		}
	}
	return errors.Join(errs...)
}

// writeAgentImage writes a temporary file and renames it, so that an image under its final name is
// always complete.
func writeAgentImage(agent io.Reader, dir, name string) error {
	out, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	w := erofs.Create(out, erofs.WithTempDir(dir), erofs.WithBuildTime(0, 0))
	file, err := w.Create("/" + path.Base(agentPath))
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, agent); err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(0o755), file.Close(), w.Close()); err != nil {
		return err
	}
	if err := errors.Join(out.Chmod(0o444), out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), name); err != nil {
		return err
	}
	return syncFile(dir) // checkpoints refer to it by name
}
