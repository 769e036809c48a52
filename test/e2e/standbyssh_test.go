package e2e_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
)

// terminal is a shell on a terminal of OpenSSH's client.
type terminal struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
	cmd *exec.Cmd
}

// openTerminal starts a shell.
func openTerminal(t *testing.T, ssh *sshClient) *terminal {
	t.Helper()
	cmd := ssh.command(t.Context(), "ssh", "-tt", ssh.login, "exec /bin/sh -i")
	in, out := start(t, cmd)
	return &terminal{t, in, bufio.NewReader(out), cmd}
}

// types types a command, and reads until a line of the screen is its output.
func (s *terminal) types(command, want string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		s.t.Fatal(err)
	}
	for screen := ""; ; {
		line, err := s.out.ReadString('\n')
		if screen += line; err != nil {
			s.t.Fatalf("the terminal has ended: %v; the screen is %q", err, screen)
		}
		if strings.TrimRight(line, "\r\n") == want {
			return
		}
	}
}

// TestStandbySSH uses a sandbox with OpenSSH's programs through a standby, kills the active server, and goes on at the standby, which has become active: with the same
// host key, and with what was in the sandbox.
func TestStandbySSH(t *testing.T) {
	stateDir := newStateDir(t)
	cluster := storetest.StartCluster(t)
	if err := os.Chmod(cluster.Dir, 0o755); err != nil { // for the socket
		t.Fatal(err)
	}
	args := []string{"--standby", "true", "--database-url", cluster.URL("postgres"), "--ssh-listen"}
	at := freePort(t)
	a, b := newControlServer(t, stateDir, slices.Concat(args, []string{freePort(t)})...), newControlServer(t, stateDir, slices.Concat(args, []string{at})...)
	a.launch()
	joinWorker(t, "worker-1", stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.forwards()
	b.buildBusybox()
	sb, err := b.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "box", Image: "app:v1", WaitUpTo: 5 * time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	token := strings.TrimSpace(read(filepath.Join(stateDir, "token")))
	ssh := openSSHAt(t, b.Client, token, at, "box")
	run := func(script string) *client.ExecResult { return b.run(sb.ID, script, time.Minute) }

	stdout, stderr, code := ssh.run("ssh", "", ssh.login, "echo out; echo err >&2; exit 5")
	if stdout != "out\n" || stderr != "err\n" || code != 5 {
		t.Errorf("command: stdout %q, stderr %q, exit code %d", stdout, stderr, code)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if got := ssh.must("ssh", big, ssh.login, "cat"); got != big {
		t.Errorf("%d bytes came back of %d", len(got), len(big))
	}
	testSSHFiles(t, run, ssh, big)
	shell := openTerminal(t, ssh)
	shell.types("tty | cut -c 1-9", "/dev/pts/")
	shell.types("n=41; echo $((n+1)) | tee /tmp/number", "42")
	run("setsid busybox httpd -f -p 127.0.0.1:8080 -h /srv >/dev/null 2>&1 &")
	until(t, "the server in the sandbox answers over SSH", func() bool {
		out, _, _ := ssh.run("ssh", "GET /file HTTP/1.0\r\n\r\n", "-W", "localhost:8080", ssh.login)
		return strings.HasSuffix(out, "built\n")
	})

	a.end(os.Kill)
	screen, _ := io.ReadAll(shell.out) // the connection of the session is cut off with its server
	if err := shell.cmd.Wait(); err == nil || shell.cmd.ProcessState.ExitCode() != 255 {
		t.Errorf("the session of the server that was killed has ended with %v, %q", err, screen)
	}
	if got := ssh.must("ssh", "", ssh.login, "cat /tmp/number"); got != "42\n" { // waits at the standby until that is active
		t.Errorf("after the takeover: %q", got)
	}
	b.active()
	if got := ssh.must("ssh", "", ssh.login, "cat /tmp/number; cmp /tmp/file relative/b && echo same"); got != "42\nsame\n" {
		t.Errorf("at the server that took over: %q", got)
	}
	openTerminal(t, ssh).types("cat /tmp/number", "42")
	if got := ssh.must("sftp", "ls -l relative\n", "-b", "-", ssh.login); !strings.Contains(got, "-rw-------") {
		t.Errorf("sftp after the takeover: %q", got)
	}
	if _, err := b.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
}
