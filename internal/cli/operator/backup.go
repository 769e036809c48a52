package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/backup"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/durable"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
)

// NewBackupCommand returns the command "modbox backup".
func NewBackupCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var images string
	var without bool
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Back up the state of the server on this machine to a file",
		Long: `Back up the state of the server on this machine, which may be running, to a file: its
database, the keys that encrypt its secrets, saved sandboxes, output of executions, and
images. The file grants access to all of that; only this user can read it.

Without FILE the backup goes into the directory of the setting backup.directory, named
after the time. "modbox restore" creates a state directory from it. The commands below
make and keep backups in a bucket, which share equal data.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			if err := server.NoFileBackup(cfg); err != nil {
				return err
			}
			choice, err := backup.ParseImages(images)
			if err != nil {
				return &base.ExitError{Code: base.ExitUsage, Err: err}
			}
			file := filepath.Join(cfg.Backup.Directory, backup.Name(time.Now()))
			if len(args) > 0 {
				file = args[0]
			} else if err := durable.MkdirAll(cfg.Backup.Directory); err != nil {
				return fmt.Errorf("make directory: %w", err)
			}
			st, err := server.OpenExistingStore(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { _ = st.Close() }() // all writes are committed
			var m backup.Manifest
			err = audit.RecordLocally(cmd.Context(), st.Audit, audit.Record{Action: "backup"}, func(ctx context.Context) (err error) {
				m, err = backup.Write(ctx, server.BackupSource(cfg, st, env.Version), file, backup.Options{Images: choice, WithoutCheckpoints: without})
				return err
			})
			if err != nil {
				return err
			}
			return printBackup(env, file, &m, "")
		},
	}
	cmd.Flags().StringVar(&images, "images", string(backup.ImagesNeeded), "images in the backup: needed (by sandboxes and snapshots), all or none")
	cmd.Flags().BoolVar(&without, "without-checkpoints", false, "leave out saved sandboxes and checkpoints")
	cmd.Flags().StringVar(&local.File, "config", "", "the server's YAML file with settings")
	local.Flags = config.AddFlags(cmd.Flags(), "state_dir", "secrets.key_file", "backup.directory")
	cmd.AddCommand(newBackupCreateCommand(env), newBackupListCommand(env), newBackupVerifyCommand(env), newBackupPruneCommand(env))
	return cmd
}

// printBackup describes a backup; aside is the directory of the replaced files.
func printBackup(env *base.Env, file string, m *backup.Manifest, aside string) error {
	if env.JSON {
		return env.PrintJSON(map[string]any{
			"file": file, "created_at": m.CreatedAt, "version": m.Version, "images": m.Images, "checkpoints": m.Checkpoints,
			"files": len(m.Files), "size_bytes": m.Size(), "set_aside": aside, "images_in_object_store": nonNil(m.Away),
		})
	}
	sayAway(env, m.Away)
	_, err := fmt.Fprintf(env.Stdout, "%s: %d files of %s\n", file, len(m.Files), humanize.IBytes(uint64(m.Size())))
	return err
}

// sayAway says which images a backup does not have, because only the object store has them.
func sayAway(env *base.Env, digests []string) {
	if len(digests) > 0 {
		fmt.Fprintf(env.Stderr, "The backup does not have %d images that only the object store has; a restored server needs its archive.url: %s\n", len(digests), strings.Join(digests, ", "))
	}
}

// nonNil returns a list that is [] in JSON and not null.
func nonNil(list []string) []string { return append([]string{}, list...) }

// NewRestoreCommand returns the command "modbox restore".
func NewRestoreCommand(env *base.Env) *cobra.Command {
	var flags bucketFlags
	var o backup.RestoreOptions
	var id string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore [FILE]",
		Short: "Restore the state directory on this machine from a backup",
		Long: `Restore the state directory on this machine from a backup, while no server uses it. The
command verifies the whole backup before it changes anything. With --force it moves the
directory's present content aside, and never deletes it. FILE may also be a copy of the database from before an
upgrade, in the directory "backups" of the state directory: that replaces the database only.
With --from the backup is in a bucket, and the newest there unless --id says which.

