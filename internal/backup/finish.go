package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/durable"
)

const (
	// restoreDir is, in the state directory, where a restore unpacks: "new" while it
	// does, "ready" once the plan is to be carried out, whatever happens.
	restoreDir = ".restore"
	planName   = "plan.json"
)

// plan is what is to be done with the state directory.
type plan struct {
	// Names are moved from "ready" into the state directory.
	Names []string `json:"names"`
	// Replaced are moved from the state directory into Aside first, as far as they are there.
	Replaced []string `json:"replaced"`
	Aside    string   `json:"aside"`
}

// commit has what is staged take the place of the replaced names, and returns where those are.
func commit(stateDir, staged string, replaced []string) (aside string, err error) {
	entries, err := os.ReadDir(staged)
	if err != nil {
		return "", err
	}
	p := plan{Replaced: replaced, Aside: asideName(time.Now())}
	for _, e := range entries {
		if slices.Contains(managed, e.Name()) { // and not what preparing the database left
			p.Names = append(p.Names, e.Name())
		}
	}
	if err := writeJSON(filepath.Join(staged, planName), p); err != nil {
		return "", err
	}
	if err := syncFS(staged); err != nil {
		return "", err
	}
	if err := os.Rename(staged, filepath.Join(stateDir, restoreDir, "ready")); err != nil {
		return "", err
	}
	if err := durable.Sync(filepath.Join(stateDir, restoreDir)); err != nil {
		return "", err
	}
	if err := Finish(stateDir); err != nil {
		return "", err
	}
	aside = filepath.Join(stateDir, p.Aside)
	if os.Remove(aside) == nil { // it is empty
		return "", nil
	}
	return aside, nil
}

// Finish carries out a restore that was cut short after everything was verified, undoes
// one that was cut short before, and removes what backups left that were cut short. It
// must be called, by who has the state directory for itself, before anything there is read.
func Finish(stateDir string) error {
	ready := filepath.Join(stateDir, restoreDir, "ready")
	var p plan
	found, err := readJSON(filepath.Join(ready, planName), &p)
	if err == nil && found {
		err = p.carryOut(stateDir, ready, os.Rename)
	}
	if err != nil {
		return fmt.Errorf("finish the restore of a backup: %w", err)
	}
	return errors.Join(discard(stateDir), removeWork(stateDir))
}

// carryOut may be done again from any point at which it was cut short: what is still in
// ready has not taken its place yet.
func (p *plan) carryOut(stateDir, ready string, rename func(from, to string) error) error {
	move := func(from, to string) error {
		if err := rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	aside := filepath.Join(stateDir, p.Aside)
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, name := range p.Replaced {
		if slices.Contains(p.Names, name) {
			if _, err := os.Lstat(filepath.Join(ready, name)); errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if err := move(filepath.Join(stateDir, name), filepath.Join(aside, name)); err != nil {
			return err
		}
	}
	for _, name := range p.Names {
		if err := move(filepath.Join(ready, name), filepath.Join(stateDir, name)); err != nil {
			return err
		}
	}
	return durable.Sync(aside, stateDir)
}

// discard removes what a restore unpacked, unless it is to be carried out.
func discard(stateDir string) error {
	dir := filepath.Join(stateDir, restoreDir)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var p plan
	if found, err := readJSON(filepath.Join(dir, "ready", planName), &p); err != nil {
		return err
	} else if found {
		for _, name := range p.Names {
			if _, err := os.Lstat(filepath.Join(dir, "ready", name)); err == nil {
				return nil // the next Finish goes on
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	// A plan that came back would move away what the server has written meanwhile.
	return durable.Sync(stateDir)
}

// removeWork removes the directories of backups whose process is gone.
func removeWork(stateDir string) error {
	dirs, err := filepath.Glob(filepath.Join(stateDir, workPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = os.RemoveAll(dir)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("remove what a backup left: %w", err)
		}
	}
	return nil
}

// syncFS has everything on the file system of dir written to the disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
