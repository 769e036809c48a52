package e2e_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// keygen makes a key of a type with ssh-keygen and returns the file of the private key.
func (s *sshClient) keygen(name string, args ...string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	c := exec.CommandContext(s.t.Context(), "ssh-keygen", append([]string{"-q", "-N", "", "-C", name, "-f", file}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("ssh-keygen %v: %v, %s", args, err, out)
	}
	return file
}

// TestSSHKeys logs in with keys of ssh-keygen, by OpenSSH's programs.
func TestSSHKeys(t *testing.T) {
	s := testserver.Start(t, "--ssh-listen", "127.0.0.1:0")
	sb := s.MustCreate(client.CreateOptions{Name: "box"})
	ssh := openSSH(t, s, "box")
	keys := s.Client.SSHKeys
	options := ssh.options
	var last *client.SSHKey
	for name, args := range map[string][]string{
		"ed25519": {"-t", "ed25519"}, "ecdsa": {"-t", "ecdsa", "-b", "384"}, "rsa": {"-t", "rsa", "-b", "2048"},
	} {
		file := ssh.keygen(name, args...)
		ssh.options = append(append([]string{}, options...), "-o", "PreferredAuthentications=publickey", "-o", "IdentitiesOnly=yes", "-o", "IdentityFile="+file)
		if _, stderr, code := ssh.run("ssh", "", ssh.login, "true"); code != 255 || !strings.Contains(stderr, "Permission denied") {
			t.Errorf("%s before it was added: exit code %d, %q", name, code, stderr)
		}
		public, err := os.ReadFile(file + ".pub")
		if err != nil {
			t.Fatal(err)
		}
		if last, err = keys.Add(t.Context(), string(public), client.SSHKeyOptions{}); err != nil || last.Name != name {
			t.Fatalf("add the key %s: %+v, %v", name, last, err)
		}
		if got := ssh.must("ssh", "", ssh.login, "echo in"); got != "in\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	weak := ssh.keygen("weak", "-t", "rsa", "-b", "1024")
	public, err := os.ReadFile(weak + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Add(t.Context(), string(public), client.SSHKeyOptions{}); !client.IsCode(err, client.Invalid) {
		t.Errorf("an RSA key of 1024 bits: %v", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	testSSHFiles(t, func(script string) *client.ExecResult { return s.Bash(sb.ID, script, time.Minute) }, ssh, big)
	testRsync(t, s, sb, ssh)

	// A paused sandbox resumes, and the deletion of the key ends an open session.
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	c := ssh.command(t.Context(), "ssh", ssh.login, "echo ready; exec sleep 100000")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatalf("%v, %s", err, stderr.String())
	}
	if err := keys.Delete(t.Context(), last.Fingerprint); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(stderr.String(), "deleted") {
		t.Errorf("session of a deleted key: %v, %q", err, stderr.String())
	}
	if _, _, code := ssh.run("ssh", "", ssh.login, "true"); code != 255 {
		t.Errorf("login with a deleted key: exit code %d", code)
	}
}

// TestSSHCommands uses "modbox ssh" and "modbox ssh-config" as a user would, and a port that is forwarded across a
// pause.
func TestSSHCommands(t *testing.T) {
	s := testserver.Start(t, "--ssh-listen", "127.0.0.1:0")
	sb := s.MustCreate(client.CreateOptions{Name: "box"})
	home := t.TempDir()
	modbox := func(args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		t.Cleanup(cancel)
		c := exec.CommandContext(ctx, testserver.Binary(t), args...)
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "MODBOX_URL=" + s.URL, "MODBOX_API_TOKEN=" + s.Token}
		return c
	}
	run := func(c *exec.Cmd) string {
		t.Helper()
		out, err := c.Output()
		if err != nil {
			var stderr []byte
			if exit, ok := err.(*exec.ExitError); ok { // as Output returns it
				stderr = exit.Stderr
			}
			t.Fatalf("%v: %v, %s", c.Args, err, stderr)
		}
		return string(out)
	}
	for range 2 { // with a new key, and with the same key again
		if got := run(modbox("ssh", sb.ID[:20], "echo", "in")); got != "in\n" {
			t.Errorf("modbox ssh: %q", got)
		}
	}
	c := modbox("ssh", "box", "exit 5")
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != 5 {
		t.Errorf("exit code of modbox ssh: %v", err)
	}
	if list := run(modbox("ssh-key", "ls")); strings.Count(list, "SHA256:") != 1 {
		t.Errorf("keys after three logins: %s", list)
	}

	config := filepath.Join(home, ".ssh", "config")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	const before = "Host other\n    HostName other.example.com\n"
	if err := os.WriteFile(config, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := run(modbox("ssh-config")); got != "modbox-box\n" {
			t.Errorf("modbox ssh-config: %q", got)
		}
	}
	if b, err := os.ReadFile(config); err != nil || strings.Count(string(b), "Include") != 1 || !strings.HasSuffix(string(b), before) {
		t.Errorf("configuration: %q, %v", b, err)
	}
	openssh := exec.CommandContext(t.Context(), "ssh", "-F", config, "modbox-box", "echo in")
	if got := run(openssh); got != "in\n" {
		t.Errorf("ssh with the configuration: %q", got)
	}
	run(modbox("ssh-config", "--remove"))
	if b, err := os.ReadFile(config); err != nil || string(b) != before {
		t.Errorf("configuration after --remove: %q, %v", b, err)
	}

	serve(t, s, sb.ID, "3000")
	forward := modbox("port-forward", "box", ":3000")
	out, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(line[:n]))
	for _, what := range []string{"running", "paused"} {
		if what == "paused" {
			if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
				t.Fatal(err)
			}
		}
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /x HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(conn); err != nil || !strings.Contains(string(b), "port 3000 /x") {
			t.Errorf("%s: %q, %v", what, b, err)
		}
		_ = conn.Close()
	}
	if err := forward.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := forward.Wait(); err != nil {
		t.Errorf("modbox port-forward after an interrupt: %v", err)
	}
}
