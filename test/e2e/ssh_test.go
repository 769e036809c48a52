package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// sshClient runs the programs of OpenSSH against a server.
type sshClient struct {
	t   *testing.T
	dir string // with the files of the client
	// options are for all programs, login is USER@HOST.
	options []string
	login   string
}

// openSSH returns OpenSSH for a sandbox of a server that was started with --ssh-listen. It knows the
// server's host key, and has its token as password.
func openSSH(t *testing.T, s *testserver.Server, user string) *sshClient {
	t.Helper()
	return openSSHAt(t, s.Client, s.Token, "", user)
}

// openSSHAt is [openSSH] with a client and its token, for a server that listens at an address; "" is the address that the server says.
func openSSHAt(t *testing.T, c *client.Client, token, address, user string) *sshClient {
	t.Helper()
	at, err := c.SSHKeys.Server(t.Context())
	if err != nil || !at.Enabled || len(at.HostKeys) != 1 {
		t.Fatalf("SSH server: %+v, %v", at, err)
	}
	host, port := at.Host, strconv.Itoa(at.Port)
	if address != "" {
		if host, port, err = net.SplitHostPort(address); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	known := write("known_hosts", fmt.Sprintf("[%s]:%s %s\n", host, port, at.HostKeys[0].PublicKey), 0o600)
	write("askpass", "#!/bin/sh\necho "+token+"\n", 0o700)
	return &sshClient{t: t, dir: dir, login: user + "@" + host, options: []string{
		"-F", "none", "-o", "Port=" + port, "-o", "UserKnownHostsFile=" + known, "-o", "StrictHostKeyChecking=yes",
		"-o", "NumberOfPasswordPrompts=1", "-o", "BatchMode=no", "-o", "LogLevel=INFO",
	}}
}

func (s *sshClient) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, append(append([]string{}, s.options...), args...)...)
	c.Env = append(os.Environ(), "SSH_ASKPASS="+filepath.Join(s.dir, "askpass"), "SSH_ASKPASS_REQUIRE=force", "SSH_AUTH_SOCK=")
	c.Dir = s.dir
	return c
}

// run runs a program of OpenSSH and returns its outputs and exit code.
func (s *sshClient) run(program, stdin string, args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	c := s.command(ctx, program, args...)
	return s.result(c, stdin)
}

