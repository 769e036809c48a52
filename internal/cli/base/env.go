package base

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/modbox/modbox/client"
)

// Exit codes of the command line.
const (
	ExitFailure = 1 // the operation failed
	ExitUsage   = 2 // wrong arguments
	// ExitInternal is for run and exec, whose other codes are the codes of the user's command: Modbox
	// itself failed, and how the command ended, if it ran, is unknown.
	ExitInternal = 125
	// ExitInterrupt is 128 + SIGINT: the user interrupted it.
	ExitInterrupt = 130
)

// ExitError carries an exit code. With a nil Err the command has printed everything.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err, or else names the code.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError returns an error about wrong arguments, in the format of [fmt.Errorf]. The command
// line prints the usage of the command with it.
func UsageError(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// Env is the environment of an invocation of the command line. Commands read flags and variables,
// print, and make clients through it.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
	Version        string // of this program
	Commit         string // of the source of this program

	URL, Token, Workspace string // flags; "" when they are not given
	ProfileName           string // flag
	JSON                  bool   // flag

	readProfile sync.Once
	profile     chosenProfile // written by readProfile

	readCurrent sync.Once
	current     string // server of the last login, or of this machine; written by readCurrent
}

// NewEnv returns the environment of this process.
func NewEnv(version string) *Env {
	return &Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Version: version}
}

// Getenv returns the environment variable; "" if it is not set.
func (env *Env) Getenv(name string) string {
	for _, kv := range env.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// DefaultURL is the address of the server when no setting names another.
const DefaultURL = "http://127.0.0.1:7070"

// ServerURL returns the address of the server that commands call, without a trailing slash: from
// --url, --profile, MODBOX_URL, MODBOX_PROFILE, the current profile, the last login, the running server of the user's state directory, or
// DefaultURL. It is the same for the whole invocation.
func (env *Env) ServerURL() string {
	if p := env.chosen(); p.name != "" {
		return p.URL
	}
	if u := cmp.Or(env.URL, env.Getenv("MODBOX_URL")); u != "" {
		return strings.TrimRight(u, "/")
	}
	// Read once: if the user signs in to another server meanwhile, this invocation must not send that
	// server's token to the first server.
	env.readCurrent.Do(func() {
		if env.givenToken() == "" { // a given token must not go to the server of an earlier sign-in
			env.current = env.StoredCredentials().Current
		}
		if env.current == "" {
			env.current, _ = env.localServer()
		}
	})
	return cmp.Or(env.current, DefaultURL)
}

// isNamed reports whether the user has chosen the server: with a URL, by signing in, or by running
// it.
func (env *Env) isNamed() bool {
	return env.chosen().name != "" || cmp.Or(env.URL, env.Getenv("MODBOX_URL")) != "" || env.ServerURL() == env.current
}

// givenToken returns the token of the flag or the environment.
func (env *Env) givenToken() string { return cmp.Or(env.Token, env.Getenv("MODBOX_API_TOKEN")) }

// Client returns a client for the flags and environment. Without a token it uses the token of the
// last login, or else the token in a local server's state directory, and only for that server:
// another program may listen at another port of this machine, or at the server's port while it does
// not run.
//
// A given token is sent only to a server that the user has named.
func (env *Env) Client() (*client.Client, error) {
	l := Login{Token: env.givenToken()}
	if p := env.chosen(); p.named {
		l.Token = cmp.Or(env.Token, p.Token)
	} else if l.Token == "" {
		l.Token = p.Token
	}
	if l.Token != "" && !env.isNamed() {
		return nil, UsageError("a token is given but no server, and none of yours runs on this machine; set MODBOX_URL or --url to the token's, e.g. %s", DefaultURL)
	}
	if l.Token == "" {
		l = env.StoredLogin()
	}
	if l == (Login{}) {
		if server, token := env.localServer(); server != "" && isSameServer(server, env.ServerURL()) {
			l.Token = token
		}
	}
	return env.ClientFor(l)
}

// ClientOptions returns the options of a client that uses a login.
func (env *Env) ClientOptions(l Login) []client.Option {
	options := []client.Option{client.WithUserAgent("modbox-cli/" + env.Version)}
	if l.Refresh != "" {
		options = append(options, client.WithTokens(env.SessionToken))
	}
	return options
}

// ClientFor returns a client that uses a login, in the workspace of the flag or environment.
func (env *Env) ClientFor(l Login) (*client.Client, error) {
	p := env.chosen()
	if p.err != nil {
		return nil, p.err
	}
	if env.URL != "" && env.ProfileName != "" {
		return nil, UsageError("--url and --profile both name a server; give one of them")
	}
	options := env.ClientOptions(l)
	ws := cmp.Or(env.Workspace, env.Getenv("MODBOX_WORKSPACE"), p.Workspace)
	if p.named {
		ws = cmp.Or(env.Workspace, p.Workspace)
	}
	if ws != "" {
		options = append(options, client.WithWorkspace(ws))
	}
	return client.New(env.ServerURL(), l.Token, options...)
}

// OnThisMachine reports whether the host of a URL is a loopback address.
func OnThisMachine(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
