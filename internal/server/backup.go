package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gvisor.dev/gvisor/pkg/cleanup"

	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/object/bucketurl"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/imagerows"
)

// BackupSource returns the parts of the state for a backup; version is the version of this program.
func BackupSource(cfg config.Config, st *store.Store, version string) backup.Source {
	stored := func(ctx context.Context) (digests []string, err error) {
		list, err := imagerows.NewStored(st.DB).All(ctx)
		for _, f := range list {
			digests = append(digests, f.Digest)
		}
		return digests, err
	}
	return backup.Source{StateDir: cfg.StateDir, KeyFile: cfg.Secrets.KeyFile, Store: st, Digests: st.Snapshots, Stored: stored, Version: version}
}

// OpenBackupBucket opens the bucket of the setting backup.url.
func OpenBackupBucket(ctx context.Context, cfg config.Config, create bool) (*backup.Bucket, error) {
	return backup.OpenBucket(ctx, cfg.Backup.URL, cfg.Backup.KeyFile, create)
}

// backupPlan says when the server makes backups, where, and of what.
type backupPlan struct {
	Every     time.Duration
	Directory string
	Bucket    string // instead of the directory; "" for none
	KeyFile   string // for the bucket
	Keep      int
	Options   backup.Options
}

// backupSettings returns the plan of the settings.
func backupSettings(cfg config.Config) backupPlan {
	c := cfg.Backup
	return backupPlan{Every: c.Every.Std(), Directory: c.Directory, Bucket: c.URL, KeyFile: c.KeyFile, Keep: c.Keep, Options: backup.Options{Images: backup.Images(c.Images)}}
}

// target returns the place of the backups. source returns the state to back up.
func (p backupPlan) target(log *slog.Logger, source func() backup.Source) backup.Target {
	if p.Bucket == "" {
		return backup.Directory{Path: p.Directory, Keep: p.Keep, Log: log, Write: func(ctx context.Context, path string) error {
			m, err := backup.Write(ctx, source(), path, p.Options)
			logAway(log, m.Away)
			return err
		}}
	}
	return backup.Remote{
		Name: p.Bucket, Keep: p.Keep, Log: log,
		Open: func(ctx context.Context) (*backup.Bucket, error) {
			u, err := bucketurl.Parse(p.Bucket)
			if err != nil || u.Scheme != bucketurl.File {
				return backup.OpenBucket(ctx, p.Bucket, p.KeyFile, true)
			}
			// A directory without backups may be the mount point of a file system that is not mounted.
			b, err := backup.OpenBucket(ctx, p.Bucket, p.KeyFile, false)
			if err != nil {
				return nil, fmt.Errorf("%w; a directory has to be mounted, and its first backup made by: modbox backup create", err)
			}
			return b, nil
		},
		Write: func(ctx context.Context, b *backup.Bucket) (backup.Stored, error) {
			s, _, err := b.Write(ctx, source(), p.Options)
			logAway(log, s.Away)
			return s, err
		},
	}
}

// logAway logs that a backup lacks images that only the object store has.
func logAway(log *slog.Logger, digests []string) {
	if len(digests) > 0 {
		log.Info("a backup does not have images that only the object store has", "count", len(digests))
	}
}

// LastBackup returns when the newest automatic backup was made; zero when there is none.
func LastBackup(ctx context.Context, cfg config.Config) (time.Time, error) {
	if cfg.Backup.URL == "" {
		return backup.Last(cfg.Backup.Directory)
	}
	b, err := OpenBackupBucket(ctx, cfg, false)
	if sandbox.CodeOf(err) == sandbox.NotFound { // nothing was written to it yet
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = b.Close() }() // it was only read
	return b.Last(ctx)
}

// backupCollectors returns the metrics of automatic backups; none when the server makes none.
func (p *parts) backupCollectors(cfg config.Config) []prometheus.Collector {
	every := cfg.Backup.Every.Std()
	if every <= 0 || !p.store.Owner().Primary() {
		return nil
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_backup_last_timestamp_seconds", Help: "Time of the newest automatic backup, in seconds since 1970; 0 for never.",
		}, func() float64 {
			if cfg.Backup.URL != "" {
				return float64(p.backedUp.Load()) // the bucket is not asked each time
			}
			last, err := backup.Last(cfg.Backup.Directory)
			if err != nil || last.IsZero() {
				return 0
			}
			return float64(last.Unix())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "modbox_backup_interval_seconds", Help: "Interval of automatic backups (backup.every).",
		}, every.Seconds),
	}
}

// makeBackups makes the scheduled backups until the server ends. Of several servers the primary makes them.
func (p *parts) makeBackups(ctx context.Context, cfg config.Config, log *slog.Logger, cu *cleanup.Cleanup) {
	if !p.store.Owner().Primary() {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	plan := backupSettings(cfg)
	s := backup.Schedule{
		Every: plan.Every, Log: log, Made: func(at time.Time) { p.backedUp.Store(at.Unix()) },
		Target: plan.target(log, func() backup.Source { return BackupSource(cfg, p.store, p.version) }),
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
