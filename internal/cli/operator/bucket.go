package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/server"
)

// bucketFlags choose a bucket with backups.
type bucketFlags struct {
	local base.LocalFlags
	url   string
}

// add adds the flags to cmd; the bucket's is called name.
func (f *bucketFlags) add(cmd *cobra.Command, name string, settings ...string) {
	cmd.Flags().StringVar(&f.url, name, "", "the bucket: s3://bucket/prefix?region=…, azblob://container/prefix?storage_account=… or file:///directory (default: the setting backup.url)")
	cmd.Flags().StringVar(&f.local.File, "config", "", "the server's YAML file with settings")
	f.local.Flags = config.AddFlags(cmd.Flags(), append(settings, "backup.key_file")...)
}

// open opens the bucket.
func (f *bucketFlags) open(ctx context.Context, env *base.Env, create bool) (*backup.Bucket, config.Config, error) {
	cfg, err := f.local.Load(env)
	if err != nil {
		return nil, cfg, err
	}
	if f.url != "" {
		cfg.Backup.URL = f.url
	}
	if cfg.Backup.URL == "" {
		return nil, cfg, base.UsageError("no bucket: set backup.url, or give its URL")
	}
	b, err := server.OpenBackupBucket(ctx, cfg, create)
	if err == nil {
		b.Warn = func(text string) { fmt.Fprintln(env.Stderr, "Warning: "+text) }
	}
	return b, cfg, err
}

