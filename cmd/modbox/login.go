package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/modbox/modbox/client"
)

// loginLifetime is how long the token works that a sign-in leaves behind.
const loginLifetime = 90 * 24 * time.Hour

func (a *app) loginCommand() *cobra.Command {
	var code string
	cmd := &cobra.Command{
		Use:   "login [NAME]",
		Short: "Sign in to a server, for the commands that follow",
		Long: `Sign in to a server, for the commands that follow.

Asks for the name and the password, makes an API token that works for 90 days and
keeps it in credentials.json in the user's configuration directory. MODBOX_API_TOKEN
and --token go before it. With --code an invitation is accepted, or a new
password chosen; NAME is then what a new user signs in as.

A password that does not come from a terminal is read from standard input.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			if name == "" && code == "" {
				var err error
				if name, err = a.ask("Name or e-mail address: "); err != nil {
					return err
				}
			}
			return a.login(cmd.Context(), name, code)
		},
	}
	cmd.Flags().StringVar(&code, "code", "", "the code of an invitation, or of a password to be chosen")
	return cmd
}

func (a *app) login(ctx context.Context, name, code string) error {
	anonymous, err := a.clientWith("")
	if err != nil {
		return err
	}
	password, err := a.askPassword("Password: ")
	if err != nil {
		return err
	}
	var s *client.SignIn
	if code != "" {
		s, err = anonymous.AcceptInvitation(ctx, code, name, password)
	} else {
		s, err = anonymous.Login(ctx, name, password)
	}
	if err != nil {
		return err
	}
	session, err := a.clientWith(s.AccessToken)
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // only to tell tokens apart
	t, err := session.CreateToken(ctx, "modbox login on "+cmp.Or(host, "a machine"), client.TokenOptions{Lifetime: loginLifetime})
	if err != nil {
		return err
	}
	if err := a.keepToken(t.Secret); err != nil {
		return err
	}
	if err := session.Logout(ctx); err != nil {
		return err
	}
	fmt.Fprintln(a.stderr, "Signed in to "+a.serverURL()+".")
	return nil
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Forget the token of the last login, and revoke it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token := a.keptToken()
			if token == "" {
				return nil
			}
			// Not in the workspace that the environment or a flag names: a token is
			// revoked in the one it was made in.
			c, err := client.New(a.serverURL(), token, client.WithUserAgent("modbox-cli/"+version))
			if err != nil {
				return err
			}
			who, err := c.WhoAmI(cmd.Context())
			if err == nil {
				err = c.RevokeToken(cmd.Context(), who.TokenID)
			}
			if err != nil && !client.IsCode(err, client.Unauthenticated) {
				return err
			}
			return a.keepToken("")
		},
	}
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

// credentialsFile is where logins are kept: the token of each server.
func (a *app) credentialsFile() (string, error) {
	dir := a.getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := a.getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set: nowhere to keep the login")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "modbox", "credentials.json"), nil
}

func readCredentials(path string) (map[string]string, error) {
	kept := map[string]string{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return kept, nil
}

// keptToken is the token of the last login to the server, "" without one.
func (a *app) keptToken() string {
	path, err := a.credentialsFile()
	if err != nil {
		return ""
	}
	kept, _ := readCredentials(path) // unreadable: go without, the server will say so
	return kept[a.serverURL()]
}

// keepToken keeps the token of a login to the server; "" forgets it.
func (a *app) keepToken(token string) error {
	path, err := a.credentialsFile()
	if err != nil {
		return err
	}
	kept, err := readCredentials(path)
	if err != nil {
		return err
	}
	kept[a.serverURL()] = token
	if token == "" {
		delete(kept, a.serverURL())
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".credentials-*") // mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, as it should
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}
