package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modbox/modbox/client"
)

// loginOptions say how to sign in; the zero value asks.
type loginOptions struct {
	name, code string
	provider   string
	noBrowser  bool
}

func (a *app) loginCommand() *cobra.Command {
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

The login works for 90 days, while it is used every 30 days. It is kept in
credentials.json in the user's configuration directory; "modbox session" shows it
beside the user's other logins. MODBOX_API_TOKEN and --token go before it.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if arg := strings.Join(args, ""); strings.Contains(arg, "://") {
				if a.url != "" && a.url != arg {
					return usageError("%s and --url %s are two servers", arg, a.url)
				}
				a.url = arg
			} else {
				o.name = arg
			}
			if o.provider != "" && (o.name != "" || o.code != "") {
				return usageError("--provider signs in whom the service says; it goes with neither NAME nor --code")
			}
			return a.login(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.code, "code", "", "the code of an invitation, or of a password to be chosen")
	cmd.Flags().StringVar(&o.provider, "provider", "", "the service to sign in with, e.g. github")
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "print the URL instead of opening a browser")
	return cmd
}

func (a *app) login(ctx context.Context, o loginOptions) error {
	anonymous, err := a.clientFor(login{})
	if err != nil {
		return err
	}
	if o.provider == "" && o.name == "" && o.code == "" {
		if o.provider, err = a.askProvider(ctx, anonymous); err != nil {
			return err
		}
	} else if o.provider != "" {
		if err := knownProvider(ctx, anonymous, o.provider); err != nil {
			return err
		}
	}
	var l login
	if o.provider != "" {
		l, err = a.loginThrough(ctx, anonymous, o)
	} else {
		l, err = a.loginByPassword(ctx, anonymous, o)
	}
	if err != nil {
		return err
	}
	before := a.keptLogin()
	if err := a.keepLogin(ctx, l); err != nil {
		return err
	}
	if err := a.endLogin(ctx, before); err != nil {
		fmt.Fprintf(a.stderr, "The login before works on: %s\n", clean(err.Error()))
	}
	fmt.Fprintln(a.stderr, "Signed in to "+a.serverURL()+".")
	return nil
}

func knownProvider(ctx context.Context, anonymous *client.Client, name string) error {
	there, err := anonymous.Providers(ctx)
	if err == nil && !slices.Contains(there, name) {
		return usageError("--provider: the server has no %q; it has: %s", name, cmp.Or(strings.Join(there, ", "), "none"))
	}
	return err
}

// askProvider has a user on a terminal choose a service, if there are any; "" is a password.
func (a *app) askProvider(ctx context.Context, anonymous *client.Client) (string, error) {
	if !a.interactive() {
		return "", nil
	}
	there, err := anonymous.Providers(ctx)
	if err != nil || len(there) == 0 {
		return "", err
	}
	answer, err := a.ask(fmt.Sprintf("Sign in with %s or password [%s]: ", strings.Join(there, ", "), there[0]))
	switch {
	case err != nil:
		return "", err
	case answer == "":
		return there[0], nil
	case answer == "password":
		return "", nil
	case !slices.Contains(there, answer):
		return "", usageError("%q is none of them", answer)
	}
	return answer, nil
}

// loginByPassword leaves a session behind, as loginThrough does.
func (a *app) loginByPassword(ctx context.Context, anonymous *client.Client, o loginOptions) (login, error) {
	if o.name == "" && o.code == "" {
		var err error
		if o.name, err = a.ask("Name or e-mail address: "); err != nil {
			return login{}, err
		}
	}
	password, err := a.askPassword("Password: ")
	if err != nil {
		return login{}, err
	}
	var s *client.SignIn
	if o.code != "" {
		s, err = anonymous.AcceptInvitationProgram(ctx, o.code, o.name, password)
	} else {
		s, err = anonymous.LoginProgram(ctx, o.name, password)
	}
	if err != nil {
		return login{}, err
	}
	return sessionLogin(s), nil
}

