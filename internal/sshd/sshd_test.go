package sshd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sshd"
)

// fixture is an SSH server over the fake driver.
type fixture struct {
	*apitest.Server
	ssh     *sshd.Server
	address string
	hostKey ssh.PublicKey
}

// start starts a server with a sandbox named x.
func start(t *testing.T, cfg sshd.Config) *fixture {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	s := apitest.New(t)
	key, err := sshd.HostKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, ssh: sshd.New(cfg, key, s.SSH()), hostKey: key.PublicKey()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.ssh.Serve(l) }()
	t.Cleanup(func() {
		f.ssh.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		s.HTTP.CloseIdleConnections()
	})
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "x", "wait_seconds": 180})
	return f
}

// dial logs in as a user with a method.
func (f *fixture) dial(user string, method ssh.AuthMethod) (*ssh.Client, string, error) {
	var banner strings.Builder
	c, err := ssh.Dial("tcp", f.address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{method}, HostKeyCallback: ssh.FixedHostKey(f.hostKey),
		BannerCallback: func(m string) error { banner.WriteString(m); return nil },
	})
	return c, banner.String(), err
}

// login logs in with the server's token.
func (f *fixture) login(user string) *ssh.Client {
	f.T.Helper()
	c, _, err := f.dial(user, ssh.Password(f.Token))
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { c.Close() })
	return c
}

// run runs a command line and returns its outputs and exit status.
func run(t *testing.T, c *ssh.Client, line, stdin string) (stdout, stderr string, status int) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out, errs bytes.Buffer
	s.Stdin, s.Stdout, s.Stderr = strings.NewReader(stdin), &out, &errs
	err = s.Run(line)
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		status = exit.ExitStatus()
	case err != nil:
		t.Fatalf("%s: %v; stderr %q", line, err, errs.String())
	}
	return out.String(), errs.String(), status
}

func TestExec(t *testing.T) {
	f := start(t, sshd.Config{})
	c := f.login("x")
	for _, test := range []struct {
		line, stdin, stdout, stderr string
		status                      int
	}{
		{line: "echo out; echo err >&2; exit 5", stdout: "out\n", stderr: "err\n", status: 5},
		{line: "cat", stdin: strings.Repeat("0123456789", 100_000), stdout: strings.Repeat("0123456789", 100_000)},
		{line: "true"},
	} {
		stdout, stderr, status := run(t, c, test.line, test.stdin)
		if stdout != test.stdout || stderr != test.stderr || status != test.status {
			t.Errorf("%s: %d bytes of stdout, stderr %q, status %d; want %d bytes, %q, %d", test.line, len(stdout), stderr, status, len(test.stdout), test.stderr, test.status)
		}
	}
}

