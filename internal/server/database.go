package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/installation"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
)

// adviseOnDatabase adds advice to the error of a damaged database.
func adviseOnDatabase(cfg config.Config, err error) error {
	if !errors.Is(err, database.ErrDamaged) {
		return err
	}
	advice := fmt.Sprintf("no backup was found in %s; restore one with: modbox restore --force FILE", cfg.Backup.Directory)
	if last := lastBackup(cfg); last != "" {
		advice = "restore the last backup with: modbox restore --force " + last
	}
	if cfg.Backup.URL != "" {
		advice = fmt.Sprintf("restore the newest backup in the bucket with: modbox restore --force --from '%s'; for a file, which may be older: %s", cfg.Backup.URL, advice)
	}
	return fmt.Errorf("%w; nothing was changed; %s", err, advice)
}

// lastBackup returns the newest backup, or copy from before a migration; "" when there is none.
func lastBackup(cfg config.Config) string {
	backups, _ := backup.List(cfg.Backup.Directory) // an unreadable directory has no backup to offer
	copies, _ := database.Copies(cfg.StateDir)
	last, at := "", time.Time{}
	for _, name := range slices.Concat(backups, copies) {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(at) {
			last, at = name, info.ModTime()
		}
	}
	return last
}

// databasePasswordVariable is the environment variable with the password of the database, instead of the file.
const databasePasswordVariable = "MODBOX_DATABASE_PASSWORD"

// storeLocation returns the place of the server's database.
func storeLocation(cfg config.Config) (store.Location, error) {
	l := store.Location{Path: filepath.Join(cfg.StateDir, statedir.DatabaseFile), Postgres: database.Postgres{
		URL: cfg.Database.URL, MaxConnections: cfg.Database.MaxConnections,
		ConnectTimeout: cfg.Database.ConnectTimeout.Std(), StatementTimeout: cfg.Database.StatementTimeout.Std(),
	}}
	if cfg.Database.URL == "" {
		return l, nil
	}
	l.Postgres.Password = os.Getenv(databasePasswordVariable)
	if l.Postgres.Password == "" && cfg.Database.PasswordFile != "" {
		text, err := os.ReadFile(cfg.Database.PasswordFile)
		if err != nil {
			return l, fmt.Errorf("database.password_file: %w", err)
		}
		l.Postgres.Password = strings.TrimRight(string(text), "\r\n")
	}
	return l, nil
}

// OpenStore opens the database for a command while no server runs.
func OpenStore(ctx context.Context, cfg config.Config, options ...store.Option) (*store.Store, error) {
	l, err := storeLocation(cfg)
	if err != nil {
		return nil, err
	}
	return store.OpenAt(ctx, l, options...)
}

// openOtherStore opens the database of a server that may be running, whichever installation it is of. Errors: NotFound if
// there is none; Unsupported if its version is not the version of this program.
func openOtherStore(ctx context.Context, cfg config.Config) (*store.Store, error) {
	l, err := storeLocation(cfg)
	if err != nil {
		return nil, err
	}
	return store.OpenExistingAt(ctx, l)
}

// OpenExistingStore opens the database of a server that may be running. Errors: NotFound if there is none;
// Unsupported if its version is not the version of this program; Conflict if the server of the state directory uses another.
func OpenExistingStore(ctx context.Context, cfg config.Config, options ...store.Option) (*store.Store, error) {
	mark, found, err := installation.Read(cfg.StateDir) // before the database: a server that runs writes the database first
	if err != nil {
		return nil, err
	}
	l, err := storeLocation(cfg)
	if err != nil {
		return nil, err
	}
	l.Postgres.Reached = mark.Identity
	st, err := store.OpenExistingAt(ctx, l, options...)
	switch code := sandbox.CodeOf(err); {
	case found && (code == sandbox.NotFound || code == sandbox.Conflict):
		return nil, otherDatabase(cfg, mark)
	case code == sandbox.NotFound && cfg.Database.URL == "":
		dirs := installationDirs(cfg)
		dirs.Boxes = dirs.Saved // the run directory may be another server's
		if missing := dirs.CheckMissing(); missing != nil {
			return nil, missing
		}
		return nil, err
	case err != nil || !found:
		return st, err
	}
	db, err := st.Installation(ctx)
	if err == nil && (db.ID != mark.ID || db.Generation < mark.Generation) {
		err = otherDatabase(cfg, mark)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

// DatabaseWarnings connects to the database, whichever installation it is of, and returns warnings about its settings. There
// may be no server's tables yet.
func DatabaseWarnings(ctx context.Context, cfg config.Config) ([]string, error) {
	st, err := openOtherStore(ctx, cfg)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return st.Warnings(), st.Close()
}

// otherDatabase returns the error of commands that would use a database that the server does not use.
func otherDatabase(cfg config.Config, mark installation.Mark) error {
	advice := "if it is PostgreSQL, give the command the setting database.url, by --config or the variable MODBOX_DATABASE_URL"
	if cfg.Database.URL != "" {
		advice = "give the command the server's setting database.url"
	}
	return sandbox.Errorf(sandbox.Conflict, "the server of this state directory does not use the database %s: it uses one of installation %s and at least generation %d; %s; if an older database was put back, start the server with --accept-database first",
		installationDirs(cfg).Database, mark.ID, mark.Generation, advice)
}

// NoFileBackup returns the error of commands for backups, which are files with SQLite's; nil with SQLite.
func NoFileBackup(cfg config.Config) error {
	if cfg.Database.URL == "" {
		return nil
	}
	return sandbox.Errorf(sandbox.Unsupported, "the database is PostgreSQL (database.url): back it up with pg_dump and restore it with pg_restore, and copy the state directory, as docs/operate/postgresql.md describes")
}

const (
	// databaseCheck is the interval at which the server finds out that another has taken its database, or has changed rights in it.
	databaseCheck = 5 * time.Second
	// databasePatience bounds each check of a database that does not answer.
	databasePatience = 10 * time.Second
)

// watchRights makes the services notice changes of rights that other processes make in the database.
func (p *parts) watchRights(ctx context.Context, log *slog.Logger, cu *cleanup.Cleanup) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var task sync.WaitGroup
	task.Go(func() {
		p.store.WatchRights(ctx, databaseCheck, func() {
			p.Auth.Recheck()
			p.SSHKeys.Recheck()
		}, log)
	})
	cu.Add(func() {
		cancel()
		task.Wait()
	})
}

// watchDatabase finds out, also without requests, that another server has taken the PostgreSQL database. With a limit, the server
// ends when its database could not be written for so long.
func (p *parts) watchDatabase(ctx context.Context, limit time.Duration, log *slog.Logger, cu *cleanup.Cleanup) {
	for _, w := range p.store.Warnings() {
		log.Warn(w)
	}
	if p.store.Taken() == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var task sync.WaitGroup
	task.Go(func() {
		last := time.Now() // when it could be written
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(databaseCheck):
			}
			patient, stop := context.WithTimeout(ctx, databasePatience)
			err := p.store.Check(patient)
			stop()
			if err == nil {
				last = time.Now()
				continue
			}
			if ctx.Err() != nil {
				return
			}
			log.Error("the database cannot be written", "error", err)
			if limit > 0 && time.Since(last) > limit {
				p.lost <- fmt.Errorf("the database was away for %s, and a standby may reach it: %w", limit, err)
				return
			}
		}
	})
	cu.Add(func() {
		cancel()
		task.Wait()
	})
}
