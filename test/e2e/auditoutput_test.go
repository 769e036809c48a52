package e2e_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestOutputsInTheAuditLog runs commands and code in a workspace that has their outputs recorded.
func TestOutputsInTheAuditLog(t *testing.T) {
	s := testserver.StartSmall(t, "--ssh-listen", "127.0.0.1:0")
	sb := s.MustCreate(client.CreateOptions{Image: image, Name: "box", Env: map[string]string{"DEPLOY": "of-the-sandbox"}})
	me, err := s.Client.WhoAmI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(word string) {
		t.Helper()
		if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo " + word + "-exec $DEPLOY; echo problem >&2"}); err != nil {
			t.Fatal(err)
		}
	}
	run("before")
	on := true
	ws, err := s.Workspaces.Update(t.Context(), me.WorkspaceID, client.WorkspaceOptions{AuditOutput: &on})
	if err != nil || !ws.AuditOutput {
		t.Fatalf("the workspace: %+v, %v", ws, err)
	}
	run("after")
	stream, err := s.Sandboxes.ExecStream(t.Context(), sb.ID, client.Command{Shell: "echo after-stream"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Copy(io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if _, err := s.Sandboxes.RunCode(t.Context(), sb.ID, "echo after-code $DEPLOY", client.CodeOptions{Language: "bash"}); err != nil {
		t.Fatal(err)
	}
	started, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Shell: "echo after-execution $DEPLOY $X", Env: map[string]string{"X": "of-the-request"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	term, err := s.Sandboxes.Attach(t.Context(), sb.ID, client.Command{Shell: "echo after-terminal; echo $DEPLOY"}, client.AttachOptions{TTY: &client.Size{Rows: 24, Cols: 80}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := term.Copy(io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	_ = term.Close() // it has ended
	ssh := openSSH(t, s, "box")
	ssh.must("ssh", "", ssh.login, "echo after-ssh $DEPLOY")
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/file", strings.NewReader("the-content"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	ssh.must("scp", "", ssh.login+":/tmp/file", "copy")
	// The records of streams and executions are written a moment after their clients know the end.
	want := []string{"after-exec [redacted]", "after-stream", "after-code [redacted]", "after-execution [redacted] [redacted]",
		"after-terminal\n[redacted]", "after-ssh [redacted]"}
	var all strings.Builder
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		all.Reset()
		copied := 0
		for _, r := range trail(t, s, sb.ID) {
			all.WriteString(r.Stdout)
			if strings.Contains(r.Stdout, "after-exec ") && r.Stderr != "problem\n" {
				t.Errorf("stderr of the command = %q", r.Stderr)
			}
			if len(r.Command) == 2 && r.Command[1] == "sftp" && r.Outcome == "ok" {
				copied++
			}
			if r.Action == "execution-output" && r.Details["execution"] != started.ID {
				t.Errorf("the record of the execution's output: %+v", r)
			}
		}
		missing := 1 - copied
		for _, text := range want {
			if !strings.Contains(all.String(), text+"\n") {
				missing++
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("outputs in the log = %q, want %q", all.String(), want)
		}
	}
	if strings.Contains(all.String(), "before") || strings.Contains(all.String(), "of-the") || strings.Contains(all.String(), "the-content") {
		t.Errorf("outputs in the log = %q, with secrets, files, or from before the workspace asked for them", all.String())
	}
	if report, err := s.Audit.Verify(t.Context()); err != nil || !report.OK {
		t.Errorf("the log: %+v, %v", report, err)
	}
}