func TestEnvironment(t *testing.T) {
	f := start(t, sshd.Config{})
	s, err := f.login("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Setenv("LC_ALL", "de_DE.UTF-8"); err != nil {
		t.Error(err)
	}
	if err := s.Setenv("LD_PRELOAD", "/tmp/x"); err == nil {
		t.Error("LD_PRELOAD was taken")
	}
	out, err := s.Output("echo $LC_ALL $LD_PRELOAD")
	if err != nil || string(out) != "de_DE.UTF-8\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestTerminal(t *testing.T) {
	f := start(t, sshd.Config{})
	s, err := f.login("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RequestPty("xterm-256color", 30, 100, ssh.TerminalModes{}); err != nil {
		t.Fatal(err)
	}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(`stty size; echo $TERM; read x; until [ "$(stty size)" = "40 120" ]; do sleep 0.01; done; echo resized`); err != nil {
		t.Fatal(err)
	}
	var got []byte
	until := func(text string) {
		t.Helper()
		b := make([]byte, 1024)
		for !strings.Contains(string(got), text) {
			n, err := out.Read(b)
			got = append(got, b[:n]...)
			if err != nil {
				t.Fatalf("%v after %q, want %q", err, got, text)
			}
		}
	}
	until("30 100\r\nxterm-256color\r\n")
	if err := s.WindowChange(40, 120); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(in, "\n")
	until("resized\r\n")
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSignal(t *testing.T) {
	f := start(t, sshd.Config{})
	s, err := f.login("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready; exec sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(ssh.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &exit) || exit.Signal() != "TERM" {
		t.Errorf("end of a command that SIGTERM ended: %v", err)
	}
}

func TestRefusedLogins(t *testing.T) {
	f := start(t, sshd.Config{})
	var limited wire.NewToken
	f.Want(201, "POST", "/v1/tokens", map[string]any{"scopes": []string{"sandboxes:read"}}).Into(t, &limited)
	for _, test := range []struct{ what, user, password, banner string }{
		{"a wrong token", "x", f.Token[:len(f.Token)-1] + "z", ""},
		{"no token", "x", "secret", ""},
		{"a token that may only read", "x", limited.Secret, "sandboxes:write"},
		{"a workspace that does not exist", "nowhere/x", f.Token, "no such workspace"},
		{"no sandbox", "", f.Token, "SANDBOX"},
		{"too many names", "a/b/c", f.Token, "WORKSPACE/SANDBOX"},
	} {
		c, banner, err := f.dial(test.user, ssh.Password(test.password))
		if err == nil {
			c.Close()
			t.Errorf("%s: logged in", test.what)
		}
		if !strings.Contains(banner, test.banner) {
			t.Errorf("%s: banner %q, want %q in it", test.what, banner, test.banner)
		}
	}
}

// TestAgentuityID logs in with the id in the form of Agentuity's command line; what only looks like it is a name.
func TestAgentuityID(t *testing.T) {
	f := start(t, sshd.Config{})
	var sb wire.Sandbox
	f.Want(200, "GET", "/v1/sandboxes/x", nil).Into(t, &sb)
	hex := strings.ReplaceAll(sb.ID, "-", "")
	if stdout, stderr, status := run(t, f.login("sbx_"+hex), "echo in", ""); stdout != "in\n" || status != 0 {
		t.Errorf("sbx_%s: %q, %q, %d", hex, stdout, stderr, status)
	}
	for _, ref := range []string{"sbx_" + hex[1:], "sbx_" + strings.ToUpper(hex), "sbx_" + sb.ID} {
		if _, stderr, status := run(t, f.login(ref), "echo in", ""); status != 255 || !strings.Contains(stderr, "no sandbox") {
			t.Errorf("%s: %q, %d, want no sandbox", ref, stderr, status)
		}
	}
}

// A sandbox of another workspace and a sandbox that does not exist look the same.
func TestOtherSandboxes(t *testing.T) {
	f := start(t, sshd.Config{})
	f.Want(201, "POST", "/v1/users", map[string]any{"name": "eve", "password": "correct horse battery"})
	var tokens wire.SessionTokens
	f.Want(200, "POST", "/v1/auth/login", map[string]any{"username": "eve", "password": "correct horse battery"}).Into(t, &tokens)
	r := f.Request("POST", "/v1/tokens", map[string]any{})
	r.Header.Set("Authorization", "Bearer "+tokens.AccessToken)
	var token wire.NewToken
	f.Send(r).Into(t, &token)
	answers := map[string]string{}
	for _, ref := range []string{"x", "y"} {
		c, _, err := f.dial(ref, ssh.Password(token.Secret))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, stderr, status := run(t, c, "echo in", "")
		_, dialed := c.Dial("tcp", "localhost:80")
		answers[ref] = strings.NewReplacer(`"`+ref+`"`, "REF", `\"`+ref+`\"`, "REF").Replace(fmt.Sprint(stderr, status, dialed))
	}
	if answers["x"] != answers["y"] || !strings.Contains(answers["x"], "no sandbox") || !strings.Contains(answers["x"], "255") {
		t.Errorf("another's sandbox: %q, none: %q", answers["x"], answers["y"])
	}
}

func TestForward(t *testing.T) {
	f := start(t, sshd.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b, _ := io.ReadAll(conn)
			_, _ = conn.Write(append([]byte("got "), b...))
			conn.Close()
		}
	}()
	c := f.login("x")
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		conn, err := c.Dial("tcp", host+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "hello")
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		b, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || string(b) != "got hello" {
			t.Errorf("%s: %q, %v", host, b, err)
		}
	}
	if _, err := c.Dial("tcp", "10.0.0.1:80"); err == nil || !strings.Contains(err.Error(), "sandbox itself") {
		t.Errorf("another host: %v, want it refused", err)
	}
	for _, path := range []string{"", strings.Repeat("p", 108), "a\x00b"} {
		if _, err := c.Dial("unix", path); err == nil || !strings.Contains(err.Error(), "not valid") {
			t.Errorf("socket %.20q: %v, want it refused", path, err)
		}
	}
	if _, err := c.Dial("unix", "/tmp/s.sock"); err == nil || !strings.Contains(err.Error(), "agent") { // which the fake driver has not
		t.Errorf("socket without the program that connects it: %v", err)
	}
	if _, err := c.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a port of the server was forwarded")
	}
}

