package account

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewSessionCommand returns the command "modbox session".
func NewSessionCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "List and end your logins",
		Long: `List and end your logins: each is a session at the server, on whichever machine or
in whichever browser you have signed in.`,
	}
	cmd.AddCommand(newSessionListCommand(env), newSessionRemoveCommand(env))
	return cmd
}

func newSessionListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List your logins",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			sessions, err := c.Account.Sessions().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(sessions)
			}
			var rows [][]string
			for _, s := range sessions {
				current := ""
				if s.Current {
					current = "yes"
				}
				rows = append(rows, []string{s.ID, s.Method, s.Address, current, base.Age(s.CreatedAt), base.Age(s.RefreshedAt) + " ago", base.Until(&s.ExpiresAt)})
			}
			return env.PrintTable([]string{"ID", "METHOD", "ADDRESS", "CURRENT", "AGE", "USED", "EXPIRES IN"}, rows)
		},
	}
}

func newSessionRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "rm ID...",
		Short:             "Delete logins; \"modbox logout --all\" deletes all",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSessions(env),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				if err := c.Account.DeleteSession(cmd.Context(), id); err != nil {
					return fmt.Errorf("%s: %w", id, err)
				}
			}
			return nil
		},
	}
}

// completeSessions completes ids of sessions, with their addresses.
func completeSessions(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			sessions, err := c.Account.Sessions().Collect(cmd.Context())
			for _, s := range sessions {
				list = append(list, cobra.CompletionWithDesc(s.ID, base.Clean(s.Method+" from "+s.Address)))
			}
			return list, err
		})
	}
}
