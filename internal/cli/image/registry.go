package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewRegistryCommand returns the command "modbox registry".
func NewRegistryCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "registry", Aliases: []string{"registries"},
		Short: "Sign in to the registries that images are pulled from",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(newRegistryAddCommand(env), newRegistryListCommand(env), newRegistryUpdateCommand(env), newRegistryRemoveCommand(env))
	return cmd
}

// registryFlags are the fields of a registry as flags.
type registryFlags struct {
	name, username, email, server string
	passwordStdin, verify         bool
}

func (f *registryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "", "name in the workspace")
	cmd.Flags().StringVarP(&f.username, "username", "u", "", "user name at the registry")
	cmd.Flags().StringVar(&f.email, "email", "", "e-mail address, stored and shown")
	cmd.Flags().BoolVar(&f.verify, "verify", false, "check the credentials with the registry first")
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input instead of asking for it")
}

// fields returns the fields of the given flags.
func (f *registryFlags) fields(cmd *cobra.Command) client.RegistryFields {
	out := client.RegistryFields{Verify: f.verify}
	for flag, to := range map[string]struct {
		value *string
		field **string
	}{"name": {&f.name, &out.Name}, "username": {&f.username, &out.Username}, "email": {&f.email, &out.Email}, "server": {&f.server, &out.Server}} {
		if cmd.Flags().Changed(flag) {
			*to.field = to.value
		}
	}
	return out
}

// passwordMax bounds the input on standard input.
const passwordMax = 4 << 10

// readPassword reads a password without showing it. A password is never an argument, because
// everybody on the machine can read arguments.
func readPassword(env *base.Env, fromStdin bool) (string, error) {
	if !fromStdin {
		f, ok := env.Stdin.(*os.File)
		if !ok || !term.IsTerminal(int(f.Fd())) {
			return "", &base.ExitError{Code: base.ExitUsage, Err: errors.New("there is no terminal to ask for the password; pipe it in and give --password-stdin")}
		}
		fmt.Fprint(env.Stderr, "Password: ")
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(env.Stderr)
		return string(text), err
	}
	text, err := io.ReadAll(io.LimitReader(env.Stdin, passwordMax))
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func newRegistryAddCommand(env *base.Env) *cobra.Command {
	var flags registryFlags
	var disabled bool
	cmd := &cobra.Command{
		Use:     "add SERVER --username USER",
		Short:   "Add a registry; images of its host are pulled with it from then on",
		Example: "  modbox registry add ghcr.io --username me --password-stdin < token.txt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			f := flags.fields(cmd)
			f.Server = &args[0]
			if f.Name == nil {
				f.Name = &args[0]
			}
			enabled := !disabled
			f.Enabled = &enabled
			password, err := readPassword(env, flags.passwordStdin)
			if err != nil {
				return err
			}
			f.Password = &password
			r, err := c.Registries.Create(cmd.Context(), f)
			if err != nil {
				return err
			}
			return printRegistry(env, r)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&disabled, "disabled", false, "not to be used yet")
	_ = cmd.MarkFlagRequired("username") // fails only for an unknown flag
	return cmd
}

func printRegistry(env *base.Env, r *client.Registry) error {
	if env.JSON {
		return env.PrintJSON(r)
	}
	_, err := fmt.Fprintln(env.Stdout, r.ID)
	return err
}

func newRegistryListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List registries, without their passwords",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Registries.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, r := range list {
				state := "enabled"
				if !r.Enabled {
					state = "disabled"
				}
				rows = append(rows, []string{r.ID, r.Name, r.Server, r.Username, state, base.Age(r.UpdatedAt) + " ago"})
			}
			return env.PrintTable([]string{"ID", "NAME", "SERVER", "USER", "STATE", "CHANGED"}, rows)
		},
	}
}

func newRegistryUpdateCommand(env *base.Env) *cobra.Command {
	var flags registryFlags
	var enable, disable, password bool
	cmd := &cobra.Command{
		Use:     "update REGISTRY",
		Short:   "Change a registry; other settings stay",
		Example: "  modbox registry update ghcr.io --password",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			f := flags.fields(cmd)
			if enable || disable {
				f.Enabled = &enable
			}
			if password || flags.passwordStdin {
				text, err := readPassword(env, flags.passwordStdin)
				if err != nil {
					return err
				}
				f.Password = &text
			}
			id, err := registryID(cmd, c, args[0])
			if err != nil {
				return err
			}
			r, err := c.Registries.Update(cmd.Context(), id, f)
			if err != nil {
				return err
			}
			return printRegistry(env, r)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.server, "server", "", "the registry")
	cmd.Flags().BoolVar(&password, "password", false, "ask for a new password")
	cmd.Flags().BoolVar(&enable, "enable", false, "use it")
	cmd.Flags().BoolVar(&disable, "disable", false, "do not use it")
	cmd.MarkFlagsMutuallyExclusive("enable", "disable")
	return cmd
}

func newRegistryRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "rm REGISTRY...",
		Short: "Remove registries; images that need them cannot be pulled any more",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, refs []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, ref := range refs {
				id, err := registryID(cmd, c, ref)
				if err == nil {
					err = c.Registries.Delete(cmd.Context(), id)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", ref, err)
				}
			}
			return nil
		},
	}
}

// registryID returns the id of the registry with that id or name.
func registryID(cmd *cobra.Command, c *client.Client, ref string) (string, error) {
	list, err := c.Registries.List().Collect(cmd.Context())
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.Name == ref || r.ID == ref {
			return r.ID, nil
		}
	}
	return "", &client.Error{Code: client.NotFound, Message: "there is no such registry"}
}
