package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"
)

func (a *app) envCommand() *cobra.Command {
	var unset []string
	cmd := &cobra.Command{
		Use:   "env SANDBOX [NAME=VALUE...]",
		Short: "Show and change the environment of commands to come",
		Long: `Set and delete environment variables of a sandbox for the commands that start
afterwards, and print all that were set; NAME alone takes your value. What runs
already keeps what it has. A paused sandbox is resumed.`,
		Example:           "  modbox env my-agent API_URL=https://example.com --unset DEBUG",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := pairs(args[1:], a.getenv)
			if err != nil {
				return usageError("%w", err)
			}
			changes := map[string]*string{}
			for name, value := range set {
				changes[name] = &value
			}
			for _, name := range unset {
				if _, both := set[name]; both {
					return usageError("%s is to be set and unset", name)
				}
				changes[name] = nil
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			env, err := c.UpdateEnv(cmd.Context(), args[0], changes)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(env)
			}
			for _, name := range slices.Sorted(maps.Keys(env)) {
				if _, err := fmt.Fprintln(a.stdout, clean(name+"="+env[name])); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "delete this variable (repeatable)")
	return cmd
}
