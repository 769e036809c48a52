package ssh

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/durable"
)

const (
	// ownKeyLifetime is the lifetime of the key of this machine; the commands add the key again after that.
	ownKeyLifetime = 90 * 24 * time.Hour
	ownKeyFile     = "id_ed25519"
)

// access has the address, host key and login with which OpenSSH's client reaches the sandboxes of a server.
type access struct {
	env    *base.Env
	client *client.Client
	dir    string // of the files below
	host   string
	port   int
	known  string // file with the host keys
	// identity is the file of the private key; "" leaves the choice to ssh.
	identity string
}

// open asks the server how it is reached over SSH and writes its host keys to a file. identity is the file of
// a private key; "" is the key of this machine, which is made and added as needed.
func open(ctx context.Context, env *base.Env, identity string) (*access, error) {
	c, err := env.Client()
	if err != nil {
		return nil, err
	}
	server, err := c.SSHKeys.Server(ctx)
	if err != nil {
		return nil, err
	}
	if !server.Enabled {
		return nil, fmt.Errorf("the server %s has no SSH; its operator turns it on with ssh.listen", env.ServerURL())
	}
	a := &access{env: env, client: c, host: server.Host, port: server.Port, identity: identity}
	if a.host == "" {
		u, err := url.Parse(env.ServerURL())
		if err != nil {
			return nil, err
		}
		a.host = u.Hostname()
	}
	if strings.ContainsAny(a.host, " \t\r\n\"'*?!,") || strings.HasPrefix(a.host, "-") {
		return nil, fmt.Errorf("the server names %q as its host for SSH, which is no host name", a.host)
	}
	if a.dir, err = env.ConfigDir(); err != nil {
		return nil, err
	}
	a.dir = filepath.Join(a.dir, "ssh")
	if err := durable.MkdirAll(a.dir); err != nil {
		return nil, err
	}
	if err := a.writeKnownHosts(server.HostKeys); err != nil {
		return nil, err
	}
	if a.identity == "" {
		a.identity, err = a.ownKey(ctx)
	}
	return a, err
}

// writeKnownHosts writes the host keys of the server to a file of their own.
func (a *access) writeKnownHosts(keys []client.SSHHostKey) error {
	name := a.host
	if a.port != 22 {
		name = fmt.Sprintf("[%s]:%d", a.host, a.port)
	}
	var text strings.Builder
	for _, key := range keys {
		public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key.PublicKey))
		if err != nil {
			return fmt.Errorf("host key of %s: %w", name, err)
		}
		text.WriteString(name + " " + string(ssh.MarshalAuthorizedKey(public)))
	}
	file := strings.NewReplacer(":", "_", "/", "_").Replace(net.JoinHostPort(a.host, strconv.Itoa(a.port)))
	a.known = filepath.Join(a.dir, "known_hosts-"+file)
	return replace(a.known, text.String(), 0o600)
}

// ownKey returns the file of this machine's private key. It makes the key if there is none, and adds it to the
// user's keys on the server unless it is there.
func (a *access) ownKey(ctx context.Context) (string, error) {
	file := filepath.Join(a.dir, ownKeyFile)
	signer, err := readOrMakeKey(file)
	if err != nil {
		return "", err
	}
	keys := a.client.SSHKeys
	fingerprint := ssh.FingerprintSHA256(signer.PublicKey())
	for key, err := range keys.List().All(ctx) {
		if err != nil {
			return "", err
		}
		if key.Fingerprint == fingerprint {
			return file, nil
		}
	}
	host, _ := os.Hostname() // only a name for people
	_, err = keys.Add(ctx, string(ssh.MarshalAuthorizedKey(signer.PublicKey())), client.SSHKeyOptions{
		Name: "modbox on " + cmp.Or(host, "a machine"), Lifetime: ownKeyLifetime,
	})
	if client.IsCode(err, client.Exists) {
		// It is somebody else's: the user of this machine has another account on the server as well.
		return "", fmt.Errorf("%w\nAnother account of yours has the key %s; name another with --identity", err, file)
	}
	if err != nil {
		return "", fmt.Errorf("add the key of this machine: %w", err)
	}
	return file, nil
}

func readOrMakeKey(file string) (ssh.Signer, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = makeKey(file)
	}
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return signer, nil
}

// makeKey makes a private key in a file, unless another process has made it meanwhile.
func makeKey(file string) ([]byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "modbox")
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".key-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(pem.Encode(f, block), f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(file)
}

// options returns the options of OpenSSH's client, as in its configuration file.
func (a *access) options(sb client.Sandbox) [][2]string {
	list := [][2]string{
		{"HostName", a.host}, {"Port", strconv.Itoa(a.port)}, {"User", sb.WorkspaceID + "/" + sb.ID},
		{"UserKnownHostsFile", quote(a.known)}, {"GlobalKnownHostsFile", "/dev/null"}, {"StrictHostKeyChecking", "yes"}, {"UpdateHostKeys", "no"},
	}
	if a.identity != "" {
		list = append(list, [2]string{"IdentityFile", quote(a.identity)}, [2]string{"IdentitiesOnly", "yes"})
	}
	return list
}

// quote quotes a file name for OpenSSH's configuration, where a percent sign begins a token.
func quote(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }

// replace replaces the content of a file at once.
func replace(name, text string, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".modbox-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename, as it should
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
