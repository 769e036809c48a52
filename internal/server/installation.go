package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
)

func installationDirs(cfg config.Config) installation.Dirs {
	dirs := installation.Dirs{
		State: cfg.StateDir, Run: cfg.RunDir, Database: filepath.Join(cfg.StateDir, statedir.DatabaseFile),
		Saved: filepath.Join(cfg.StateDir, statedir.CheckpointsDir), Boxes: filepath.Join(cfg.RunDir, "boxes"),
	}
	if cfg.Database.URL != "" {
		dirs.Database = "of the setting database.url"
	}
	return dirs
}

// checkMissing refuses a start that would make a database where there was one. A new PostgreSQL database is of another
// installation, and [installation.Dirs.Check] refuses it.
func checkMissing(cfg config.Config, dirs installation.Dirs) error {
	if cfg.Database.URL != "" {
		return nil
	}
	return dirs.CheckMissing()
}

// peekInstallation returns the installation of the database. Errors: NotFound when there is none.
func peekInstallation(ctx context.Context, cfg config.Config, dirs installation.Dirs) (i installation.Identity, err error) {
	if cfg.Database.URL == "" {
		return database.PeekInstallation(ctx, dirs.Database)
	}
	st, err := openOtherStore(ctx, cfg)
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return st.Installation(ctx)
}

// fitsInstallation returns why the database does not belong to the state and run directories, or
// that it cannot be read. It changes nothing.
func fitsInstallation(ctx context.Context, cfg config.Config) error {
	dirs := installationDirs(cfg)
	marks, err := dirs.Marks()
	if err := errors.Join(err, dirs.CheckRun(), checkMissing(cfg, dirs)); err != nil {
		return err
	}
	db, err := peekInstallation(ctx, cfg, dirs)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil // the first start
	}
	if err != nil {
		return err
	}
	return dirs.Check(marks, db)
}

// openStore opens the database, unless it does not belong to the state and run directories: with an
// older copy, a new database or another server's, the sweep would mistake everything newer for
// garbage. With accept it makes the database belong to them.
func (p *parts) openStore(ctx context.Context, cfg config.Config, accept bool, keys *secret.Keys, log *slog.Logger, cu *cleanup.Cleanup) error {
	dirs := installationDirs(cfg)
	if err := dirs.CheckRun(); err != nil {
		return err
	}
	location, err := storeLocation(cfg)
	if err != nil {
		return err
	}
	beside, unread := dirs.Marks()
	if !accept {
		if err := checkMissing(cfg, dirs); err != nil {
			return err
		}
		mark, _, err := installation.Read(cfg.StateDir)
		if err != nil {
			return err
		}
		location.Postgres.Reached = mark.Identity // of several primaries, the primary that has everything
	}
	location.Postgres.Ranges = p.ranges
	if len(cfg.Replica.Parts()) > 1 {
		location.Postgres.Others = func() (installation.Identity, error) {
			mark, _, err := installation.Read(cfg.StateDir)
			return mark.Identity, err
		}
	}
	st, err := afterOthers(ctx, cfg, log, func() (*store.Store, error) {
		return withSpace(p.disk, func() (*store.Store, error) { return store.OpenAt(ctx, location, store.WithKeys(keys)) })
	})
	if err != nil {
		return adviseOnDatabase(cfg, err)
	}
	cu.Add(func() { closeLogged(log, "store", st.Close) })
	db, err := st.Installation(ctx)
	if err != nil {
		return err
	}
	if reason := errors.Join(unread, dirs.Check(beside, db)); reason != nil {
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
	p.instance, p.generation = db.ID, db.Generation
	marks, err := withSpace(p.disk, func() (*installation.Marks, error) {
		return installation.Write(installation.Mark{Identity: db, StateDir: cfg.StateDir}, p.ranges, slices.Compact([]string{cfg.StateDir, cfg.RunDir})...)
	})
	if err != nil {
		return err
	}
	cu.Add(func() { closeLogged(log, "marks of the installation", marks.Close) })
	st.OnAdvance(func(generation int64) {
		if err := marks.Advance(generation); err != nil {
			log.Error("cannot mark the installation, so an older database would not be noticed", "error", err)
		}
	})
	differed, err := st.Quotas.RecountUse(ctx)
	if err != nil {
		return err
	}
	if len(differed) > 0 {
		log.Warn("the use of quotas in the database differed from its records, and was corrected; another program may have changed them", "workspaces", differed)
	}
	return nil
}
