package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

func (a *app) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "images",
		Aliases: []string{"image"},
		Short:   "List, pull, build and remove images",
		Args:    cobra.NoArgs,
	}
	list := a.imagesListCommand()
	cmd.RunE = list.RunE // "modbox images" lists
	cmd.AddCommand(list, a.imagesPullCommand(), a.imagesBuildCommand(), a.imagesRemoveCommand(), a.imagesPruneCommand(), a.imagesPushCommand(), a.imagesExportCommand(), a.imagesImportCommand())
	return cmd
}

func (a *app) imagesListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the images that sandboxes can be made from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Images(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]string
			for _, i := range list {
				name, made := i.Ref, "not built"
				if i.IsDefault {
					name += " (default)"
				}
				if i.Digest != "" {
					made = age(i.UpdatedAt) + " ago"
				}
				rows = append(rows, []string{name, made, size(i.SizeBytes), i.Memory, i.Description})
			}
			return a.printTable([]string{"IMAGE", "MADE", "SIZE", "MEMORY", "DESCRIPTION"}, rows)
		},
	}
}

func (a *app) imagesBuildCommand() *cobra.Command {
	var force bool
	var local localFlags
	cmd := &cobra.Command{
		Use:   "build [IMAGE...]",
		Short: "Build images on this machine; base and code-exec by default",
		Long: `Build images into the state directory of the server on this machine, which need
not run. IMAGE is a built-in image such as code-exec or node:lts, or a directory
with a recipe (docs/images.md). What is built already is left as it is. The
runtimes (modbox runtimes) are also built by themselves when they are first used;
ubuntu is pulled instead.`,
		RunE: func(cmd *cobra.Command, names []string) error {
			_, st, err := local.images(a)
			if err != nil {
				return err
			}
			recipes, err := chooseRecipes(st, names)
			if err != nil {
				return err
			}
			built := []sandbox.Image{}
			for _, r := range recipes {
				img, err := a.build(cmd.Context(), st, r, force)
				if err != nil {
					return err
				}
				built = append(built, img)
			}
			if a.json {
				return a.printJSON(built)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "build anew, to get newer packages")
	local.add(cmd)
	return cmd
}

// localFlags are the flags of commands that work on this machine's server directories.
type localFlags struct {
	file  string
	flags *config.Flags
}

func (l *localFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.file, "config", "", "the server's YAML file with settings")
	l.flags = config.AddFlags(cmd.Flags(), "state_dir", "run_dir")
}

func (l *localFlags) load(a *app) (config.Config, error) {
	cfg, err := config.Load(config.Source{File: l.file, Environ: a.environ, Flags: l.flags})
	if err != nil {
		return cfg, &exitCodeError{exitUsage, err}
	}
	return cfg, nil
}

// chooseRecipes returns the recipes of the names, or of all built-in images but
// those that are built when they are first used.
func chooseRecipes(st *image.Store, names []string) ([]*image.Recipe, error) {
	if len(names) == 0 {
		for _, r := range st.Recipes() {
			if !r.OnDemand() {
				names = append(names, r.Ref())
			}
		}
	}
	var recipes []*image.Recipe
	for _, name := range names {
		load := func() (*image.Recipe, error) { return st.Recipe(name) }
		if _, err := os.Stat(filepath.Join(name, "recipe.yaml")); err == nil {
			load = func() (*image.Recipe, error) { return image.LoadRecipe(os.DirFS(name), st.Recipes()...) }
		}
		r, err := load()
		if err != nil {
			return nil, err
		}
		recipes = append(recipes, r)
	}
	return recipes, nil
}

// build builds one image and shows how it goes.
func (a *app) build(ctx context.Context, st *image.Store, r *image.Recipe, force bool) (sandbox.Image, error) {
	began := time.Now()
	show := newProgress(a, r.Ref())
	img, err := st.Build(ctx, r, image.BuildOptions{Force: force, Progress: show.event})
	show.end()
	if err != nil {
		return img, err
	}
	fmt.Fprintf(a.stderr, "%s: %s, %s\n", img.Ref(), size(img.SizeBytes), time.Since(began).Round(100*time.Millisecond))
	return img, nil
}
