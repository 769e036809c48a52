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
	// RefreshMargin is the time before the expiry of an access token at which it is replaced.
	RefreshMargin = 30 * time.Second
	// refreshTime bounds a refresh, which ignores cancellation: a lost answer is a lost login.
	refreshTime = 30 * time.Second
	// lockRetry is the interval of attempts to take a lock that another process has.
	lockRetry = 20 * time.Millisecond
)

// Login is the result of a sign-in to a server: a session, or in earlier versions an API token.
type Login struct {
	Token   string `json:"token,omitempty"`
	Access  string `json:"access_token,omitempty"`
	Refresh string `json:"refresh_token,omitempty"`
	// Expires is the expiry of the access token.
	Expires time.Time `json:"expires_at,omitzero"`
}

// SessionLogin returns the login of a session.
func SessionLogin(s *client.SignIn) Login {
	return Login{Access: s.AccessToken, Refresh: s.RefreshToken, Expires: time.Now().Add(time.Duration(s.ExpiresIn) * time.Second).UTC()}
}

// Credentials is the file of logins.
type Credentials struct {
	Current string           `json:"current,omitempty"` // the server of the last sign-in
	Servers map[string]Login `json:"servers"`
	Profile string           `json:"profile,omitempty"` // the name of the current profile
	// Profiles are the servers under names.
	Profiles map[string]Profile `json:"profiles,omitempty"`
}

// credentialsFile returns the path of the file of logins.
func (env *Env) credentialsFile() (string, error) {
	dir, err := env.ConfigDir()
	return filepath.Join(dir, "credentials.json"), err
}

// ConfigDir returns the directory of the user's files for the command line, which may not exist.
func (env *Env) ConfigDir() (string, error) {
	dir := env.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := env.Getenv("HOME")
		if home == "" {
			return "", errors.New("neither XDG_CONFIG_HOME nor HOME is set: nowhere to keep files of the user")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "modbox"), nil
}

// ReadCredentials reads the file of logins at path; a missing file has none.
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

// StoredCredentials returns the stored logins, none if they cannot be read: the server will refuse
// the request.
func (env *Env) StoredCredentials() Credentials {
	path, err := env.credentialsFile()
	if err != nil {
		return Credentials{}
	}
	kept, _ := ReadCredentials(path)
	return kept
}

// StoredLogin returns the last login to the server; the zero value without a login.
func (env *Env) StoredLogin() Login { return env.StoredCredentials().Servers[env.ServerURL()] }

// StoreLogin stores the login to the server, and makes it the server of later commands.
func (env *Env) StoreLogin(ctx context.Context, l Login) error {
	return env.changeCredentials(ctx, func(c *Credentials) error {
		c.Servers[env.ServerURL()], c.Current = l, env.ServerURL()
		if c.Profiles[c.Profile].URL != env.ServerURL() {
			c.Profile = "" // later commands go to this server
		}
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

// changeCredentials changes the file under a lock. The change may take long; if it fails, the file
// stays the same.
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

// WriteCredentials replaces the file of logins at path. When it returns, the file is on the disk
// and only this user can read it.
func WriteCredentials(path string, c Credentials) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".credentials-*") // mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	if _, err = f.Write(append(data, '\n')); err == nil {
		err = f.Sync() // the previous refresh token is used up: a loss of power must not bring it back
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return durable.Sync(filepath.Dir(path))
}

// SessionToken returns a valid access token of the stored session, refreshed if necessary. Using a
// refresh token twice ends the session, so a single process refreshes while the others wait for its
// result.
func (env *Env) SessionToken(ctx context.Context) (string, error) {
	fresh := func(l Login) bool { return time.Until(l.Expires) > RefreshMargin }
	if l := env.StoredLogin(); fresh(l) {
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

// Refresh exchanges a refresh token for new tokens, within 30 seconds; the end of ctx does not
// interrupt it.
func (env *Env) Refresh(ctx context.Context, token string) (*client.SignIn, error) {
	c, err := env.ClientFor(Login{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	return c.Account.Refresh(ctx, token)
}
