package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestMainCommandHasOutput runs an image's own command over a pause, until it ends.
func TestMainCommandHasOutput(t *testing.T) {
	s := testserver.Start(t)
	const script = "echo begun; echo oops >&2; until [ -e /end ]; do sleep 0.05; done; echo ended; exit 3"
	b, err := buildImage(t, s, client.ImageBuildOptions{Tag: "app:v1"}, map[string]string{
		"Dockerfile": "FROM modbox/base\nCMD [\"sh\", \"-c\", \"" + script + "\"]\n",
	})
	if err != nil {
		t.Fatalf("build: %v\n%s", err, b.output)
	}
	sb := s.MustCreate(client.CreateOptions{Image: "app:v1"})
	list, err := s.Executions.List(sb.ID, client.KindMain).Page(t.Context(), client.PageOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].State.Ended() || list.Items[0].Command[2] != script {
		t.Fatalf("main command: %+v, %v, want one that runs", list.Items, err)
	}
	id := list.Items[0].ID
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Executions.Get(t.Context(), id, time.Minute); !client.IsCode(err, client.NotRunning) {
		t.Errorf("a wait for it in a pause: %v, want not_running", err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, "touch /end", time.Minute)
	cmd := exec.CommandContext(t.Context(), testserver.Binary(t), "logs", "--follow", sb.ID)
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, t.Output())
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 || stdout.String() != "begun\nended\n" || stderr.String() != "oops\n" {
		t.Errorf("modbox logs: %v, %q, %q, want what the command wrote, and its exit code 3", err, stdout.String(), stderr.String())
	}
	if e, err := s.Executions.Get(t.Context(), id, time.Minute); err != nil || e.State != client.ExecutionCompleted || e.ExitCode == nil || *e.ExitCode != 3 {
		t.Errorf("main command after its end: %+v, %v, want it completed with code 3", e, err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // the event follows the record of the end
		events, err := s.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(events, func(ev client.Event) bool {
			return ev.Data["execution_id"] == id && ev.Data["kind"] == client.KindMain && ev.Data["exit_code"] == "3"
		}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no event of the end of the main command among %+v", events)
		}
	}
}
