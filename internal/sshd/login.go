package sshd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshkey"
)

// needs is the permission of everything over SSH.
const needs = account.SandboxesWrite

// Operations for the audit log, under the names of the HTTP API.
var (
	loginOperation   = audit.Operation{Action: "login", Route: "ssh login", Needs: needs}
	sessionOperation = audit.Operation{Action: "exec-attach", Route: "ssh session", Needs: needs}
)

// login is the login of a connection.
type login struct {
	server *Server
	ctx    context.Context // of the connection
	remote string
	in     *signedIn // nil before it succeeded

	// unknown is the fingerprint of the last key that the client has and nobody has added, with the client's
	// program; "" if there is none.
	unknown, program string
}

// signedIn is a login that succeeded.
type signedIn struct {
	auth.Identity
	// key is the SSH key of the login; its ID is "" for a login by token.
	key account.SSHKey

	// ref is the sandbox that the login names, by name or ID.
	ref    string
	remote string
	// program is the version string of the client.
	program string
	// release gives back the place among the user's connections.
	release func()
}

// caller returns the identity as the caller of the services.
func (a *signedIn) caller() sandbox.Caller {
	return sandbox.Caller{User: a.User, Workspace: a.Workspace, ShortIDs: true}
}

type signedInKey struct{}

func (l *login) config(raw net.Conn) *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{
		MaxAuthTries: loginTries, ServerVersion: "SSH-2.0-Modbox", PasswordCallback: l.password,
		PublicKeyAuthAlgorithms: sshkey.SignatureAlgorithms, PublicKeyCallback: anyKey, VerifiedPublicKeyCallback: l.publicKey,
	}
	if v, ok := raw.(vouched); ok && len(v.Vouched()) > 0 {
		cfg.NoClientAuth = true
		cfg.NoClientAuthCallback = func(meta ssh.ConnMetadata) (*ssh.Permissions, error) { return l.vouched(meta, v.Vouched()) }
	}
	cfg.AddHostKey(l.server.hostKey)
	return cfg
}

// of returns the login of a connection that it signed in. A client may offer several keys before it
// proves that it has one: only the permissions of the connection belong to that one.
func (l *login) of(conn *ssh.ServerConn) *signedIn {
	return conn.Permissions.ExtraData[signedInKey{}].(*signedIn)
}

// abandon undoes a login whose connection ended before it was used.
func (l *login) abandon() {
	if l.in != nil {
		l.in.release()
	}
}

// password checks an API token.
func (l *login) password(meta ssh.ConnMetadata, token []byte) (*ssh.Permissions, error) {
	return l.authenticate(meta, account.SSHKey{}, func(ctx context.Context, ws string) (auth.Identity, error) {
		return l.server.deps.Logins.Token(ctx, l.remote, string(token), ws, needs)
	})
}

// anyKey accepts every key that a client asks about: a client without the private key does not learn which
// public keys the server knows. [login.publicKey] decides, after the proof.
func anyKey(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) {
	return &ssh.Permissions{}, nil
}

var errUnknownKey = sandbox.Errorf(sandbox.Unauthenticated, "the SSH key is unknown or was deleted")

// publicKey checks a key that the client has proven to have.
func (l *login) publicKey(meta ssh.ConnMetadata, public ssh.PublicKey, _ *ssh.Permissions, _ string) (*ssh.Permissions, error) {
	key, err := l.server.deps.Keys.Find(l.ctx, public)
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		// Clients offer all keys they have: only the failure of the whole login is recorded.
		l.unknown, l.program = ssh.FingerprintSHA256(public), string(meta.ClientVersion())
		return nil, errUnknownKey
	case err != nil:
		return nil, l.refusal(err)
	}
	return l.authenticate(meta, key, func(ctx context.Context, ws string) (auth.Identity, error) {
		return l.server.deps.Keys.Login(ctx, l.remote, key, ws, needs)
	})
}

// failed records that the login failed, if the client offered keys that nobody has added.
func (l *login) failed() {
	if l.unknown == "" || l.in != nil {
		return
	}
	// The error is the client's, which is gone.
	_ = l.server.deps.Audit.Operate(l.ctx, &loginOperation, audit.Actor{}, l.remote, l.program, func(ctx context.Context) error {
		audit.FromContext(ctx).Detail("ssh_key", l.unknown)
		return errUnknownKey
	})
}

// authenticate records the login of a client by a key, or by a token if the key's ID is "". The identity comes from
// identify, given the workspace that the client names.
func (l *login) authenticate(meta ssh.ConnMetadata, key account.SSHKey, identify func(ctx context.Context, ws string) (auth.Identity, error)) (*ssh.Permissions, error) {
	in := &signedIn{key: key, remote: l.remote, program: string(meta.ClientVersion())}
	err := l.server.deps.Audit.Operate(l.ctx, &loginOperation, audit.Actor{}, l.remote, in.program, func(ctx context.Context) error {
		ws, ref, err := target(meta.User())
		if err != nil {
			return err
		}
		in.ref = ref
		in.Identity, err = identify(ctx, ws)
		entry := audit.FromContext(ctx)
		entry.By(in.Actor())
		entry.Detail("ssh_key", key.Fingerprint)
		if err != nil {
			return err
		}
		entry.Object("user", string(in.User), "")
		entry.Detail("sandbox", ref)
		return entry.Begin(ctx)
	})
	if err != nil {
		return nil, l.refusal(err)
	}
	l.abandon()
	if in.release = l.server.users.take(string(in.User)); in.release == nil {
		return nil, l.refusal(tooMany("SSH connections"))
	}
	l.in = in
	return &ssh.Permissions{ExtraData: map[any]any{signedInKey{}: in}}, nil
}

// refusal returns the error of a login that failed, with a text that clients show unless the
// credential itself was wrong.
func (l *login) refusal(err error) error {
	if sandbox.CodeOf(err) == sandbox.Unauthenticated {
		return err
	}
	return &ssh.BannerError{Err: err, Message: "modbox: " + l.server.explain(err) + "\r\n"}
}

// agentuityPrefix begins the ids of sandboxes in the dialect of Agentuity, whose command line has them
// as user names.
const agentuityPrefix = "sbx_"

// target returns the workspace and the sandbox that the user name of a login names: SANDBOX in the
// default workspace, or WORKSPACE/SANDBOX. An id in Agentuity's form becomes an id in ours.
func target(user string) (ws, ref string, err error) {
	ref = user
	if before, after, ok := strings.Cut(user, "/"); ok {
		if ws, ref = before, after; ws == "" {
			ref = ""
		}
	}
	if ref == "" || strings.Contains(ref, "/") {
		return "", "", sandbox.InvalidField("user", "must be SANDBOX or WORKSPACE/SANDBOX, as in ssh SANDBOX@HOST")
	}
	if hex, found := strings.CutPrefix(ref, agentuityPrefix); found {
		if id, ok := sandbox.ParseHex(hex); ok {
			ref = id
		}
	}
	return ws, ref, nil
}

// explain returns the text of an error for the client, and logs an error that is the server's.
func (s *Server) explain(err error) string {
	var known *sandbox.Error
	switch {
	case errors.Is(err, errGone):
		return "the connection ended"
	case !errors.As(err, &known) || known.Code == sandbox.Internal:
		s.deps.Logger.Error("SSH", "error", err)
		return "an internal error; the server's log has the reason"
	case known.Field != "":
		return fmt.Sprintf("%s: %s", known.Field, known.Message)
	}
	return known.Message
}
