package sandbox

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// removeConcurrency bounds the sandboxes that rm ends at the same time.
const removeConcurrency = 8

// NewRemoveCommand returns the command "modbox rm".
func NewRemoveCommand(env *base.Env) *cobra.Command {
	var all, yes bool
	cmd := &cobra.Command{
		Use:               "rm SANDBOX...",
		Short:             "Delete sandboxes",
		Long:              "Delete sandboxes, even while they are busy, and wait for the end of the cleanup.",
		ValidArgsFunction: env.CompleteSandboxes(0),
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return errors.New("name sandboxes, or give --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			if all {
				for sb, err := range c.Sandboxes.List(client.ListOptions{}).All(cmd.Context()) {
					if err != nil {
						return err
					}
					refs = append(refs, sb.ID)
				}
				if len(refs) > 0 && !yes && !env.Confirm(fmt.Sprintf("Delete all sandboxes of the workspace (%d)?", len(refs))) {
					return errors.New("nothing was deleted; --yes deletes without asking")
				}
			}
			return remove(env, cmd, c, refs)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that live in the workspace")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// remove ends all the sandboxes and reports each; a failure does not stop the others.
func remove(env *base.Env, cmd *cobra.Command, c *client.Client, refs []string) error {
	removed := make([]*client.Sandbox, len(refs))
	failed := make([]error, len(refs))
	var g errgroup.Group
	g.SetLimit(removeConcurrency)
	for i, ref := range refs {
		g.Go(func() error {
			if removed[i], failed[i] = c.Sandboxes.Delete(cmd.Context(), ref); failed[i] != nil {
				failed[i] = fmt.Errorf("%s: %w", ref, failed[i])
			}
			return nil
		})
	}
	_ = g.Wait() // its functions return no errors
	list := []*client.Sandbox{}
	for _, sb := range removed {
		if sb != nil {
			list = append(list, sb)
		}
	}
	if env.JSON {
		return errors.Join(append(failed, env.PrintJSON(list))...)
	}
	for _, sb := range list {
		fmt.Fprintln(env.Stdout, base.Clean(sb.Name))
	}
	return errors.Join(failed...)
}
