package main

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
	// refreshMargin is how long before its end an access token is not used any more.
	refreshMargin = 30 * time.Second
	// refreshTime bounds one refresh, which is not broken off: an answer that is lost is a login that is lost.
	refreshTime = 30 * time.Second
	// lockRetry is how often a lock that another process has is tried.
	lockRetry = 20 * time.Millisecond
)

// login is what a sign-in to a server left behind: a session, or, of earlier versions, an API token.
type login struct {
	Token   string `json:"token,omitempty"`
	Access  string `json:"access_token,omitempty"`
	Refresh string `json:"refresh_token,omitempty"`
	// Expires is when the access token does.
	Expires time.Time `json:"expires_at,omitzero"`
}

func sessionLogin(s *client.SignIn) login {
	return login{Access: s.AccessToken, Refresh: s.RefreshToken, Expires: time.Now().Add(time.Duration(s.ExpiresIn) * time.Second).UTC()}
}

// credentials is the file of logins.
type credentials struct {
	Current string           `json:"current,omitempty"` // the server that was signed in to last
	Servers map[string]login `json:"servers"`
}

// credentialsFile is where the logins are kept.
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

func readCredentials(path string) (credentials, error) {
	kept := credentials{Servers: map[string]login{}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err == nil && kept.Servers == nil {
		kept.Servers = map[string]login{}
	}
	if err != nil {
		return kept, fmt.Errorf("read %s: %w", path, err)
	}
	return kept, nil
}

// keptCredentials are the logins, none when they cannot be read: the server will say so.
func (a *app) keptCredentials() credentials {
	path, err := a.credentialsFile()
	if err != nil {
		return credentials{}
	}
	kept, _ := readCredentials(path)
	return kept
}

// keptLogin is the last login to the server; the zero value without one.
func (a *app) keptLogin() login { return a.keptCredentials().Servers[a.serverURL()] }

func (a *app) keepLogin(ctx context.Context, l login) error {
	return a.changeCredentials(ctx, func(c *credentials) error {
		c.Servers[a.serverURL()], c.Current = l, a.serverURL()
		return nil
	})
}

func (a *app) forgetLogin(ctx context.Context) error {
	return a.changeCredentials(ctx, func(c *credentials) error {
		delete(c.Servers, a.serverURL())
		if c.Current == a.serverURL() {
			c.Current = ""
		}
		return nil
	})
}

// changeCredentials changes the file while no other process does. The change may
// take its time; on its error the file stays.
func (a *app) changeCredentials(ctx context.Context, change func(*credentials) error) error {
	path, err := a.credentialsFile()
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
	kept, err := readCredentials(path)
	if err != nil {
		return err
	}
	if err := change(&kept); err != nil {
		return err
	}
	return writeCredentials(path, kept)
}

func writeCredentials(path string, c credentials) error {
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

// sessionToken returns an access token of the kept session that works, a new one
// when it must. A refresh token that is used twice ends the session, so that of
// several processes one refreshes and the others wait for what it gets.
func (a *app) sessionToken(ctx context.Context) (string, error) {
	fresh := func(l login) bool { return time.Until(l.Expires) > refreshMargin }
	if l := a.keptLogin(); fresh(l) {
		return l.Access, nil
	}
	var token string
	err := a.changeCredentials(ctx, func(c *credentials) error {
		l := c.Servers[a.serverURL()]
		if l.Token != "" { // an earlier version has signed in meanwhile
			token = l.Token
			return nil
		}
		if !fresh(l) {
			s, err := a.refresh(ctx, l.Refresh)
			if err != nil {
				return fmt.Errorf("the login to %s has ended: %w", a.serverURL(), err)
			}
			l = sessionLogin(s)
			c.Servers[a.serverURL()] = l
		}
		token = l.Access
		return nil
	})
	return token, err
}

func (a *app) refresh(ctx context.Context, token string) (*client.SignIn, error) {
	c, err := a.clientFor(login{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	return c.Refresh(ctx, token)
}
