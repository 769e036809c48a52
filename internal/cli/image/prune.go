package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
)

func newImagesRemoveCommand(env *base.Env) *cobra.Command {
	var local base.ChoiceFlags
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Remove images, named by id or reference, so that no new sandboxes can use
them: images that the workspace built, or pulled with a registry credential. Only
administrators may remove images shared by all workspaces, such as built-in images;
these can be built or pulled again. Existing sandboxes and snapshots are not affected. "modbox images prune" then frees the disk.

With --local, images for all workspaces are removed on this machine without a server.`,
		Example: "  modbox images rm app:v1\n  modbox images rm --local ghcr.io/org/app:v1",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			remove, err := imageRemover(env, &local)
			if err != nil {
				return err
			}
			var failed []error
			for _, ref := range refs {
				if err := remove(cmd.Context(), ref); err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", base.Clean(ref), err))
				}
			}
			return errors.Join(failed...)
		},
	}
	local.Add(cmd, "state_dir", "run_dir")
	return cmd
}

// imageRemover returns the function that removes an image: over the API, or on this machine.
func imageRemover(env *base.Env, local *base.ChoiceFlags) (func(context.Context, string) error, error) {
	if !local.Here() {
		c, err := env.Client()
		if err != nil {
			return nil, err
		}
		return c.Images.Delete, nil
	}
	_, st, err := openLocal(env, &local.LocalFlags)
	if err != nil {
		return nil, err
	}
	return st.Removal().Remove, nil
}

func newImagesPruneCommand(env *base.Env) *cobra.Command {
	var local base.ChoiceFlags
	var o client.ImagePruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Free the disk of unused images",
		Long: `Delete the workspace's images that were removed or replaced by a newer build, and
layers of its builds unused for ten minutes. Images that a live sandbox, a checkpoint
or a snapshot needs stay.

With --all, which is for administrators, delete it for all workspaces, and pulled
images too that nothing used within ten minutes and no catalogue has. With --local, delete
the files of removed images and older builds on this machine without a server.`,
		Example: "  modbox images prune --dry-run\n  modbox images prune --all",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !local.Here() {
				return pruneImages(cmd.Context(), env, o)
			}
			if o.All || o.DryRun {
				return base.UsageError("--all and --dry-run are for a server, and not for the directories of this machine")
			}
			return pruneLocal(cmd.Context(), env, &local)
		},
	}
	cmd.Flags().BoolVarP(&o.All, "all", "a", false, "of all workspaces, and pulled images that nothing uses")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "show the images to delete, and delete nothing")
	local.Add(cmd, "state_dir", "run_dir")
	return cmd
}

// pruneImages has the server prune images, and prints them.
func pruneImages(ctx context.Context, env *base.Env, o client.ImagePruneOptions) error {
	c, err := env.Client()
	if err != nil {
		return err
	}
	pruned, err := c.Images.Prune(ctx, o)
	if err != nil {
		return err
	}
	if env.JSON {
		return env.PrintJSON(pruned)
	}
	for _, img := range pruned.Images {
		fmt.Fprintln(env.Stdout, base.Clean(cmp.Or(img.Ref, img.Digest)))
	}
	freed := "freed"
	if pruned.DryRun {
		freed = "would be freed"
	}
	return printFreed(env, pruned.FreedBytes, freed)
}

// printFreed prints the number of bytes that were, or would be, freed.
func printFreed(env *base.Env, n int64, freed string) error {
	_, err := fmt.Fprintln(env.Stdout, cmp.Or(base.Size(n), "0 B"), freed)
	return err
}

// pruneWait bounds the time for which pruning waits for sandboxes that are being started.
const pruneWait = 30 * time.Second

// pruneLocal prunes the images of this machine. The server may be running.
func pruneLocal(ctx context.Context, env *base.Env, local *base.ChoiceFlags) error {
	cfg, st, err := openLocal(env, &local.LocalFlags)
	if err != nil {
		return err
	}
	inUse := server.DigestsInUse(cfg)
	freed, err := backoff.Retry(ctx, func() (int64, error) {
		freed, err := st.Removal().Prune(ctx, inUse)
		if err != nil && sandbox.CodeOf(err) != sandbox.Unavailable {
			err = backoff.Permanent(err)
		}
		return freed, err
	}, backoff.WithBackOff(backoff.NewConstantBackOff(time.Second/2)), backoff.WithMaxElapsedTime(pruneWait))
	if err != nil {
		return err
	}
	if env.JSON {
		return env.PrintJSON(map[string]int64{"freed_bytes": freed})
	}
	return printFreed(env, freed, "freed")
}
