package account

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
)

func newInvitationListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "invitations WORKSPACE",
		Short: "List the open invitations to a workspace",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			id, err := workspaceID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			list, err := c.Workspaces.Invitations(id).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, i := range list {
				rows = append(rows, []string{i.ID, i.Email, i.Role, base.Age(i.CreatedAt), i.ExpiresAt.Local().Format("2006-01-02 15:04")})
			}
			return env.PrintTable([]string{"ID", "EMAIL", "ROLE", "AGE", "EXPIRES"}, rows)
		},
	}
}

func newInvitationRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "rm-invitation WORKSPACE INVITATION|EMAIL",
		Short: "Delete an invitation, so that its code stops working",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			id, err := workspaceID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			list, err := c.Workspaces.Invitations(id).Collect(cmd.Context())
			if err != nil {
				return err
			}
			invitation := args[1] // the server refuses an unknown invitation
			for _, i := range list {
				if strings.EqualFold(i.Email, args[1]) {
					invitation = i.ID
				}
			}
			return c.Workspaces.DeleteInvitation(cmd.Context(), id, invitation)
		},
	}
}
