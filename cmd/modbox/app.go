package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
)

// Exit codes of the command line.
const (
	exitError = 1 // the operation failed
	exitUsage = 2 // wrong arguments
	// exitOurs is for run and exec, whose other codes are the command's own: Modbox
	// itself failed, and how the command ended, if it ran, is not known.
	exitOurs = 125
	// exitInterrupt is 128 + SIGINT: the user ended it.
	exitInterrupt = 130
)

// exitCodeError carries an exit code. err nil means that everything was said already.
type exitCodeError struct {
	code int
	err  error
}

func (e *exitCodeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitCodeError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitCodeError{exitUsage, fmt.Errorf(format, args...)}
}

// app is one invocation of the command line.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	url, token, workspace string // flags
	json                  bool   // flag
	// running says that arguments were accepted and a command's work began.
	running bool

	readCurrent sync.Once
	current     string // server of the last login, or of this machine; written by readCurrent
}

func newApp() *app {
	return &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ()}
}

func (a *app) getenv(name string) string {
	for _, kv := range a.environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// execute runs the command line and returns its exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	cmd, err := unknownCommand(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return 0
	}
	code := exitError
	if !a.running {
		code = exitUsage
	}
	var ec *exitCodeError
	if errors.As(err, &ec) {
		code = ec.code
		if ec.err == nil {
			return code
		}
	}
	a.printError(err)
	switch {
	case code == exitUsage && cmd.HasParent():
		fmt.Fprintf(a.stderr, "Usage: %s\nSee \"%s --help\".\n", cmd.UseLine(), cmd.CommandPath())
	case code == exitUsage:
		fmt.Fprintln(a.stderr, `See "modbox help" or "modbox COMMAND --help".`)
	}
	return code
}

// unknownCommand returns an error, and the command it is about, for the name of a
// command that a group of commands does not have. The library would print the
// group's help and call that success.
func unknownCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	group, rest, err := root.Find(args)
	if err != nil || group.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil, nil
	}
	return group, usageError("unknown command %q for %q", rest[0], group.CommandPath())
}

// printError tells the user, with the code when the server gave one.
func (a *app) printError(err error) {
	text := clean(err.Error())
	var e *client.Error
	if errors.As(err, &e) {
		text = fmt.Sprintf("%s [%s]", text, e.Code)
		switch e.Code {
		case client.Unauthenticated:
			text += "\nSign in with \"modbox login\", or set MODBOX_API_TOKEN to a token of this server; its first one is in the file \"token\" of the server's state directory, and \"modbox token create --state-dir DIR\" makes another."
		case client.Internal:
			if e.RequestID != "" {
				text += "\nThe server's log has the details under request " + e.RequestID + "."
			}
		}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		text += fmt.Sprintf("\nNo server answers at %s. Start one with \"modbox server\", or set MODBOX_URL.", a.serverURL())
	}
	fmt.Fprintln(a.stderr, "Error: "+text)
}

const defaultURL = "http://127.0.0.1:7070"

func (a *app) serverURL() string {
	if u := cmp.Or(a.url, a.getenv("MODBOX_URL")); u != "" {
		return strings.TrimRight(u, "/")
	}
	// Read once: somebody may sign in to another server while this runs, whose token must
	// not go to the one that was begun with.
	a.readCurrent.Do(func() {
		if a.givenToken() == "" { // a token that is given is not for a server that somebody once signed in to
			a.current = a.keptCredentials().Current
		}
		if a.current == "" {
			a.current, _ = a.localServer()
		}
	})
	return cmp.Or(a.current, defaultURL)
}

// isNamed reports whether the user has said which server it is: with a URL, by signing in, or
// by running it.
func (a *app) isNamed() bool {
	return cmp.Or(a.url, a.getenv("MODBOX_URL")) != "" || a.serverURL() == a.current
}

// givenToken is the token of the flag or the environment.
func (a *app) givenToken() string { return cmp.Or(a.token, a.getenv("MODBOX_API_TOKEN")) }

