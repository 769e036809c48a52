package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

func (a *app) workspaceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "workspace", Short: "Make workspaces, and say who works in them"}
	cmd.AddCommand(a.workspaceCreateCommand(), a.workspaceListCommand(), a.workspaceRemoveCommand(),
		a.memberListCommand(), a.memberAddCommand(), a.memberRoleCommand(), a.memberRemoveCommand())
	return cmd
}

func (a *app) workspaceCreateCommand() *cobra.Command {
	var o client.WorkspaceOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a workspace and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			o.Name = args[0]
			ws, err := c.CreateWorkspace(cmd.Context(), o)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(ws)
			}
			_, err = fmt.Fprintln(a.stdout, ws.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Slug, "slug", "", "what references name it by (default: made of the name)")
	cmd.Flags().StringVar(&o.Description, "description", "", "what it is for")
	return cmd
}

func (a *app) workspaceListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the workspaces you are in",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			list, err := c.Workspaces(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]string
			for _, ws := range list {
				rows = append(rows, []string{ws.ID, ws.Name, ws.Slug, ws.Role, age(ws.CreatedAt)})
			}
			return a.printTable([]string{"ID", "NAME", "SLUG", "ROLE", "AGE"}, rows)
		},
	}
}

func (a *app) workspaceRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID",
		Short: "Delete a workspace with all its sandboxes and snapshots",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.DeleteWorkspace(cmd.Context(), args[0])
		},
	}
}

func (a *app) memberListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members ID",
		Short: "List the members of a workspace",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ws, err := c.Workspace(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(ws.Members)
			}
			var rows [][]string
			for _, m := range ws.Members {
				rows = append(rows, []string{m.UserID, m.Name, m.Email, m.Role})
			}
			return a.printTable([]string{"USER", "NAME", "EMAIL", "ROLE"}, rows)
		},
	}
}

func (a *app) memberAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add ID NAME|EMAIL ROLE",
		Short: "Add a member, or invite an address and print the code",
		Long: `Add the user with that name or e-mail address as owner, admin, member or viewer.

An address that is nobody's is invited: the code that is printed is for whoever
reads mail there, to be used with "modbox login --code CODE NAME" within a week.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			added, err := c.AddMember(cmd.Context(), args[0], args[1], args[2])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(added)
			}
			if added.Invitation != nil {
				_, err = fmt.Fprintln(a.stdout, added.Invitation.Code)
			}
			return err
		},
	}
}

// memberID returns the id of the member that is called who; else who itself.
func memberID(ws *client.WorkspaceDetail, who string) string {
	for _, m := range ws.Members {
		if strings.EqualFold(m.Name, who) || m.Email != "" && strings.EqualFold(m.Email, who) {
			return m.UserID
		}
	}
	return who
}

func (a *app) memberRoleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "role ID USER ROLE",
		Short: "Change what a member may do",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ws, err := c.Workspace(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = c.SetRole(cmd.Context(), args[0], memberID(ws, args[1]), args[2])
			return err
		},
	}
}

func (a *app) memberRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID USER",
		Short: "Remove a member, or leave",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			ws, err := c.Workspace(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.RemoveMember(cmd.Context(), args[0], memberID(ws, args[1]))
		},
	}
}
