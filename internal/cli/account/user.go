package account

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewUserCommand returns the command "modbox user".
func NewUserCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "Make, list and disable the users of a server, for administrators"}
	set := func(use, short string, change client.UserChange) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				c, err := env.Client()
				if err != nil {
					return err
				}
				_, err = c.Users.Update(cmd.Context(), args[0], change)
				return err
			},
		}
	}
	yes, no := true, false
	cmd.AddCommand(newUserCreateCommand(env), newUserListCommand(env), newUserRemoveCommand(env), newUserResetCommand(env), newUserPasswordCommand(env),
		set("disable USER", "Keep a user out, and stop its tokens", client.UserChange{Disabled: &yes}),
		set("enable USER", "Let a disabled user in again", client.UserChange{Disabled: &no}),
		set("promote USER", "Make a user an administrator", client.UserChange{Administrator: &yes}),
		set("demote USER", "Make an administrator a plain user", client.UserChange{Administrator: &no}))
	return cmd
}

func newUserCreateCommand(env *base.Env) *cobra.Command {
	var o client.UserOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a user and print the code by which it chooses its password",
		Long: `Make a user and print the code by which it chooses its password, with
"modbox login --code CODE", within a week.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			o.Name = args[0]
			u, err := c.Users.Create(cmd.Context(), o)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(u)
			}
			_, err = fmt.Fprintln(env.Stdout, u.Code)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Email, "email", "", "its e-mail address, by which it may sign in as well")
	cmd.Flags().BoolVar(&o.Administrator, "administrator", false, "let it look after the installation")
	return cmd
}

func newUserListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List users",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			users, err := c.Users.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(users)
			}
			var rows [][]string
			for _, u := range users {
				state := "enabled"
				if u.DisabledAt != nil {
					state = "disabled"
				}
				kind := "user"
				if u.Administrator {
					kind = "administrator"
				}
				rows = append(rows, []string{u.ID, u.Name, u.Email, kind, state, base.Age(u.CreatedAt)})
			}
			return env.PrintTable([]string{"ID", "NAME", "EMAIL", "KIND", "STATE", "AGE"}, rows)
		},
	}
}

func newUserRemoveCommand(env *base.Env) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm USER",
		Short: "Delete a user, and the workspaces it alone is in",
		Long:  "Delete a user, and the workspaces it alone is in. At a terminal it asks first.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			if !env.Agreed(yes, fmt.Sprintf("Delete the user %s, and the workspaces it alone is in?", base.Clean(args[0]))) {
				return errors.New("nothing was deleted")
			}
			return c.Users.Delete(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func newUserResetCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "reset USER",
		Short: "Print a code by which a user chooses a new password",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			code, err := c.Users.ResetPassword(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.Stdout, code)
			return err
		},
	}
}

func newUserPasswordCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "password",
		Short: "Change your own password",
		Long: `Change your own password. It ends all your logins but this one; API tokens stay.

Without a terminal the old and the new password are read from standard input, a
line each; the old one is empty when there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			current, err := env.AskPassword("Current password (empty if there is none): ")
			if err != nil {
				return err
			}
			password, err := env.AskPassword("New password: ")
			if err != nil {
				return err
			}
			return c.Account.SetPassword(cmd.Context(), current, password)
		},
	}
}
