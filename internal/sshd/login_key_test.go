package sshd_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/sshd"
)

// newKey returns a private key and its public key's text.
func newKey(t testing.TB) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// addKey adds a new key by a token, "" for the server's, and returns it with its record.
func (f *fixture) addKey(token string, options map[string]any) (ssh.Signer, wire.SSHKey) {
	f.T.Helper()
	signer, text := newKey(f.T)
	body := map[string]any{"public_key": text}
	for name, value := range options {
		body[name] = value
	}
	r := f.Request("POST", "/v1/ssh-keys", body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a := f.Send(r)
	if a.Status != http.StatusCreated {
		f.T.Fatalf("add a key: %d %s", a.Status, a.Body)
	}
	var key wire.SSHKey
	a.Into(f.T, &key)
	return signer, key
}

// user returns an API token of a new user.
func (f *fixture) user(name string) (wire.User, string) {
	f.T.Helper()
	var made wire.User
	f.Want(201, "POST", "/v1/users", map[string]any{"name": name, "password": "correct horse battery"}).Into(f.T, &made)
	var tokens wire.SessionTokens
	f.Want(200, "POST", "/v1/auth/login", map[string]any{"username": name, "password": "correct horse battery"}).Into(f.T, &tokens)
	r := f.Request("POST", "/v1/tokens", map[string]any{})
	r.Header.Set("Authorization", "Bearer "+tokens.AccessToken)
	var token wire.NewToken
	f.Send(r).Into(f.T, &token)
	return made, token.Secret
}

func TestKey(t *testing.T) {
	f := start(t, sshd.Config{})
	signer, key := f.addKey("", map[string]any{"name": "laptop"})
	if key.Name != "laptop" || key.Type != "ssh-ed25519" || key.Fingerprint != ssh.FingerprintSHA256(signer.PublicKey()) || key.LastUsedAt != nil {
		t.Errorf("added key: %+v", key)
	}
	// A client offers all keys it has.
	other, _ := newKey(t)
	c, _, err := f.dial("x", ssh.PublicKeys(other, signer))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if stdout, stderr, status := run(t, c, "echo in", ""); stdout != "in\n" || status != 0 {
		t.Errorf("command: %q, %q, status %d", stdout, stderr, status)
	}
	var keys wire.Page[wire.SSHKey]
	f.Want(200, "GET", "/v1/ssh-keys", nil).Into(t, &keys)
	if len(keys.Items) != 1 || keys.Items[0].ID != key.ID || keys.Items[0].LastUsedAt == nil {
		t.Errorf("keys after a login: %+v", keys)
	}
	for action, path := range map[string]string{"login": "/v1/audit/installation", "exec-attach": "/v1/audit"} {
		log := string(f.Want(200, "GET", path+"?action="+action, nil).Body)
		if !strings.Contains(log, key.Fingerprint) || strings.Contains(log, ssh.FingerprintSHA256(other.PublicKey())) {
			t.Errorf("audit log of %s: %s", action, log)
		}
	}
}

// The answers to a client that asks about a key do not depend on whether anybody has added it.
func TestKeyQuery(t *testing.T) {
	f := start(t, sshd.Config{})
	known, _ := f.addKey("", nil)
	unknown, _ := newKey(t)
	for user, signer := range map[string]ssh.Signer{"x": unknown, "nobody": unknown, "y": known} {
		asked := &askingSigner{Signer: signer}
		c, banner, err := f.dial(user, ssh.PublicKeys(asked))
		if err == nil {
			c.Close()
		}
		if !asked.signed {
			t.Errorf("user %s: the server refused the key before its proof", user)
		}
		if (err == nil) != (signer == known) || banner != "" {
			t.Errorf("user %s: login %v, banner %q", user, err, banner)
		}
	}
	// A client whose last key the server refuses hangs up; the server records that afterwards.
	deadline := time.Now().Add(30 * time.Second)
	for {
		log := string(f.Want(200, "GET", "/v1/audit/installation?action=login", nil).Body)
		if strings.Count(log, ssh.FingerprintSHA256(unknown.PublicKey())) == 2 && strings.Contains(log, `"outcome":"unauthenticated"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("audit log of failed logins: %s", log)
		}
		time.Sleep(5 * time.Millisecond) // polling: the API has no wait for records
	}
}

// askingSigner notes whether the client signs, which it does after the server accepted its question.
type askingSigner struct {
	ssh.Signer
	signed bool
}

func (s *askingSigner) Sign(r io.Reader, data []byte) (*ssh.Signature, error) {
	s.signed = true
	return s.Signer.Sign(r, data)
}

func TestRefusedKeys(t *testing.T) {
	f := start(t, sshd.Config{})
	_, text := newKey(t)
	f.Want(201, "POST", "/v1/ssh-keys", map[string]any{"public_key": text})
	f.Want(409, "POST", "/v1/ssh-keys", map[string]any{"public_key": text})
	f.Want(422, "POST", "/v1/ssh-keys", map[string]any{"public_key": "ssh-ed25519 AAAA"})
	f.Want(404, "DELETE", "/v1/ssh-keys/00000000-0000-7000-8000-000000000000", nil)

	// Another user can neither add, see nor remove it.
	_, eve := f.user("eve")
	as := func(token, method, path string, body any) int {
		r := f.Request(method, path, body)
		r.Header.Set("Authorization", "Bearer "+token)
		return f.Send(r).Status
	}
	var keys wire.Page[wire.SSHKey]
	f.Want(200, "GET", "/v1/ssh-keys", nil).Into(t, &keys)
	if got := as(eve, "POST", "/v1/ssh-keys", map[string]any{"public_key": text}); got != 409 {
		t.Errorf("the key of another user: %d, want 409", got)
	}
	if got := as(eve, "DELETE", "/v1/ssh-keys/"+keys.Items[0].ID, nil); got != 404 {
		t.Errorf("removal by another user: %d, want 404", got)
	}

	// A limited token adds limited keys only.
	var narrow, reading, ending wire.NewToken
	f.Want(201, "POST", "/v1/tokens", map[string]any{"workspace_only": true}).Into(t, &narrow)
	f.Want(201, "POST", "/v1/tokens", map[string]any{"scopes": []string{"tokens:write", "sandboxes:read"}}).Into(t, &reading)
	f.Want(201, "POST", "/v1/tokens", map[string]any{"expires_in_seconds": 3600}).Into(t, &ending)
	if _, key := f.addKey(narrow.Secret, nil); key.WorkspaceID != narrow.WorkspaceID {
		t.Errorf("key of a token of one workspace: %+v", key)
	}
	_, text = newKey(t)
	for what, token := range map[string]string{"may only read": reading.Secret, "expires": ending.Secret} {
		if got := as(token, "POST", "/v1/ssh-keys", map[string]any{"public_key": text}); got != 403 {
			t.Errorf("a token that %s: %d, want 403", what, got)
		}
	}
	if got := as(narrow.Secret, "DELETE", "/v1/ssh-keys/"+keys.Items[0].ID, nil); got != 404 {
		t.Errorf("removal of a wider key: %d, want 404", got)
	}
}

func TestKeysPerUser(t *testing.T) {
	f := start(t, sshd.Config{})
	for range 100 {
		f.addKey("", nil)
	}
	_, text := newKey(t)
	if a := f.Want(429, "POST", "/v1/ssh-keys", map[string]any{"public_key": text}); !strings.Contains(string(a.Body), "100") {
		t.Errorf("one key more: %s", a.Body)
	}
}

// A key opens only what its user may use, and only while that is so.
func TestKeyRights(t *testing.T) {
	f := start(t, sshd.Config{})
	var own wire.Workspace
	f.Want(201, "POST", "/v1/workspaces", map[string]any{"name": "team"}).Into(t, &own)
	eve, token := f.user("eve")
	member := "/v1/workspaces/" + own.ID + "/members"
	f.Want(201, "POST", member, map[string]any{"email": "eve", "role": "member"})
	signer, key := f.addKey(token, nil)
	limited, _ := f.addKey(token, map[string]any{"workspace_only": true})
	team := own.Slug + "/x"
	if _, banner, err := f.dial(team, ssh.PublicKeys(limited)); err == nil || !strings.Contains(banner, "no such workspace") {
		t.Errorf("a key of another workspace: %v, banner %q", err, banner)
	}
	for what, end := range map[string]func(){
		"role":    func() { f.Want(200, "PUT", member+"/"+eve.ID, map[string]any{"role": "viewer"}) },
		"member":  func() { f.Want(204, "DELETE", member+"/"+eve.ID, nil) },
		"deleted": func() { f.as(token, 204, "DELETE", "/v1/ssh-keys/"+key.ID) },
	} {
		f.Want(200, "PUT", member+"/"+eve.ID, map[string]any{"role": "member"})
		c, _, err := f.dial(team, ssh.PublicKeys(signer))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		end()
		_ = c.Wait() // the server ends the connection
		if _, _, err := f.dial(team, ssh.PublicKeys(signer)); err == nil {
			t.Errorf("%s: logged in afterwards", what)
		}
		if what == "member" {
			f.Want(201, "POST", member, map[string]any{"email": "eve", "role": "member"})
		}
		if what == "deleted" {
			signer, key = f.addKey(token, nil)
		}
	}
	f.Want(200, "PUT", member+"/"+eve.ID, map[string]any{"role": "member"})
	c, _, err := f.dial(team, ssh.PublicKeys(signer))
	if err != nil {
		t.Fatal(err)
	}
	f.Want(204, "DELETE", "/v1/users/"+eve.ID, nil)
	_ = c.Wait()
	if _, _, err := f.dial(team, ssh.PublicKeys(signer)); err == nil {
		t.Error("logged in by the key of a deleted user")
	}
}

func (f *fixture) as(token string, want int, method, path string) {
	f.T.Helper()
	r := f.Request(method, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	if a := f.Send(r); a.Status != want {
		f.T.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
}

// A key stops working, and its connections end, at its expiry.
func TestExpiredKey(t *testing.T) {
	f := start(t, sshd.Config{})
	signer, _ := f.addKey("", map[string]any{"expires_in_seconds": 2})
	c, _, err := f.dial("x", ssh.PublicKeys(signer))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if _, _, err := f.dial("x", ssh.PublicKeys(signer)); err == nil {
		t.Error("logged in by an expired key")
	}
	if list := string(f.Want(200, "GET", "/v1/ssh-keys", nil).Body); strings.Contains(list, "SHA256:") {
		t.Errorf("keys after their expiry: %s", list)
	}
}
