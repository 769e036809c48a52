package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

const image = "modbox/base"

// command prepares the command line for a server.
func command(t *testing.T, s *testserver.Server, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Binary(t), args...)
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token, "FROM_MY_ENV=mine")
	return cmd
}

// run runs the command line and returns its output and exit code.
func run(t *testing.T, s *testserver.Server, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := command(t, s, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestRunIsLikeTheCommandItself(t *testing.T) {
	s := testserver.StartSmall(t)
	out, errOut, code := run(t, s, "line\n", "run", "-e", "FROM_MY_ENV", image, "--", "bash", "-c", `cat; echo $FROM_MY_ENV; echo oops >&2; exit 7`)
	if out != "line\nmine\n" || errOut != "oops\n" || code != 7 {
		t.Errorf("run = %q, %q, %d, want the command's output and code 7", out, errOut, code)
	}
	if _, errOut, code := run(t, s, "", "run", image, "--", "bash", "-c", "kill -9 $$"); code != 137 {
		t.Errorf("run of a command that was killed = %d %q, want 137", code, errOut)
	}
	if _, errOut, code := run(t, s, "", "run", "modbox/nosuch", "true"); code != 125 || !strings.Contains(errOut, "modbox/base") {
		t.Errorf("run of an unknown image = %d %q, want 125 and what there is", code, errOut)
	}
	if out, _, code := run(t, s, "", "ls", "-q"); out != "" || code != 0 {
		t.Errorf("sandboxes left after run: %q", out)
	}
}

func TestBinaryDataPasses(t *testing.T) {
	s := testserver.StartSmall(t)
	data := bytes.Repeat([]byte("\x00\xff\r\n\x1b[31m"), 1<<18)
	cmd := command(t, s, "run", image, "cat")
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, data) {
		t.Errorf("cat returned %d bytes, %v, want the %d that were sent", len(out), err, len(data))
	}
}

func TestCommands(t *testing.T) {
	s := testserver.Start(t)
	must := func(want string, args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("modbox %v = %d %q %q, want %q", args, code, out, errOut, want)
		}
		return out
	}
	must("", "create", image, "--name", "box", "--memory", "256Mi", "--ttl", "10m", "-l", "a=b")
	must("256Mi", "ls", "-l", "a=b")
	must("running", "get", "box")
	must("", "wait", "box")
	must("hello", "exec", "box", "echo", "hello")
	must("/256", "exec", "-w", "/", "box", "--", "sh", "-c", "echo $PWD$((200+56))")
	must("256 MiB", "stats")
	must("running", "events", "box")
	must("modbox/base:latest", "images")
	must("gvisor", "version")
	var sb client.Sandbox
	if err := json.Unmarshal([]byte(must("", "get", "box", "--json")), &sb); err != nil || sb.Name != "box" {
		t.Errorf("get --json = %+v, %v", sb, err)
	}
	dir := filepath.Join(t.TempDir(), "tree")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub", "run.sh"), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	must("", "cp", dir, "box:/tmp/")
	must("ran", "exec", "box", "/tmp/tree/sub/run.sh")
	back := filepath.Join(t.TempDir(), "back")
	must("", "cp", "box:/tmp/tree", back)
	if out, err := exec.Command(filepath.Join(back, "sub", "run.sh")).Output(); err != nil || string(out) != "ran\n" {
		t.Errorf("the copy says %q, %v", out, err)
	}
	must("ran", "cp", "box:/tmp/tree/sub/run.sh", "-")
	// In modbox/base commands run in /workspace.
	must("", "exec", "box", "mkdir", "work")
	must("", "cp", filepath.Join(dir, "sub", "run.sh"), "box:")
	must("", "cp", dir, "box:work")
	must("ran", "exec", "box", "sh", "-c", "./run.sh && cmp run.sh work/tree/sub/run.sh")
	must("ran", "cp", "box:work/tree/sub/run.sh", "-")
	if info, err := s.Sandboxes.Files.Stat(t.Context(), "box", "work/../run.sh"); err != nil || info.Path != "/workspace/run.sh" {
		t.Errorf("Stat of a relative path = %+v, %v", info, err)
	}
	token := strings.TrimSpace(must("mbx_", "token", "create", "second"))
	if out, errOut, code := run(t, s, "", "ls", "-q", "--token", token); code != 0 || !strings.Contains(out, sb.ID) {
		t.Errorf("ls with the new token = %d %q %q", code, out, errOut)
	}
	must("second", "token", "ls")
	if out, errOut, code := run(t, s, "", "ls", "-q", "--token", strings.TrimSpace(must("mbx_", "token", "create", "--state-dir", s.StateDir))); code != 0 || !strings.Contains(out, sb.ID) {
		t.Errorf("ls with a token made in the database = %d %q %q", code, out, errOut)
	}
	must("box", "rm", "box")
	must("destroyed", "get", "box")
	if _, errOut, code := run(t, s, "", "exec", "box", "true"); code != 125 || !strings.Contains(errOut, "[ended]") {
		t.Errorf("exec in an ended sandbox = %d %q, want 125 and its code", code, errOut)
	}
}

func TestInterruptedRunDestroysItsSandbox(t *testing.T) {
	s := testserver.StartSmall(t)
	cmd := command(t, s, "run", image, "--", "sh", "-c", "echo started; exec sleep 1000")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
	if out, _, _ := run(t, s, "", "ls", "-q"); out != "" {
		t.Errorf("sandboxes left: %q", out)
	}
}

func TestTerminal(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	cmd := command(t, s, "exec", "-it", sb.ID, "--", "sh")
	term, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 31, Cols: 97})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	if err := term.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	expect := func(want string) {
		t.Helper()
		buf := make([]byte, 4096)
		for !strings.Contains(seen.String(), want) {
			n, err := term.Read(buf)
			if err != nil {
				t.Fatalf("terminal showed %q, then %v; want %q", seen.String(), err, want)
			}
			seen.Write(buf[:n])
		}
		seen.Reset()
	}
	say := func(line string) {
		t.Helper()
		if _, err := io.WriteString(term, line); err != nil {
			t.Fatal(err)
		}
	}
	say("stty size\r")
	expect("31 97")
	if err := pty.Setsize(term, &pty.Winsize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	// The new size arrives some time after the signal; asking again is the only way to know.
	say("until [ \"$(stty size)\" = \"40 120\" ]; do sleep 0.05; done; echo resi''zed\r")
	expect("resized")
	say("sleep 1000\r")
	expect("sleep 1000")
	say("\x03") // Ctrl-C ends the sleep inside, not the command line
	say("echo still he''re\r")
	expect("still here")
	say("exit 5\r")
	_, _ = io.Copy(io.Discard, term) // until it ends
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}