// client returns a client for the flags and environment. Without a token it
// uses the token of the last login, or else the token in a local server's state directory, and only for that
// server: another program may listen at another port of this machine, or at its port while it does not run.
//
// A token that is given goes to no server that the user has not named.
func (a *app) client() (*client.Client, error) {
	l := login{Token: a.givenToken()}
	if l.Token != "" && !a.isNamed() {
		return nil, usageError("a token is given but no server, and none of yours runs on this machine; set MODBOX_URL or --url to the token's, e.g. %s", defaultURL)
	}
	if l.Token == "" {
		l = a.keptLogin()
	}
	if l == (login{}) {
		if server, token := a.localServer(); server != "" && isSameServer(server, a.serverURL()) {
			l.Token = token
		}
	}
	return a.clientFor(l)
}

// clientOptions are those of a client that acts by a login.
func (a *app) clientOptions(l login) []client.Option {
	options := []client.Option{client.WithUserAgent("modbox-cli/" + version)}
	if l.Refresh != "" {
		options = append(options, client.WithTokens(a.sessionToken))
	}
	return options
}

// clientFor returns a client that acts by a login, in the workspace that was asked for.
func (a *app) clientFor(l login) (*client.Client, error) {
	options := a.clientOptions(l)
	if a.workspace != "" {
		options = append(options, client.WithWorkspace(a.workspace))
	} else if ws := a.getenv("MODBOX_WORKSPACE"); ws != "" {
		options = append(options, client.WithWorkspace(ws))
	}
	return client.New(a.serverURL(), l.Token, options...)
}

func onThisMachine(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// root returns the tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "modbox",
		Short: "Isolated Linux sandboxes for AI agents",
		Long: `Modbox gives programs their own isolated Linux machines, called sandboxes.

"modbox server" runs the service on this machine; all other commands call a server.
MODBOX_URL is its address. Without MODBOX_URL they call the server of the last
"modbox login", or else the server that runs with your state directory, or else
` + defaultURL + `. MODBOX_API_TOKEN is the token. Without MODBOX_API_TOKEN they use
the token of the last "modbox login" to the server, or else the token that a server on
this machine made for itself. The commands send a token only to a server that you
named, signed in to or run: with MODBOX_API_TOKEN set MODBOX_URL too.`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) {
			a.running = true
		},
	}
	root.PersistentFlags().StringVar(&a.url, "url", "", "address of the server (default $MODBOX_URL, else the server of the last login, else the server of your state directory, else "+defaultURL+")")
	root.PersistentFlags().StringVar(&a.token, "token", "", "API token (default $MODBOX_API_TOKEN)")
	root.PersistentFlags().StringVar(&a.workspace, "workspace", "", "id or slug of the workspace to act in (default $MODBOX_WORKSPACE or the token's own)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	root.AddGroup(
		&cobra.Group{ID: groupUse, Title: "Use sandboxes:"},
		&cobra.Group{ID: groupServe, Title: "Run a server:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupUse, a.runCommand(), a.createCommand(), a.listCommand(), a.getCommand(), a.execCommand(), a.attachCommand(), a.jobsCommand(), a.logsCommand(), a.cancelCommand(), a.envCommand(), a.copyCommand(), a.filesCommand(), a.watchCommand(),
		a.removeCommand(), a.pauseCommand(), a.resumeCommand(), a.checkpointCommand(), a.snapshotCommand(), a.forkCommand(), a.waitCommand(), a.eventsCommand(), a.statsCommand(), a.usageCommand(), a.networkCommand(), a.portCommand(), a.buildCommand(), a.imagesCommand(), a.runtimesCommand(), a.catalogueCommand(), a.registryCommand(), a.tokenCommand(), a.workspaceCommand(), a.loginCommand(), a.logoutCommand(), a.sessionCommand(), a.whoamiCommand())
	add(groupServe, a.serverCommand(), a.userCommand(), a.auditCommand(), a.backupCommand(), a.restoreCommand(), a.quarantineCommand(), a.secretsCommand(), a.doctorCommand(), a.openapiCommand(), a.versionCommand())
	return root
}

const (
	groupUse   = "use"
	groupServe = "serve"
)
