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

// loginLifetime is how long the token works that a sign-in with a password leaves behind.
const loginLifetime = 90 * 24 * time.Hour

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

What the sign-in leaves behind works for 90 days, through another service only
while it is used every 30 days. It is kept in credentials.json in the user's
configuration directory. MODBOX_API_TOKEN and --token go before it.`,
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

// loginByPassword leaves an API token behind.
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
		s, err = anonymous.AcceptInvitation(ctx, o.code, o.name, password)
	} else {
		s, err = anonymous.Login(ctx, o.name, password)
	}
	if err != nil {
		return login{}, err
	}
	session, err := a.clientFor(login{Token: s.AccessToken})
	if err != nil {
		return login{}, err
	}
	host, _ := os.Hostname() // only to tell tokens apart
	t, err := session.CreateToken(ctx, "modbox login on "+cmp.Or(host, "a machine"), client.TokenOptions{Lifetime: loginLifetime})
	if err != nil {
		return login{}, err
	}
	return login{Token: t.Secret}, session.Logout(ctx)
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the last login to the server, and end it there",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.endLogin(cmd.Context(), a.keptLogin()); err != nil {
				return err
			}
			return a.forgetLogin(cmd.Context())
		},
	}
}

// endLogin ends a login at the server, if it has not ended there.
func (a *app) endLogin(ctx context.Context, l login) error {
	if l == (login{}) {
		return nil
	}
	options := []client.Option{client.WithUserAgent("modbox-cli/" + version)}
	if l.Token == "" {
		return a.endSession(ctx, l, options)
	}
	// Not in the workspace that the environment or a flag names: a token is revoked in
	// the one it was made in.
	c, err := client.New(a.serverURL(), l.Token, options...)
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

// endSession ends the session of a login, with tokens of its own when it must.
func (a *app) endSession(ctx context.Context, l login, options []client.Option) error {
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
	c, err := client.New(a.serverURL(), token, options...)
	if err != nil {
		return err
	}
	if err := c.Logout(ctx); !client.IsCode(err, client.Unauthenticated) {
		return err
	}
	return nil
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
