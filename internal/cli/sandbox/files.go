package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewFilesCommand returns the command "modbox files".
func NewFilesCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "files", Short: "List, make, move and remove files of a sandbox",
		Long: `List, make, move and remove files of a sandbox, as root and without running
anything in it. Paths that are not absolute begin at the image's working
directory. "modbox cp" copies files in and out, "modbox watch" follows them.`,
	}
	cmd.AddCommand(newFileListCommand(env), newFileStatCommand(env), newFileMkdirCommand(env), newFileMoveCommand(env), newFileRemoveCommand(env))
	return cmd
}

func newFileListCommand(env *base.Env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:               "ls SANDBOX [PATH]",
		Short:             "List a directory",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			path := "."
			if len(args) == 2 {
				path = args[1]
			}
			list, more, err := base.First(cmd.Context(), c.Sandboxes.Files.List(args[0], path), limit)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			if err := printFiles(env, list); err != nil || !more {
				return err
			}
			_, err = fmt.Fprintln(env.Stderr, "There is more.")
			return err
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "entries to show at most (default: all)")
	return cmd
}

func newFileStatCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "stat SANDBOX PATH",
		Short:             "Show what a path is; a symbolic link itself",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			info, err := c.Sandboxes.Files.Stat(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(info)
			}
			if err := printFiles(env, []client.FileInfo{*info}); err != nil || len(info.Metadata) == 0 {
				return err
			}
			var rows [][]string
			for _, key := range slices.Sorted(maps.Keys(info.Metadata)) {
				rows = append(rows, []string{key, info.Metadata[key]})
			}
			return env.PrintTable([]string{"METADATA", "VALUE"}, rows)
		},
	}
}

// printFiles prints files as a table.
func printFiles(env *base.Env, files []client.FileInfo) error {
	var rows [][]string
	for _, f := range files {
		name := f.Name
		if f.Target != "" {
			name += " -> " + f.Target
		}
		owner := fmt.Sprintf("%d:%d", f.UID, f.GID)
		rows = append(rows, []string{strings.TrimSpace(f.Type + " " + f.Mode), owner, base.Size(f.SizeBytes), base.Age(f.ModTime), name})
	}
	return env.PrintTable([]string{"MODE", "OWNER", "SIZE", "AGE", "NAME"}, rows)
}

func newFileMkdirCommand(env *base.Env) *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:               "mkdir SANDBOX PATH",
		Short:             "Make a directory",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			_, err = c.Sandboxes.Files.Mkdir(cmd.Context(), args[0], args[1], parents)
			return err
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "create parent directories as well; an existing directory is no error")
	return cmd
}

func newFileMoveCommand(env *base.Env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:               "mv SANDBOX FROM TO",
		Short:             "Rename a path",
		Args:              cobra.ExactArgs(3),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			_, err = c.Sandboxes.Files.Move(cmd.Context(), args[0], args[1], args[2], force)
			return err
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "replace an existing TO")
	return cmd
}

func newFileRemoveCommand(env *base.Env) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:               "rm SANDBOX PATH...",
		Short:             "Remove files and directories",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, path := range args[1:] {
				if err := c.Sandboxes.Files.Delete(cmd.Context(), args[0], path, recursive); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "with all that is in directories")
	return cmd
}
