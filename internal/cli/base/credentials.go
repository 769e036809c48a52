package base

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/durable"
)

const (
	// RefreshMargin is how long before its end an access token is not used any more.
	RefreshMargin = 30 * time.Second
	// refreshTime bounds one refresh, which is not broken off: an answer that is lost is a login that is lost.
	refreshTime = 30 * time.Second
	// lockRetry is how often a lock that another process has is tried.
	lockRetry = 20 * time.Millisecond
)

// Login is what a sign-in to a server left behind: a session, or, of earlier versions, an API token.
type Login struct {
	Token   string `json:"token,omitempty"`
	Access  string `json:"access_token,omitempty"`
	Refresh string `json:"refresh_token,omitempty"`
	// Expires is when the access token does.
	Expires time.Time `json:"expires_at,omitzero"`
}

// SessionLogin returns the login of a sign-in.
func SessionLogin(s *client.SignIn) Login {
	return Login{Access: s.AccessToken, Refresh: s.RefreshToken, Expires: time.Now().Add(time.Duration(s.ExpiresIn) * time.Second).UTC()}
}

// Credentials is the file of logins.
type Credentials struct {
	Current string           `json:"current,omitempty"` // the server that was signed in to last
	Servers map[string]Login `json:"servers"`
}

// credentialsFile is where the logins are kept.
func (env *Env) credentialsFile() (string, error) {
	dir := env.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := env.Getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set: nowhere to keep the login")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "modbox", "credentials.json"), nil
}

// ReadCredentials reads the file of logins at path; without a file it has none.
func ReadCredentials(path string) (Credentials, error) {
	kept := Credentials{Servers: map[string]Login{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && kept.Servers == nil {
		kept.Servers = map[string]Login{}
	}
	if err != nil {
		return kept, fmt.Errorf("read %s: %w", path, err)
	}
	return kept, nil
}

// KeptCredentials are the logins, none when they cannot be read: the server will say so.
func (env *Env) KeptCredentials() Credentials {
	path, err := env.credentialsFile()
	if err != nil {
		return Credentials{}
	}
	kept, _ := ReadCredentials(path)
	return kept
}

// KeptLogin is the last login to the server; the zero value without one.
func (env *Env) KeptLogin() Login { return env.KeptCredentials().Servers[env.ServerURL()] }

// KeepLogin stores the login to the server, and makes it the server of later commands.
func (env *Env) KeepLogin(ctx context.Context, l Login) error {
	return env.changeCredentials(ctx, func(c *Credentials) error {
		c.Servers[env.ServerURL()], c.Current = l, env.ServerURL()
		return nil
	})
}

// ForgetLogin removes the login to the server.
func (env *Env) ForgetLogin(ctx context.Context) error {
	return env.changeCredentials(ctx, func(c *Credentials) error {
		delete(c.Servers, env.ServerURL())
		if c.Current == env.ServerURL() {
			c.Current = ""
		}
		return nil
	})
}

// changeCredentials changes the file while no other process does. The change may
// take its time; on its error the file stays.
func (env *Env) changeCredentials(ctx context.Context, change func(*Credentials) error) error {
	path, err := env.credentialsFile()
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	lock := flock.New(path + ".lock")
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	defer func() { _ = lock.Close() }() // the kernel releases it in any case
	kept, err := ReadCredentials(path)
	if err != nil {
		return err
	}
	if err := change(&kept); err != nil {
		return err
	}
	return WriteCredentials(path, kept)
}

// WriteCredentials replaces the file of logins at path. It is on the disk when the function
// returns, and only this user can read it.
func WriteCredentials(path string, c Credentials) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".credentials-*") // mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer os.Remove(f.Name()) // fails when it was renamed, as it should
	if _, err = f.Write(append(data, '\n')); err == nil {
		err = f.Sync() // the refresh token before is used up: a loss of power must not bring it back
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return durable.Sync(filepath.Dir(path))
}

// SessionToken returns an access token of the kept session that works, a new one
// when it must. A refresh token that is used twice ends the session, so that of
// several processes one refreshes and the others wait for what it gets.
func (env *Env) SessionToken(ctx context.Context) (string, error) {
	fresh := func(l Login) bool { return time.Until(l.Expires) > RefreshMargin }
	if l := env.KeptLogin(); fresh(l) {
		return l.Access, nil
	}
	var token string
	err := env.changeCredentials(ctx, func(c *Credentials) error {
		l := c.Servers[env.ServerURL()]
		if l.Token != "" { // an earlier version has signed in meanwhile
			token = l.Token
			return nil
		}
		if !fresh(l) {
			s, err := env.Refresh(ctx, l.Refresh)
			if err != nil {
				return fmt.Errorf("the login to %s has ended: %w", env.ServerURL(), err)
			}
			l = SessionLogin(s)
			c.Servers[env.ServerURL()] = l
		}
		token = l.Access
		return nil
	})
	return token, err
}

// Refresh exchanges a refresh token for a new one with an access token, within 30 seconds; the
// end of ctx does not stop it.
func (env *Env) Refresh(ctx context.Context, token string) (*client.SignIn, error) {
	c, err := env.ClientFor(Login{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	return c.Refresh(ctx, token)
}