Then start the server. Sandboxes that were running when the backup was made have ended;
saved sandboxes can be resumed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Prepare = prepareRestored
			switch {
			case len(args) == 0 && flags.url == "":
				return base.UsageError("give a FILE, or the bucket with --from")
			case len(args) > 0 && (flags.url != "" || id != ""):
				return base.UsageError("give either a FILE, or a bucket with --from and --id")
			case len(args) == 0 && check:
				return base.UsageError("--check is for a FILE; \"modbox backup verify\" verifies backups in a bucket")
			case len(args) == 0:
				return restoreFromBucket(cmd.Context(), env, &flags, id, o)
			}
			cfg, err := flags.local.Load(env)
			if err != nil {
				return err
			}
			if check {
				m, err := backup.Check(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printBackup(env, args[0], &m, "")
			}
			if err := server.NoFileBackup(cfg); err != nil {
				return err
			}
			var m backup.Manifest
			aside, err := restore(cmd.Context(), env, cfg, func() (aside string, err error) {
				m, aside, err = backup.Restore(cmd.Context(), args[0], cfg.StateDir, o)
				return aside, err
			})
			if err != nil {
				return err
			}
			if err := printBackup(env, args[0], &m, aside); err != nil || env.JSON {
				return err
			}
			hint(env, aside)
			return nil
		},
	}
	cmd.Flags().BoolVar(&o.Force, "force", false, "set aside what the state directory holds")
	cmd.Flags().BoolVar(&o.KeepImages, "keep-images", false, "leave the images of the state directory as they are")
	cmd.Flags().BoolVar(&check, "check", false, "verify the file, and change nothing")
	cmd.Flags().StringVar(&id, "id", "", "the backup in the bucket; default: the newest")
	flags.add(cmd, "from", "state_dir", "secrets.key_file")
	cmd.Flags().Lookup("from").Usage = "the bucket with the backup: s3://bucket/prefix?region=…, azblob://container/prefix?storage_account=… or file:///directory"
	return cmd
}

// restoreFromBucket restores a backup in a bucket.
func restoreFromBucket(ctx context.Context, env *base.Env, flags *bucketFlags, id string, o backup.RestoreOptions) error {
	b, cfg, err := flags.open(ctx, env, false)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // it was only read
	if err := server.NoFileBackup(cfg); err != nil {
		return err
	}
	var s backup.Stored
	aside, err := restore(ctx, env, cfg, func() (aside string, err error) {
		s, aside, err = b.Restore(ctx, id, cfg.StateDir, o)
		return aside, err
	})
	if err != nil {
		return err
	}
	if env.JSON {
		shown := storedJSON(&s)
		shown["set_aside"] = aside
		return env.PrintJSON(shown)
	}
	hint(env, aside)
	sayAway(env, s.Away)
	_, err = fmt.Fprintf(env.Stdout, "%s: %d files of %s\n", s.ID, len(s.Files), humanize.IBytes(uint64(s.Size())))
	return err
}

// hint says where the replaced files are.
func hint(env *base.Env, aside string) {
	if aside != "" {
		fmt.Fprintln(env.Stderr, backup.Hint(aside))
	}
}

// restore calls replace while no server uses the state directory.
func restore(ctx context.Context, env *base.Env, cfg config.Config, replace func() (aside string, err error)) (aside string, err error) {
	if err := statedir.Make(cfg.StateDir); err != nil {
		return "", err
	}
	unlock, err := statedir.Lock(ctx, cfg.StateDir, cfg.StateDir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if aside, err = replace(); err != nil {
		return "", err
	}
	if key := filepath.Join(cfg.StateDir, "secret.key"); key != cfg.Secrets.KeyFile {
		if _, err := os.Stat(key); !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(env.Stderr, "The keys of the backup are in %s: put them where the setting secrets.key_file says, %s, before you start the server.\n", key, cfg.Secrets.KeyFile)
		}
	}
	return aside, nil
}

// prepareRestored migrates the database of a backup to this version, and makes it an installation
// of its own: it must not touch the boxes of the installation that was backed up.
func prepareRestored(ctx context.Context, database string) error {
	st, err := store.Open(ctx, database)
	if err != nil {
		return err
	}
	_, err = st.RenewInstallation(ctx)
	return errors.Join(err, st.Close())
}
