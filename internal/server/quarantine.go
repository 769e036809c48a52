package server

import (
	"path/filepath"

	"github.com/modbox/modbox/internal/capacity"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/quarantine"
	"github.com/modbox/modbox/internal/statedir"
)

// OpenQuarantine returns the quarantine of a state directory.
func OpenQuarantine(cfg config.Config) *quarantine.Store {
	return quarantine.New(filepath.Join(cfg.StateDir, statedir.QuarantineDir))
}

// quarantineLimits returns the limits of the quarantine, for saved states and root filesystems
// separately.
func quarantineLimits(cfg config.Config) quarantine.Limits {
	l := quarantine.Limits{MaxAge: cfg.Quarantine.MaxAge.Std(), MaxBytes: int64(cfg.Quarantine.MaxBytes)}
	if l.MaxBytes == config.Auto {
		l.MaxBytes = 0 // the size of the disk is unknown: only the free space on it bounds the quarantine
		if machine, err := capacity.Detect(cfg.StateDir); err == nil {
			l.MaxBytes = machine.DiskBytes / 4
		}
	}
	return l
}
