package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
)

func (a *app) imagesRemoveCommand() *cobra.Command {
	var local localFlags
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Forget built images on this machine",
		Long: `Forget built images, so that no more sandboxes are made from them. Sandboxes that
run from one go on. "modbox images prune" then frees the disk; a built-in image
can be built again.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			cfg, err := local.load(a)
			if err != nil {
				return err
			}
			st, err := openImages(cfg)
			if err != nil {
				return err
			}
			for _, ref := range refs {
				if err := st.Remove(cmd.Context(), ref); err != nil {
					return err
				}
			}
			return nil
		},
	}
	local.add(cmd)
	return cmd
}

// pruneWait is how long pruning waits for sandboxes that are being started.
const pruneWait = 30 * time.Second

func (a *app) imagesPruneCommand() *cobra.Command {
	var local localFlags
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete the files of removed images and older builds on this machine",
		Long: `Delete the files of images that were removed or built anew, unless a sandbox that
has not ended or a snapshot needs them. The server may be running.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := local.load(a)
			if err != nil {
				return err
			}
			st, err := openImages(cfg)
			if err != nil {
				return err
			}
			inUse := digestsInUse(filepath.Join(cfg.StateDir, databaseFile))
			freed, err := backoff.Retry(cmd.Context(), func() (int64, error) {
				freed, err := st.Prune(cmd.Context(), inUse)
				if err != nil && sandbox.CodeOf(err) != sandbox.Unavailable {
					err = backoff.Permanent(err)
				}
				return freed, err
			}, backoff.WithBackOff(backoff.NewConstantBackOff(time.Second/2)), backoff.WithMaxElapsedTime(pruneWait))
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]int64{"freed_bytes": freed})
			}
			_, err = fmt.Fprintf(a.stdout, "%s freed\n", size(freed))
			return err
		},
	}
	local.add(cmd)
	return cmd
}

// digestsInUse returns what tells the images that a database still needs: of
// sandboxes that have not ended, their checkpoints and snapshots. It fails with
// Unavailable while a sandbox is being started: its image is chosen then, but not
// written down yet.
func digestsInUse(database string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) (digests []string, err error) {
		st, err := store.OpenExisting(ctx, database)
		if sandbox.CodeOf(err) == sandbox.NotFound {
			return nil, nil // no server, no sandboxes
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		live, err := st.LiveSandboxes(ctx)
		if err != nil {
			return nil, err
		}
		for _, sb := range live {
			if sb.ImageDigest == "" {
				return nil, sandbox.Errorf(sandbox.Unavailable, "sandbox %s (%s) is being started; try again when it runs", sb.Name, sb.ID)
			}
		}
		return st.DigestsInUse(ctx)
	}
}

// imagesInUse returns what tells the images that sandboxes and snapshots need:
// their digests, and the references of sandboxes that are being started, whose
// image may not be chosen yet.
func imagesInUse(st *store.Store) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		live, err := st.LiveSandboxes(ctx)
		if err != nil {
			return nil, err
		}
		used, err := st.DigestsInUse(ctx)
		for _, sb := range live {
			if sb.ImageDigest == "" {
				used = append(used, sb.Image)
			}
		}
		return used, err
	}
}
