package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store"
)

// lockDir makes sure that only one server, which has the state directory stateDir, works
// on dir. The lock ends with the process, however it ends.
func lockDir(dir, stateDir string) (unlock func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 8<<10)) // only to name it
		_ = f.Close()                                     // nothing was written
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		pid, other, _ := strings.Cut(strings.TrimSpace(string(holder)), "\n")
		if dir == stateDir {
			return nil, fmt.Errorf("another server (process %s) works on %s", pid, dir)
		}
		return nil, fmt.Errorf("another server (process %s, state directory %s) works on the run directory %s; give this server a run directory of its own (--run-dir or MODBOX_RUN_DIR)",
			pid, other, dir)
	}
	// The file says who holds the lock; on a full disk a new one cannot.
	text := fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), stateDir)
	if _, err = f.WriteAt(text, 0); err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil && !ballast.IsFull(err) {
		_ = f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // closing gives up the lock
}

func installationDirs(cfg config.Config) installation.Dirs {
	return installation.Dirs{
		State: cfg.StateDir, Run: cfg.RunDir, Database: filepath.Join(cfg.StateDir, databaseFile),
		Saved: filepath.Join(cfg.StateDir, checkpointsDir), Boxes: filepath.Join(cfg.RunDir, "boxes"),
	}
}

// fitsInstallation returns why the database does not belong to what lies in the state and
// run directories, or that it cannot be read. Nothing is changed.
func fitsInstallation(ctx context.Context, cfg config.Config) error {
	dirs := installationDirs(cfg)
	if err := errors.Join(dirs.CheckRun(), dirs.CheckMissing()); err != nil {
		return err
	}
	db, err := store.PeekInstallation(ctx, dirs.Database)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil // the first start
	}
	if err != nil {
		return err
	}
	return dirs.Check(db)
}

// openStore opens the database, unless it does not belong to what lies in the state and
// run directories: an older copy, a new one or another server's would make the sweep take
// everything newer for garbage. With accept it is made to belong to them.
func (p *parts) openStore(ctx context.Context, cfg config.Config, accept bool, keys *secret.Keys, log *slog.Logger, cu *cleanup.Cleanup) error {
	dirs := installationDirs(cfg)
	if err := dirs.CheckRun(); err != nil {
		return err
	}
	if !accept {
		if err := dirs.CheckMissing(); err != nil {
			return err
		}
	}
	st, err := withSpace(p.disk, func() (*store.Store, error) { return store.Open(ctx, dirs.Database, store.WithKeys(keys)) })
	if err != nil {
		return adviseOnDatabase(cfg, err)
	}
	cu.Add(func() { closeLogged(log, "store", st.Close) })
	db, err := st.Installation(ctx)
	if err != nil {
		return err
	}
	if reason := dirs.Check(db); reason != nil {
		if !accept {
			return reason
		}
		log.Warn("a database that does not fit was accepted: sandboxes that it does not know end, and what was saved of them goes to quarantine", "reason", reason)
		if _, err := st.RenewInstallation(ctx); err != nil {
			return err
		}
	}
	p.store = st
	p.disk.attach(st)
	if db, err = st.Advance(ctx); err != nil {
		return err
	}
	marks, err := withSpace(p.disk, func() (*installation.Marks, error) {
		return installation.Write(installation.Mark{Installation: db, StateDir: cfg.StateDir}, slices.Compact([]string{cfg.StateDir, cfg.RunDir})...)
	})
	if err != nil {
		return err
	}
	cu.Add(func() { closeLogged(log, "marks of the installation", marks.Close) })
	st.OnAdvance(func(generation int64) {
		if err := marks.Advance(generation); err != nil {
			log.Error("an older database would not be noticed", "err", err)
		}
	})
	return nil
}