func newBackupCreateCommand(env *base.Env) *cobra.Command {
	var flags bucketFlags
	var images string
	var without bool
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Back up the state of the server on this machine into a bucket",
		Long: `Back up the state of the server on this machine, which may be running, into a bucket of S3
or of a service with its interface, or into a directory. "modbox backup" describes the
content. Backups share equal data: only changes since the earlier backups are sent, and the
next backup continues an interrupted one.

Credentials for S3 come from the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
from ~/.aws, or from the machine's role. With backup.key_file the data is encrypted.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			choice, err := backup.ParseImages(images)
			if err != nil {
				return &base.ExitError{Code: base.ExitUsage, Err: err}
			}
			b, cfg, err := flags.open(cmd.Context(), env, true)
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }() // everything is written
			if err := server.NoFileBackup(cfg); err != nil {
				return err
			}
			st, err := server.OpenExistingStore(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { _ = st.Close() }() // all writes are committed
			var s backup.Stored
			var sent object.Counts
			err = audit.RecordLocally(cmd.Context(), st.Audit, audit.Record{Action: "backup"}, func(ctx context.Context) (err error) {
				s, sent, err = b.Write(ctx, server.BackupSource(cfg, st, env.Version), backup.Options{Images: choice, WithoutCheckpoints: without})
				return err
			})
			if err != nil {
				return err
			}
			if env.JSON {
				shown := storedJSON(&s)
				shown["sent_bytes"] = sent.SentBytes
				return env.PrintJSON(shown)
			}
			sayAway(env, s.Away)
			_, err = fmt.Fprintf(env.Stdout, "%s: %d files of %s, %s sent\n", s.ID, len(s.Files), humanize.IBytes(uint64(s.Size())), humanize.IBytes(uint64(sent.SentBytes)))
			return err
		},
	}
	cmd.Flags().StringVar(&images, "images", string(backup.ImagesNeeded), "images in the backup: needed (by sandboxes and snapshots), all or none")
	cmd.Flags().BoolVar(&without, "without-checkpoints", false, "leave out saved sandboxes and checkpoints")
	flags.add(cmd, "to", "state_dir", "secrets.key_file")
	return cmd
}

// storedJSON describes a backup in a bucket for programs.
func storedJSON(s *backup.Stored) map[string]any {
	return map[string]any{
		"id": s.ID, "created_at": s.CreatedAt, "version": s.Version, "machine": s.Machine, "images": s.Images, "checkpoints": s.Checkpoints,
		"files": len(s.Files), "size_bytes": s.Size(), "images_in_object_store": nonNil(s.Away),
	}
}

func newBackupListCommand(env *base.Env) *cobra.Command {
	var flags bucketFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the backups in a bucket, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, _, err := flags.open(cmd.Context(), env, false)
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }() // it was only read
			shown := []map[string]any{}
			var rows [][]string
			err = b.List(cmd.Context(), func(s *backup.Stored) error {
				shown = append(shown, storedJSON(s))
				rows = append(rows, []string{s.ID, base.Age(s.CreatedAt), s.Machine, s.Version, fmt.Sprint(len(s.Files)), base.Size(s.Size())})
				return nil
			})
			if env.JSON && err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(shown)
			}
			return errors.Join(env.PrintTable([]string{"ID", "AGE", "MACHINE", "VERSION", "FILES", "SIZE"}, rows), err)
		},
	}
	flags.add(cmd, "from")
	return cmd
}

func newBackupVerifyCommand(env *base.Env) *cobra.Command {
	var flags bucketFlags
	var id string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read the backups in a bucket and compare them with their digests",
		Long: `Read all data of the backups in a bucket, or of one backup, and compare it with its digests.
The command names each object that is missing or damaged, and the backups that need it. Delete
a damaged object that the state directory still has: the next backup sends it again.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, _, err := flags.open(cmd.Context(), env, false)
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }() // it was only read
			n, damage, err := b.Verify(cmd.Context(), id)
			if err != nil {
				return err
			}
			if env.JSON {
				shown := make([]map[string]any, len(damage))
				for i, d := range damage {
					shown[i] = map[string]any{"backups": d.Backups, "error": d.Err.Error()}
				}
				if err := env.PrintJSON(map[string]any{"backups": n, "damage": shown}); err != nil {
					return err
				}
			} else {
				for _, d := range damage {
					fmt.Fprintf(env.Stderr, "%v (backups: %s)\n", d.Err, strings.Join(d.Backups, ", "))
				}
			}
			if len(damage) > 0 {
				return fmt.Errorf("objects that are missing or damaged: %d", len(damage))
			}
			if env.JSON {
				return nil
			}
			_, err = fmt.Fprintf(env.Stdout, "%d backups are complete\n", n)
			return err
		},
	}
	cmd.Flags().StringVar(&id, "id", "", "only the backup with this id")
	flags.add(cmd, "from")
	return cmd
}

func newBackupPruneCommand(env *base.Env) *cobra.Command {
	var flags bucketFlags
	var keep int
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove old backups from a bucket, and the data that only they need",
		Long: `Remove all but the newest backups from a bucket, and then the data that no backup needs and
that is older than the grace period. While a backup is in progress, the data stays until the
next prune.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep < 1 {
				return base.UsageError("--keep must be at least 1")
			}
			if grace < 0 {
				return base.UsageError("--grace must not be negative")
			}
			b, _, err := flags.open(cmd.Context(), env, false)
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }() // everything is written
			p, err := b.Prune(cmd.Context(), keep, grace)
			if err != nil {
				return fmt.Errorf("%d backups removed, and then: %w", len(p.Backups), err)
			}
			if env.JSON {
				return env.PrintJSON(map[string]any{"backups": append([]string{}, p.Backups...), "objects": p.Removed, "removed_bytes": p.RemovedBytes})
			}
			_, err = fmt.Fprintf(env.Stdout, "%d backups removed, and %s of data\n", len(p.Backups), humanize.IBytes(uint64(p.RemovedBytes)))
			return err
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "number of the newest backups to keep")
	_ = cmd.MarkFlagRequired("keep") // fails only without that flag
	cmd.Flags().DurationVar(&grace, "grace", backup.Grace, "keep unused data that is younger, for backups that were interrupted")
	flags.add(cmd, "from")
	return cmd
}
