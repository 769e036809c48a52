package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewWatchCommand returns the command "modbox watch".
func NewWatchCommand(env *base.Env) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "watch SANDBOX [PATH]",
		Short: "Show what happens to files of a sandbox",
		Long: `Show what happens in a directory of a sandbox, or to a file, as it happens and
until the directory is gone; without PATH in the working directory. "watching"
on standard error says that from now on everything is shown. A rename is two
lines, moved_from and moved_to. "overflow" says that something was missed,
"limit" that there are too many directories to watch all. With --json one object
per line.`,
		Example: `  modbox watch -r my-agent /workspace
  modbox watch my-agent /var/log/app.log`,
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
			err = watch(cmd.Context(), env, c, args[0], path, recursive)
			if cmd.Context().Err() != nil {
				return &base.ExitError{Code: base.ExitInterrupt}
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "watch all directories below as well, including new directories")
	return cmd
}

func watch(ctx context.Context, env *base.Env, c *client.Client, ref, path string, recursive bool) error {
	w, err := c.Sandboxes.Files.Watch(ctx, ref, path, recursive)
	if err != nil {
		return err
	}
	defer w.Close()
	fmt.Fprintf(env.Stderr, "watching %s\n", base.Clean(path))
	for {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := printFileEvent(env, e); err != nil {
			return err
		}
	}
}

func printFileEvent(env *base.Env, e client.FileEvent) error {
	if env.JSON {
		return json.NewEncoder(env.Stdout).Encode(e)
	}
	slash := ""
	if e.Directory && e.Path != "/" {
		slash = "/"
	}
	_, err := fmt.Fprintf(env.Stdout, "%-10s  %s%s\n", e.Type, base.Clean(e.Path), slash)
	return err
}
