package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
)

// NewImagesCommand returns the command "modbox images".
func NewImagesCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		Short:   "List, pull, build and remove images",
		Args:    cobra.NoArgs,
	}
	list := newImagesListCommand(env)
	cmd.RunE = list.RunE // "modbox images" lists
	cmd.AddCommand(list, newImagesHistoryCommand(env), newImagesPullCommand(env), newImagesBuildCommand(env), newImagesRemoveCommand(env), newImagesPruneCommand(env), newImagesPushCommand(env), newImagesExportCommand(env), newImagesImportCommand(env))
	return cmd
}

func newImagesListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the images that sandboxes can be made from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Images.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, i := range list {
				name, made := i.Ref, "not built"
				if i.IsDefault {
					name += " (default)"
				}
				if i.Digest != "" {
					made = base.Age(i.UpdatedAt) + " ago"
				}
				rows = append(rows, []string{name, made, base.Size(i.SizeBytes), i.Memory, i.Description})
			}
			return env.PrintTable([]string{"IMAGE", "MADE", "SIZE", "MEMORY", "DESCRIPTION"}, rows)
		},
	}
}

func newImagesBuildCommand(env *base.Env) *cobra.Command {
	var force bool
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use:   "build [IMAGE...]",
		Short: "Build images on this machine; base and code-exec by default",
		Long: `Build images into the state directory of the server on this machine, which need
not run. IMAGE is a built-in image such as code-exec or node:lts, or a directory
with a recipe (docs/images.md). Existing images are not built again. The server
also builds runtimes (modbox runtimes) at their first use; it pulls ubuntu instead.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			_, st, err := openLocal(env, &local)
			if err != nil {
				return err
			}
			recipes, err := chooseRecipes(st, names)
			if err != nil {
				return err
			}
			built := []spec.Image{}
			for _, r := range recipes {
				img, err := build(cmd.Context(), env, st, r, force)
				if err != nil {
					return err
				}
				built = append(built, img)
			}
			if env.JSON {
				return env.PrintJSON(built)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "build anew, to get newer packages")
	local.Add(cmd)
	return cmd
}

// chooseRecipes returns the recipes of the names, or of all built-in images except the images that
// are built at their first use.
func chooseRecipes(st *image.Store, names []string) ([]*recipe.Recipe, error) {
	if len(names) == 0 {
		for _, r := range st.Recipes() {
			if !r.OnDemand() {
				names = append(names, r.Ref())
			}
		}
	}
	var recipes []*recipe.Recipe
	for _, name := range names {
		load := func() (*recipe.Recipe, error) { return st.Recipe(name) }
		if _, err := os.Stat(filepath.Join(name, "recipe.yaml")); err == nil {
			load = func() (*recipe.Recipe, error) { return recipe.Load(os.DirFS(name), st.Recipes()...) }
		}
		r, err := load()
		if err != nil {
			return nil, err
		}
		recipes = append(recipes, r)
	}
	return recipes, nil
}

// build builds an image and shows its progress.
func build(ctx context.Context, env *base.Env, st *image.Store, r *recipe.Recipe, force bool) (spec.Image, error) {
	began := time.Now()
	show := base.NewProgress(env.Stderr, r.Ref())
	img, err := st.Build(ctx, r, image.BuildOptions{Force: force, Progress: show.Event})
	show.End()
	if err != nil {
		return img, err
	}
	fmt.Fprintf(env.Stderr, "%s: %s, %s\n", img.Ref(), base.Size(img.SizeBytes), time.Since(began).Round(100*time.Millisecond))
	return img, nil
}
