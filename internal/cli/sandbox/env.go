package sandbox

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
)

// NewEnvCommand returns the command "modbox env".
func NewEnvCommand(env *base.Env) *cobra.Command {
	var unset []string
	cmd := &cobra.Command{
		Use:   "env SANDBOX [NAME=VALUE...]",
		Short: "Show and change the environment of future commands",
		Long: `Set and delete environment variables of a sandbox for the commands that start
afterwards, and print all that were set; NAME alone takes your value. Running
processes keep their environment. A paused sandbox is resumed.`,
		Example:           "  modbox env my-agent API_URL=https://example.com --unset DEBUG",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := base.Pairs(args[1:], env.Getenv)
			if err != nil {
				return base.UsageError("%w", err)
			}
			changes := map[string]*string{}
			for name, value := range set {
				changes[name] = &value
			}
			for _, name := range unset {
				if _, both := set[name]; both {
					return base.UsageError("%s is to be set and unset", name)
				}
				changes[name] = nil
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			variables, err := c.Sandboxes.UpdateEnv(cmd.Context(), args[0], changes)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(variables)
			}
			for _, name := range slices.Sorted(maps.Keys(variables)) {
				if _, err := fmt.Fprintln(env.Stdout, base.Clean(name+"="+variables[name])); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "delete this variable (repeatable)")
	return cmd
}
