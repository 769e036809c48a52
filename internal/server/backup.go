package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/store"
)

// BackupSource returns the parts of the state for a backup; version is the version of this program.
func BackupSource(cfg config.Config, st *store.Store, version string) backup.Source {
	return backup.Source{StateDir: cfg.StateDir, KeyFile: cfg.Secrets.KeyFile, Store: st, Digests: st.Snapshots, Version: version}
}

// OpenBackupBucket opens the bucket of the setting backup.url.
func OpenBackupBucket(ctx context.Context, cfg config.Config, create bool) (*backup.Bucket, error) {
	return backup.OpenBucket(ctx, cfg.Backup.URL, cfg.Backup.KeyFile, create)
}

// backupSettings returns when the server makes backups automatically, and their content.
func backupSettings(cfg config.Config) (backup.Schedule, backup.Options) {
	return backup.Schedule{Every: time.Duration(cfg.Backup.Every), Directory: cfg.Backup.Directory, Keep: cfg.Backup.Keep},
		backup.Options{Images: backup.Images(cfg.Backup.Images)}
}

// backupCollectors returns the metrics of automatic backups; none when the server makes none.
func backupCollectors(cfg config.Config) []prometheus.Collector {
	s, _ := backupSettings(cfg)
	if s.Every <= 0 {
		return nil
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_backup_last_timestamp_seconds", Help: "Time of the newest automatic backup, in seconds since 1970; 0 for never.",
		}, func() float64 {
			last, err := backup.Last(s.Directory)
			if err != nil || last.IsZero() {
				return 0
			}
			return float64(last.Unix())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_backup_interval_seconds", Help: "Interval of automatic backups (backup.every).",
		}, func() float64 { return s.Every.Seconds() }),
	}
}

// makeBackups makes the scheduled backups until the server ends.
func (p *parts) makeBackups(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	s, options := backupSettings(cfg)
	s.Log = log
	s.Write = func(ctx context.Context, path string) error {
		_, err := backup.Write(ctx, BackupSource(cfg, p.store, p.version), path, options)
		return err
	}
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	cu.Add(func() {
		cancel()
		<-done
	})
}
