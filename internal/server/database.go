package server

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/config"
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
