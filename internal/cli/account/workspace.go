package account

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewWorkspaceCommand returns the command "modbox workspace".
func NewWorkspaceCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workspace", Short: "Make workspaces, and say who works in them",
		Long: "Make workspaces, and say who works in them.\n\nWORKSPACE is an id, a slug, or a name that only one of your workspaces has.",
	}
	cmd.AddCommand(newWorkspaceCreateCommand(env), newWorkspaceListCommand(env), newWorkspaceUpdateCommand(env), newWorkspaceRemoveCommand(env),
		newMemberListCommand(env), newMemberAddCommand(env), newMemberRoleCommand(env), newMemberRemoveCommand(env),
		newInvitationListCommand(env), newInvitationRemoveCommand(env), newQuotaCommand(env))
	return cmd
}

func newWorkspaceCreateCommand(env *base.Env) *cobra.Command {
	var o client.WorkspaceOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a workspace and print its id",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			o.Name = args[0]
			ws, err := c.Workspaces.Create(cmd.Context(), o)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(ws)
			}
			_, err = fmt.Fprintln(env.Stdout, ws.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Slug, "slug", "", "name in references (default: derived from the name)")
	cmd.Flags().StringVar(&o.Description, "description", "", "description")
	return cmd
}

func newWorkspaceListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the workspaces you are in",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Workspaces.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, ws := range list {
				rows = append(rows, []string{ws.ID, ws.Name, ws.Slug, ws.Role, base.Age(ws.CreatedAt)})
			}
			return env.PrintTable([]string{"ID", "NAME", "SLUG", "ROLE", "AGE"}, rows)
		},
	}
}

func newWorkspaceUpdateCommand(env *base.Env) *cobra.Command {
	var o client.WorkspaceOptions
	var rules []string
	var output bool
	cmd := &cobra.Command{
		Use:   "update WORKSPACE",
		Short: "Change a workspace's name, slug, description or policies",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("code-scan-rule") {
				o.CodeScanRules = &rules // empty for all
			}
			if cmd.Flags().Changed("audit-output") {
				o.AuditOutput = &output
			}
			if o == (client.WorkspaceOptions{}) {
				return base.UsageError("say what to change: --name, --slug, --description, --url-access, --code-scan, --code-scan-rule or --audit-output")
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			id, err := workspaceID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			ws, err := c.Workspaces.Update(cmd.Context(), id, o)
			if err != nil || !env.JSON {
				return err
			}
			return env.PrintJSON(ws)
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "display name")
	cmd.Flags().StringVar(&o.Slug, "slug", "", "name in references; the present slug stops working")
	cmd.Flags().StringVar(&o.Description, "description", "", "description")
	cmd.Flags().StringVar((*string)(&o.CodeScan), "code-scan", "", "scan code before it runs: off, warn, or block (code with findings does not run)")
	cmd.Flags().StringSliceVar(&rules, "code-scan-rule", nil, `rule that counts for --code-scan, again for each; "" for all`)
	cmd.Flags().BoolVar(&output, "audit-output", false, "record the beginning of the output of commands and code in the audit log; --audit-output=false ends that")
	cmd.Flags().StringVar((*string)(&o.URLAccess), "url-access", "", "least credential for the management routes on the URLs of its sandboxes: open or key")
	return cmd
}

func newWorkspaceRemoveCommand(env *base.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm WORKSPACE",
		Short: "Delete a workspace with all its sandboxes and snapshots",
		Long:  "Delete a workspace with all its sandboxes and snapshots. At a terminal it asks first.",
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
			if !env.Agreed(yes, fmt.Sprintf("Delete the workspace %s with all its sandboxes and snapshots?", base.Clean(args[0]))) {
				return errors.New("nothing was deleted")
			}
			return c.Workspaces.Delete(cmd.Context(), id)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func newMemberListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "members WORKSPACE",
		Short: "List the members of a workspace",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			ws, err := workspaceDetail(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(ws.Members)
			}
			var rows [][]string
			for _, m := range ws.Members {
				rows = append(rows, []string{m.UserID, m.Name, m.Email, m.Role})
			}
			return env.PrintTable([]string{"USER", "NAME", "EMAIL", "ROLE"}, rows)
		},
	}
}

func newMemberAddCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "add WORKSPACE NAME|EMAIL ROLE",
		Short: "Add a member, or invite an address and print the code",
		Long: `Add the user with that name or e-mail address as owner, admin, member or viewer.

If no user has the address, it is invited: send the printed code to its owner, for
"modbox login --code CODE NAME" within a week.`,
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			id, err := workspaceID(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			added, err := c.Workspaces.AddMember(cmd.Context(), id, args[1], args[2])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(added)
			}
			if added.Invitation != nil {
				_, err = fmt.Fprintln(env.Stdout, added.Invitation.Code)
			}
			return err
		},
	}
}

// workspaceID returns the id of the caller's workspace with that id, slug or name; the server
// refuses an unknown name. An ambiguous name is an error.
func workspaceID(ctx context.Context, c *client.Client, called string) (string, error) {
	list, err := c.Workspaces.List().Collect(ctx)
	if err != nil {
		return called, nil // a token that must not list workspaces may act in its own
	}
	var named []string
	for _, ws := range list {
		if ws.ID == called || ws.Slug == called {
			return ws.ID, nil
		}
		if strings.EqualFold(ws.Name, called) {
			named = append(named, ws.ID)
		}
	}
	switch len(named) {
	case 0:
		return called, nil
	case 1:
		return named[0], nil
	}
	return "", fmt.Errorf("%d of your workspaces are called %q; say which by its slug or id", len(named), called)
}

// workspaceDetail returns the caller's workspace with that id, slug or name.
func workspaceDetail(ctx context.Context, c *client.Client, called string) (*client.WorkspaceDetail, error) {
	id, err := workspaceID(ctx, c, called)
	if err != nil {
		return nil, err
	}
	return c.Workspaces.Get(ctx, id)
}

// memberID returns the id of the member with the name or address who, or who itself.
func memberID(ws *client.WorkspaceDetail, who string) string {
	for _, m := range ws.Members {
		if strings.EqualFold(m.Name, who) || m.Email != "" && strings.EqualFold(m.Email, who) {
			return m.UserID
		}
	}
	return who
}

func newMemberRoleCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "role WORKSPACE USER ROLE",
		Short: "Change what a member may do",
		Args:  cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			ws, err := workspaceDetail(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			_, err = c.Workspaces.SetRole(cmd.Context(), ws.ID, memberID(ws, args[1]), args[2])
			return err
		},
	}
}

func newMemberRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "rm-member WORKSPACE USER",
		Short: "Delete a membership: remove a member, or leave",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			ws, err := workspaceDetail(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return c.Workspaces.DeleteMember(cmd.Context(), ws.ID, memberID(ws, args[1]))
		},
	}
}
