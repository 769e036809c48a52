package base

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

// completeTime is the time for which the shell waits for names.
const completeTime = 2 * time.Second

// Complete asks the server for names; without an answer it offers none.
func (env *Env) Complete(cmd *cobra.Command, ask func(*client.Client) ([]cobra.Completion, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, err := env.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
	defer cancel()
	cmd.SetContext(ctx)
	list, err := ask(c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// CompleteSandboxes completes names of live sandboxes that are not arguments yet, for the first n
// arguments, or for all when n is 0.
func (env *Env) CompleteSandboxes(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			page, err := c.Sandboxes.List(client.ListOptions{}).Page(cmd.Context(), client.PageOptions{})
			if err != nil {
				return nil, err
			}
			for _, sb := range page.Items {
				if !slices.Contains(args, sb.Name) {
					list = append(list, cobra.CompletionWithDesc(sb.Name, string(sb.State)+" "+sb.Image))
				}
			}
			return list, nil
		})
	}
}

// CompleteImages completes images for the first argument.
func (env *Env) CompleteImages(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
		images, err := c.Images.List().Collect(cmd.Context())
		for _, i := range images {
			list = append(list, cobra.CompletionWithDesc(i.Name, i.Description))
		}
		return list, err
	})
}
