package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestMachineShortOfMemory has a server that wants more memory available than any machine has.
func TestMachineShortOfMemory(t *testing.T) {
	s := testserver.StartSmall(t, "--capacity-pause-below", "1Pi", "--capacity-pause-idle", "1s")
	idle := s.MustCreate(client.CreateOptions{Name: "idle"})
	s.Bash(idle.ID, "mkdir /tmp/kept && (while :; do read -r line < /proc/uptime; done) & echo $! > /tmp/pid", time.Minute)
	busy := s.MustCreate(client.CreateOptions{Name: "busy"})
	stream, err := s.Sandboxes.ExecStream(t.Context(), busy.ID, client.Command{Argv: []string{"sleep", "600"}})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if sb, err := s.Sandboxes.Wait(t.Context(), idle.ID, client.Paused); err != nil || sb.State != client.Paused {
		t.Fatalf("the idle sandbox: %+v, %v, want paused", sb, err)
	}
	events, err := s.Sandboxes.Events(idle.ID, client.EventsOptions{}).Collect(t.Context())
	if err != nil || !slices.ContainsFunc(events, func(e client.Event) bool {
		return e.Type == "pausing" && strings.Contains(e.Message, "the machine is short of memory")
	}) {
		t.Errorf("events %+v, %v, want the reason of the pause", events, err)
	}
	if sb, err := s.Sandboxes.Get(t.Context(), busy.ID); err != nil || sb.State != client.Running {
		t.Errorf("the sandbox with a command: %+v, %v, want running", sb, err)
	}
	if res := s.Bash(idle.ID, "kill -0 $(cat /tmp/pid) && ls -d /tmp/kept", time.Minute); string(res.Stdout) != "/tmp/kept\n" {
		t.Errorf("after the next call: %+v, want its process and its file", res)
	}
}
