package account

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// loginOptions select how to sign in; with the zero value the command asks.
type loginOptions struct {
	name, code string
	provider   string
	noBrowser  bool
}

// NewLoginCommand returns the command "modbox login".
func NewLoginCommand(env *base.Env) *cobra.Command {
	var o loginOptions
	cmd := &cobra.Command{
		Use:   "login [SERVER | NAME]",
		Short: "Sign in to a server, for the commands that follow",
		Long: `Sign in to a server, for the commands that follow.

SERVER is a URL; without one it is the server of --url. Commands without --url
and MODBOX_URL go to the server that was signed in to last.

With --provider the sign-in goes through another service, in a browser on this
machine. With --no-browser, or without a browser, it prints a URL to be opened
anywhere and asks for the code that is shown there. Otherwise it asks for name
and password, and on a terminal whether one of the server's services is wanted.
With --code an invitation is accepted, or a new password chosen; NAME is then
what a new user signs in as. A password that does not come from a terminal is
read from standard input.

The login is valid for 90 days, and ends after 30 days without use. Its file is
credentials.json in the user's configuration directory; "modbox session" shows it
beside the user's other logins. MODBOX_API_TOKEN and --token go before it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if arg := strings.Join(args, ""); strings.Contains(arg, "://") {
				if env.URL != "" && env.URL != arg {
					return base.UsageError("%s and --url %s are two servers", arg, env.URL)
				}
				env.URL = arg
			} else {
				o.name = arg
			}
			if o.provider != "" && (o.name != "" || o.code != "") {
				return base.UsageError("--provider signs in whom the service says; it goes with neither NAME nor --code")
			}
			return signIn(cmd.Context(), env, o)
		},
	}
	cmd.Flags().StringVar(&o.code, "code", "", "the code of an invitation, or of a password to be chosen")
	cmd.Flags().StringVar(&o.provider, "provider", "", "the service to sign in with, e.g. github")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "print the URL instead of opening a browser")
	return cmd
}

// signIn signs in, stores the login, and ends the previous login.
func signIn(ctx context.Context, env *base.Env, o loginOptions) error {
	anonymous, err := env.ClientFor(base.Login{})
	if err != nil {
		return err
	}
	if o.provider == "" && o.name == "" && o.code == "" {
		if o.provider, err = askProvider(ctx, env, anonymous); err != nil {
			return err
		}
	} else if o.provider != "" {
		if err := knownProvider(ctx, anonymous, o.provider); err != nil {
			return err
		}
	}
	var l base.Login
	if o.provider != "" {
		l, err = loginThrough(ctx, env, anonymous, o)
	} else {
		l, err = loginByPassword(ctx, env, anonymous, o)
	}
	if err != nil {
		return err
	}
	before := env.StoredLogin()
	if err := env.StoreLogin(ctx, l); err != nil {
		return err
	}
	if err := endLogin(ctx, env, before); err != nil {
		fmt.Fprintf(env.Stderr, "The login before works on: %s\n", base.Clean(err.Error()))
	}
	fmt.Fprintln(env.Stderr, "Signed in to "+env.ServerURL()+".")
	return nil
}

func knownProvider(ctx context.Context, anonymous *client.Client, name string) error {
	there, err := anonymous.Account.Providers().Collect(ctx)
	if err == nil && !slices.Contains(there, name) {
		return base.UsageError("--provider: the server has no %q; it has: %s", name, cmp.Or(strings.Join(there, ", "), "none"))
	}
	return err
}

// askProvider asks the user on a terminal for a service to sign in with, if there are any; "" is a
// password.
func askProvider(ctx context.Context, env *base.Env, anonymous *client.Client) (string, error) {
	if !env.Interactive() {
		return "", nil
	}
	there, err := anonymous.Account.Providers().Collect(ctx)
	if err != nil || len(there) == 0 {
		return "", err
	}
	answer, err := env.Ask(fmt.Sprintf("Sign in with %s or password [%s]: ", strings.Join(there, ", "), there[0]))
	switch {
	case err != nil:
		return "", err
	case answer == "":
		return there[0], nil
	case answer == "password":
		return "", nil
	case !slices.Contains(there, answer):
		return "", base.UsageError("%q is none of them", answer)
	}
	return answer, nil
}

// loginByPassword creates a session with a password.
func loginByPassword(ctx context.Context, env *base.Env, anonymous *client.Client, o loginOptions) (base.Login, error) {
	if o.name == "" && o.code == "" {
		var err error
		if o.name, err = env.Ask("Name or e-mail address: "); err != nil {
			return base.Login{}, err
		}
	}
	password, err := env.AskPassword("Password: ")
	if err != nil {
		return base.Login{}, err
	}
	var s *client.SignIn
	if o.code != "" {
		s, err = anonymous.Account.AcceptInvitationProgram(ctx, o.code, o.name, password)
	} else {
		s, err = anonymous.Account.LoginProgram(ctx, o.name, password)
	}
	if err != nil {
		return base.Login{}, err
	}
	return base.SessionLogin(s), nil
}

// NewLogoutCommand returns the command "modbox logout".
func NewLogoutCommand(env *base.Env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget the last login to the server, and end it there",
		Long: `Forget the last login to the server, and end it there: its tokens stop working at
once. API tokens go on; "modbox token revoke" ends these.

With --all every login of the user ends, on all machines and in all browsers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := env.StoredLogin()
			if all {
				if err := endLogins(cmd.Context(), env, l); err != nil {
					return err
				}
			}
			if err := endLogin(cmd.Context(), env, l); err != nil {
				return err
			}
			return env.ForgetLogin(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all logins of the user")
	return cmd
}

// endLogins ends all logins of the user who owns the login, or the token given without a login.
func endLogins(ctx context.Context, env *base.Env, l base.Login) error {
	c, err := env.Client()
	if l != (base.Login{}) {
		// Without a workspace: the workspace in the environment or the flag may no longer exist.
		c, err = client.New(env.ServerURL(), l.Token, env.ClientOptions(l)...)
	}
	if err != nil {
		return err
	}
	return c.Account.DeleteSessions(ctx)
}

// endLogin ends a login at the server, unless it has ended already.
func endLogin(ctx context.Context, env *base.Env, l base.Login) error {
	if l == (base.Login{}) {
		return nil
	}
	if l.Token != "" {
		return revokeLogin(ctx, env, l)
	}
	token := l.Access
	if time.Until(l.Expires) <= base.RefreshMargin {
		s, err := env.Refresh(ctx, l.Refresh)
		if client.IsCode(err, client.Unauthenticated) {
			return nil
		}
		if err != nil {
			return err
		}
		token = s.AccessToken
	}
	// Without a workspace: a login belongs to none.
	c, err := client.New(env.ServerURL(), token, client.WithUserAgent("modbox-cli/"+env.Version))
	if err != nil {
		return err
	}
	if err := c.Account.Logout(ctx); !client.IsCode(err, client.Unauthenticated) {
		return err
	}
	return nil
}

// revokeLogin ends a login of an earlier version, which is an API token.
func revokeLogin(ctx context.Context, env *base.Env, l base.Login) error {
	// Without the workspace of the environment or flag: a token is revoked in its own workspace.
	c, err := client.New(env.ServerURL(), l.Token, client.WithUserAgent("modbox-cli/"+env.Version))
	if err != nil {
		return err
	}
	who, err := c.WhoAmI(ctx)
	if err == nil {
		err = c.Tokens.Revoke(ctx, who.TokenID)
	}
	if client.IsCode(err, client.Unauthenticated) {
		return nil
	}
	return err
}

// NewWhoamiCommand returns the command "modbox whoami".
func NewWhoamiCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who the commands act for, where, and what they may do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			who, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(who)
			}
			role := who.Role
			if who.Administrator {
				role += ", administrator"
			}
			return env.PrintFields([][2]string{
				{"NAME", who.Name}, {"Email", who.Email}, {"User", who.UserID}, {"Server", env.ServerURL()},
				{"Workspace", who.WorkspaceID}, {"Role", role}, {"Permissions", strings.Join(who.Permissions, " ")},
				{"Token", cmp.Or(who.TokenID, "of a session")},
			})
		},
	}
}