func (a *app) logoutCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "logout",
		Short: "Forget the last login to the server, and end it there",
		Long: `Forget the last login to the server, and end it there: its tokens stop working at
once. API tokens go on; "modbox token revoke" ends these.

With --all every login of the user ends, on all machines and in all browsers.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := a.keptLogin()
			if all {
				if err := a.endLogins(cmd.Context(), l); err != nil {
					return err
				}
			}
			if err := a.endLogin(cmd.Context(), l); err != nil {
				return err
			}
			return a.forgetLogin(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end all logins of the user")
	return cmd
}

// endLogins ends all logins of the user of a login, or of the token that is given without one.
func (a *app) endLogins(ctx context.Context, l login) error {
	c, err := a.client()
	if l != (login{}) {
		// In no workspace: the one that the environment or a flag names may be gone.
		c, err = client.New(a.serverURL(), l.Token, a.clientOptions(l)...)
	}
	if err != nil {
		return err
	}
	return c.EndSessions(ctx)
}

// endLogin ends a login at the server, if it has not ended there.
func (a *app) endLogin(ctx context.Context, l login) error {
	if l == (login{}) {
		return nil
	}
	if l.Token != "" {
		return a.revokeLogin(ctx, l)
	}
	token := l.Access
	if time.Until(l.Expires) <= refreshMargin {
		s, err := a.refresh(ctx, l.Refresh)
		if client.IsCode(err, client.Unauthenticated) {
			return nil
		}
		if err != nil {
			return err
		}
		token = s.AccessToken
	}
	// Not in the workspace that the environment or a flag names: the login is in none.
	c, err := client.New(a.serverURL(), token, client.WithUserAgent("modbox-cli/"+version))
	if err != nil {
		return err
	}
	if err := c.Logout(ctx); !client.IsCode(err, client.Unauthenticated) {
		return err
	}
	return nil
}

// revokeLogin ends a login that an earlier version made of an API token.
func (a *app) revokeLogin(ctx context.Context, l login) error {
	// Not in the workspace that the environment or a flag names: a token is revoked in
	// the one it was made in.
	c, err := client.New(a.serverURL(), l.Token, client.WithUserAgent("modbox-cli/"+version))
	if err != nil {
		return err
	}
	who, err := c.WhoAmI(ctx)
	if err == nil {
		err = c.RevokeToken(ctx, who.TokenID)
	}
	if client.IsCode(err, client.Unauthenticated) {
		return nil
	}
	return err
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who the commands act for, where, and what they may do",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			who, err := c.WhoAmI(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(who)
			}
			role := who.Role
			if who.Administrator {
				role += ", administrator"
			}
			return a.printFields([][2]string{
				{"NAME", who.Name}, {"Email", who.Email}, {"User", who.UserID}, {"Server", a.serverURL()},
				{"Workspace", who.WorkspaceID}, {"Role", role}, {"Permissions", strings.Join(who.Permissions, " ")},
				{"Token", cmp.Or(who.TokenID, "of a session")},
			})
		},
	}
}

// interactive reports whether a person can be asked.
func (a *app) interactive() bool {
	f, ok := a.stdin.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ask reads a line of the user's.
func (a *app) ask(prompt string) (string, error) {
	fmt.Fprint(a.stderr, prompt)
	line, err := a.readLine()
	return strings.TrimSpace(line), err
}

// readLine reads a line from standard input and nothing that follows it.
func (a *app) readLine() (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		n, err := a.stdin.Read(b)
		switch {
		case n == 1 && b[0] == '\n', err != nil && len(line) > 0:
			return strings.TrimSuffix(string(line), "\r"), nil
		case n == 1:
			line = append(line, b[0])
		case err != nil:
			return "", fmt.Errorf("read standard input: %w", err)
		}
	}
}

// askPassword is ask without showing what is typed.
func (a *app) askPassword(prompt string) (string, error) {
	f, ok := a.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return a.readLine()
	}
	fmt.Fprint(a.stderr, prompt)
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(a.stderr)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	return string(b), nil
}
