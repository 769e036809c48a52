package sandbox

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// changeLetters are the letters of docker diff.
var changeLetters = map[string]string{"added": "A", "changed": "C", "removed": "D"}

// NewDiffCommand returns the command "modbox diff".
func NewDiffCommand(env *base.Env) *cobra.Command {
	var original bool
	cmd := &cobra.Command{
		Use: "diff SANDBOX [PATH]", Short: "List the files that differ from the image",
		Long: `List the files that a sandbox has added (A), changed (C) and removed (D) since it
was made from its image or snapshot: all, or those at PATH and below. A directory
is only listed when it is new, or has another mode or owner. /tmp is not compared.
For each part of the list, of at most 1000 changes, a running sandbox stands still for
some milliseconds, and about a second per gigabyte that it has written.`,
		Example: `  modbox diff my-sandbox
  modbox diff my-sandbox /etc/hosts --original | diff - <(modbox exec my-sandbox cat /etc/hosts)`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			path := ""
			if len(args) == 2 {
				path = args[1]
			}
			if original {
				return printOriginal(env, cmd, c, args[0], path)
			}
			list := c.Sandboxes.Files.Diff(args[0], path)
			list.PageSize = 1000
			changes, err := list.Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(changes)
			}
			for _, ch := range changes {
				name := fmt.Sprintf("%q", ch.Path) // programs in the sandbox chose the names
				if _, err := fmt.Fprintln(env.Stdout, changeLetters[ch.Change], name[1:len(name)-1]); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&original, "original", false, "print the file at PATH as it is in the image")
	return cmd
}

func printOriginal(env *base.Env, cmd *cobra.Command, c *client.Client, ref, path string) error {
	if path == "" {
		return base.UsageError("--original needs the PATH of a file")
	}
	body, err := c.Sandboxes.Files.Original(cmd.Context(), ref, path)
	if err != nil {
		return err
	}
	_, err = io.Copy(env.Stdout, body)
	return errors.Join(err, body.Close())
}
