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
	// restoreDir is the directory, in the state directory, into which a restore unpacks: "new"
	// while it does, "ready" once the plan will be carried out in any case.
	restoreDir = ".restore"
	planName   = "plan.json"
)

// plan describes the changes to the state directory.
type plan struct {
	// Names are moved from "ready" into the state directory.
	Names []string `json:"names"`
	// Replaced are moved from the state directory into Aside first, if they exist.
	Replaced []string `json:"replaced"`
	Aside    string   `json:"aside"`
}

// commit replaces the names by the staged files, and returns the directory of the replaced files.
func commit(stateDir, staged string, replaced []string) (aside string, err error) {
	entries, err := os.ReadDir(staged)
	if err != nil {
		return "", err
	}
	p := plan{Replaced: replaced, Aside: asideName(time.Now())}
	for _, e := range entries {
		if slices.Contains(managed, e.Name()) { // not files left by the preparation of the database
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

// Finish completes a restore that was interrupted after the verification, undoes a restore that was
// interrupted before, and removes the leftovers of interrupted backups. Its caller must have
// exclusive use of the state directory and must call it before anything there is read.
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

// carryOut can be repeated after an interruption at any point: names that are still in ready have
// not been moved yet.
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

// discard removes the files that a restore unpacked, unless the plan exists.
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
				return nil // the next Finish continues
			}
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	// If the plan reappeared after a crash, it would move away what the server has written since.
	return durable.Sync(stateDir)
}

// removeWork removes the directories of backups whose process has ended.
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

// syncFS syncs the file system of dir to the disk.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