func (s *sshClient) result(c *exec.Cmd, stdin string) (stdout, stderr string, code int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &out, &errs
	if err := c.Run(); err != nil && c.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// must is run, and fails the test unless the program succeeds.
func (s *sshClient) must(program, stdin string, args ...string) string {
	s.t.Helper()
	stdout, stderr, code := s.run(program, stdin, args...)
	if code != 0 {
		s.t.Fatalf("%s %v: exit code %d, stdout %q, stderr %q", program, args, code, stdout, stderr)
	}
	return stdout
}

// TestSSH uses a sandbox with OpenSSH's programs.
func TestSSH(t *testing.T) {
	s := testserver.Start(t, "--ssh-listen", "127.0.0.1:0")
	sb := s.MustCreate(client.CreateOptions{Name: "box"})
	ssh := openSSH(t, s, "box")

	stdout, stderr, code := ssh.run("ssh", "", ssh.login, "echo out; echo err >&2; exit 5")
	if stdout != "out\n" || stderr != "err\n" || code != 5 {
		t.Errorf("command: stdout %q, stderr %q, exit code %d", stdout, stderr, code)
	}
	if got := ssh.must("ssh", "pwd; echo $0; id -un\n", ssh.login); !strings.Contains(got, "/workspace\n") && !strings.Contains(got, "/\n") {
		t.Errorf("shell: %q", got)
	}
	if got := ssh.must("ssh", "", "-tt", ssh.login, "tty; stty size"); !strings.Contains(got, "/dev/pts/") {
		t.Errorf("terminal: %q", got)
	}
	if _, _, code := ssh.run("ssh", "", ssh.login, "kill -TERM $$"); code != 255 { // as OpenSSH shows a signal
		t.Errorf("exit code after a signal %d, want 255", code)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if got := ssh.must("ssh", big, ssh.login, "cat"); got != big {
		t.Errorf("%d bytes came back of %d", len(got), len(big))
	}
	testSSHFiles(t, func(script string) *client.ExecResult { return s.Bash(sb.ID, script, time.Minute) }, ssh, big)
	testRsync(t, s, sb, ssh)
	testSSHForward(t, s, sb, ssh)

	// A paused sandbox resumes.
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if got := ssh.must("ssh", "", ssh.login, "cat /tmp/file"); got != big {
		t.Errorf("file after a pause: %d bytes", len(got))
	}
	// A session of a client that dies ends.
	c := ssh.command(t.Context(), "ssh", ssh.login, "echo $$ > /tmp/pid; echo ready; exec sleep 100000")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if res := s.Bash(sb.ID, "while [ -d /proc/$(cat /tmp/pid) ]; do sleep 0.1; done", time.Minute); res.ExitCode != 0 {
		t.Errorf("the command of a client that died runs on: %+v", res)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := ssh.run("ssh", "", ssh.login, "true"); code != 255 || !strings.Contains(stderr, "modbox:") {
		t.Errorf("ended sandbox: %q, exit code %d", stderr, code)
	}
}

// testSSHFiles copies files; run runs a script in the sandbox.
func testSSHFiles(t *testing.T, run func(script string) *client.ExecResult, ssh *sshClient, big string) {
	t.Helper()
	local := func(name string) string { return filepath.Join(ssh.dir, name) }
	if err := os.WriteFile(local("file"), []byte(big), 0o640); err != nil {
		t.Fatal(err)
	}
	ssh.must("scp", "", "-p", local("file"), ssh.login+":/tmp/file")
	ssh.must("scp", "", ssh.login+":/tmp/file", local("back"))
	if b, err := os.ReadFile(local("back")); err != nil || string(b) != big {
		t.Errorf("scp brought %d bytes back of %d, %v", len(b), len(big), err)
	}
	batch := "mkdir relative\nput " + local("file") + " relative/a\nrename relative/a relative/b\nchmod 600 relative/b\nls -l relative\nget relative/b " + local("sftp") + "\nln -s b relative/c\n"
	if got := ssh.must("sftp", batch, "-b", "-", ssh.login); !strings.Contains(got, "-rw-------") {
		t.Errorf("sftp: %q", got)
	}
	if b, err := os.ReadFile(local("sftp")); err != nil || string(b) != big {
		t.Errorf("sftp brought %d bytes of %d, %v", len(b), len(big), err)
	}
	if res := run("readlink relative/c && cmp /tmp/file relative/b && stat -c %a /tmp/file"); string(res.Stdout) != "b\n640\n" {
		t.Errorf("files in the sandbox: %+v", res)
	}
	if _, _, code := ssh.run("sftp", "rm /proc/version\n", "-b", "-", ssh.login); code == 0 {
		t.Error("sftp removed a file of the system")
	}
}

// testRsync runs rsync, of which images have none, with the program and the libraries of this machine.
func testRsync(t *testing.T, s *testserver.Server, sb *client.Sandbox, ssh *sshClient) {
	t.Helper()
	program, err := exec.LookPath("rsync")
	if err != nil {
		t.Fatal(err)
	}
	linked, err := exec.CommandContext(t.Context(), "ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	files, loader := []string{program}, ""
	for _, field := range strings.Fields(string(linked)) {
		if strings.HasPrefix(field, "/") {
			files = append(files, field)
			if strings.Contains(field, "/ld-linux") {
				loader = filepath.Base(field)
			}
		}
	}
	s.Bash(sb.ID, "mkdir /tmp/rs", time.Minute)
	ssh.must("scp", "", append(files, ssh.login+":/tmp/rs/")...)
	tree := filepath.Join(ssh.dir, "tree", "below")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "file"), []byte("synced"), 0o600); err != nil {
		t.Fatal(err)
	}
	sync := func(from, to string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "rsync", "-a", "--rsync-path", "/tmp/rs/"+loader+" --library-path /tmp/rs /tmp/rs/rsync",
			"-e", "ssh "+strings.Join(ssh.options, " "), from, to)
		c.Env = ssh.command(t.Context(), "ssh").Env
		if _, stderr, code := ssh.result(c, ""); code != 0 {
			t.Errorf("rsync: exit code %d, %s", code, stderr)
		}
	}
	sync(filepath.Dir(tree), ssh.login+":/tmp/synced")
	if res := s.Bash(sb.ID, "cat /tmp/synced/tree/below/file && echo more >> /tmp/synced/tree/below/file", time.Minute); string(res.Stdout) != "synced" {
		t.Errorf("what rsync brought: %+v", res)
	}
	sync(ssh.login+":/tmp/synced/tree", ssh.dir)
	if b, err := os.ReadFile(filepath.Join(tree, "file")); string(b) != "syncedmore\n" {
		t.Errorf("what rsync brought back: %q, %v", b, err)
	}
}

func testSSHForward(t *testing.T, s *testserver.Server, sb *client.Sandbox, ssh *sshClient) {
	t.Helper()
	serve(t, s, sb.ID, "3000")
	if got := ssh.must("ssh", "GET /x HTTP/1.0\r\n\r\n", "-W", "localhost:3000", ssh.login); !strings.Contains(got, "port 3000 /x") {
		t.Errorf("answer through a forwarded port: %q", got)
	}
	if _, stderr, code := ssh.run("ssh", "", "-W", "10.0.0.1:80", ssh.login); code == 0 || !strings.Contains(stderr, "sandbox itself") {
		t.Errorf("another host: %q, exit code %d", stderr, code)
	}
	if _, stderr, code := ssh.run("ssh", "", "-o", "ExitOnForwardFailure=yes", "-R", "4000:127.0.0.1:1", ssh.login, "true"); code == 0 || !strings.Contains(stderr, "remote port forwarding failed") {
		t.Errorf("a port of the sandbox for the client: %q, exit code %d", stderr, code)
	}

	// As editors do it: a shell without a terminal, whose input is a script, and SOCKS beside it; and a fixed port.
	socks, fixed := freePort(t), freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := ssh.command(ctx, "ssh", "-T", "-D", socks, "-L", fixed+":localhost:3000", ssh.login, "bash")
	c.Stdin = strings.NewReader("echo listening\nexec sleep 100000\n")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listening\n" {
		t.Errorf("the script said %q, %v", line, err)
	}
	for address, proxy := range map[string]string{"http://localhost:3000/x": "socks5h://" + socks, "http://" + fixed + "/x": ""} {
		transport := &http.Transport{DisableKeepAlives: true}
		if proxy != "" {
			at, err := url.Parse(proxy)
			if err != nil {
				t.Fatal(err)
			}
			transport.Proxy = http.ProxyURL(at)
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s by %q: %v", address, proxy, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(body), "port 3000 /x") {
			t.Errorf("%s by %q = %q", address, proxy, body)
		}
	}
	cancel()
	_ = c.Wait()
}

// freePort returns an address of this machine on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
