package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

func TestDetachedCommand(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	id, errOut, code := run(t, s, "", "exec", "--detach", sb.ID, "--", "bash", "-c", "echo out; echo err >&2; sleep 0.5; echo more; exit 4")
	id = strings.TrimSpace(id)
	if code != 0 || id == "" {
		t.Fatalf("exec --detach = %q, %q, %d", id, errOut, code)
	}
	out, errOut, code := run(t, s, "", "logs", "--follow", id)
	if out != "out\nmore\n" || errOut != "err\n" || code != 4 {
		t.Errorf("logs --follow = %q, %q, %d, want the command's output and code 4", out, errOut, code)
	}
	if out, errOut, code := run(t, s, "", "logs", "--tail", "1", id); out != "more\n" || errOut != "err\n" || code != 0 {
		t.Errorf("logs --tail 1 = %q, %q, %d, want the last line of each", out, errOut, code)
	}
	if out, _, code := run(t, s, "", "jobs", sb.ID); code != 0 || !strings.Contains(out, id) || !strings.Contains(out, "failed") {
		t.Errorf("jobs = %q, %d, want the job as failed", out, code)
	}
	long, _, _ := run(t, s, "", "exec", "-d", sb.ID, "--", "sleep", "600")
	long = strings.TrimSpace(long)
	if out, errOut, code := run(t, s, "", "cancel", long); out != long+" cancelled\n" || code != 0 {
		t.Errorf("cancel = %q, %q, %d", out, errOut, code)
	}
	if _, errOut, code := run(t, s, "", "exec", "-dt", sb.ID, "--", "true"); code != 2 {
		t.Errorf("exec -dt = %d %q, want a usage error", code, errOut)
	}
}

// A terminal outlives the program that showed it, and the server.
func TestTerminalIsAttachedAgain(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	cmd := command(t, s, "exec", "-it", sb.ID, "--", "bash", "--norc")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 20, Cols: 70})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tty.WriteString("cd /tmp; MARK=kept\n"); err != nil {
		t.Fatal(err)
	}
	var id string
	deadline := time.Now().Add(5 * time.Minute)
	for id == "" {
		list, err := s.Executions.List(sb.ID, "").Collect(t.Context())
		if err == nil && len(list) == 1 && list[0].Stdout.SizeBytes > 30 { // the line was echoed
			id = list[0].ID
		}
		if time.Now().After(deadline) {
			t.Fatalf("executions %+v, %v", list, err)
		}
		time.Sleep(20 * time.Millisecond) // polling another process
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	tty.Close()
	s.Kill()
	s.Launch()
	again := command(t, s, "attach", sb.ID, id)
	if tty, err = pty.StartWithSize(again, &pty.Winsize{Rows: 33, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if _, err := tty.WriteString("echo $PWD-$MARK; exit 6\n"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := tty.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			break
		}
	}
	_ = again.Wait()
	if !strings.Contains(out.String(), "/tmp-kept") || again.ProcessState.ExitCode() != 6 {
		t.Errorf("attach = %q, %d, want the same shell and code 6", out.String(), again.ProcessState.ExitCode())
	}
}