func TestLimits(t *testing.T) {
	f := start(t, sshd.Config{MaxPerUser: 2})
	first := f.login("x")
	f.login("x")
	if _, banner, err := f.dial("x", ssh.Password(f.Token)); err == nil || !strings.Contains(banner, "too many") {
		t.Errorf("a third connection: %v, banner %q", err, banner)
	}
	for i := range 32 {
		s, err := first.NewSession()
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		if err := s.Start("exec sleep 1000"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := first.NewSession(); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("one session more: %v", err)
	}
}

// A connection ends when its token is revoked.
func TestRevokedToken(t *testing.T) {
	f := start(t, sshd.Config{})
	var token wire.NewToken
	f.Want(201, "POST", "/v1/tokens", map[string]any{}).Into(t, &token)
	c, _, err := f.dial("x", ssh.Password(token.Secret))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	s.Stderr = &stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready; sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	f.Want(204, "DELETE", "/v1/tokens/"+token.ID, nil)
	if err := s.Wait(); err == nil || !strings.Contains(stderr.String(), "revoked") {
		t.Errorf("session of a revoked token: %v, stderr %q", err, stderr.String())
	}
	_ = c.Wait()
	if _, _, err := f.dial("x", ssh.Password(token.Secret)); err == nil {
		t.Error("logged in with a revoked token")
	}
}

func TestStop(t *testing.T) {
	f := start(t, sshd.Config{})
	s, err := f.login("x").NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	s.Stderr = &stderr
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("echo ready; sleep 1000"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	f.ssh.Close()
	if err := s.Wait(); err == nil || !strings.Contains(stderr.String(), "the server stops") {
		t.Errorf("session when the server stops: %v, stderr %q", err, stderr.String())
	}
}

func TestAudit(t *testing.T) {
	f := start(t, sshd.Config{})
	c := f.login("x")
	run(t, c, "echo in the log", "")
	_, _, _ = f.dial("x", ssh.Password(f.Token[:len(f.Token)-1]+"z"))
	log := string(f.Want(200, "GET", "/v1/audit?action=exec-attach", nil).Body)
	if !strings.Contains(log, "echo in the log") || !strings.Contains(log, `"exit_code":"0"`) || !strings.Contains(log, "ssh session") {
		t.Errorf("audit log of a session: %s", log)
	}
	logins := string(f.Want(200, "GET", "/v1/audit/installation?action=login", nil).Body)
	if strings.Count(logins, "ssh login") != 2 || !strings.Contains(logins, `"outcome":"unauthenticated"`) {
		t.Errorf("audit log of logins: %s", logins)
	}
}
