package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke API tokens"}
	cmd.AddCommand(a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return cmd
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "create [DESCRIPTION]",
		Short: "Make a token and print it; it cannot be shown again",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			description := ""
			if len(args) > 0 {
				description = args[0]
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			t, err := c.CreateToken(cmd.Context(), description, lifetime)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(t)
			}
			_, err = fmt.Fprintln(a.stdout, t.Secret)
			return err
		},
	}
	cmd.Flags().DurationVar(&lifetime, "expires-in", 0, "how long it works (default: for ever)")
	return cmd
}

func (a *app) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			tokens, err := c.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(tokens)
			}
			var rows [][]string
			for _, t := range tokens {
				used := "never"
				if t.LastUsedAt != nil {
					used = age(*t.LastUsedAt) + " ago"
				}
				rows = append(rows, []string{t.ID, t.Description, age(t.CreatedAt), used, until(t.ExpiresAt)})
			}
			return a.printTable([]string{"ID", "DESCRIPTION", "AGE", "USED", "EXPIRES IN"}, rows)
		},
	}
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke ID...",
		Short:             "Make tokens useless",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeTokens,
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := c.RevokeToken(cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}

// completeTokens offers the ids of tokens, with what they are for.
func (a *app) completeTokens(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
		tokens, err := c.Tokens(cmd.Context())
		for _, t := range tokens {
			list = append(list, cobra.CompletionWithDesc(t.ID, clean(t.Description)))
		}
		return list, err
	})
}
