package e2e_test

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// otherBuild makes the saved state of a paused sandbox look as if another gVisor had made it, as
// after an upgrade of the server.
func otherBuild(t *testing.T, s *testserver.Server, id string) {
	t.Helper()
	manifests, err := filepath.Glob(filepath.Join(s.StateDir, "checkpoints", id, "*", "manifest.json"))
	if err != nil || len(manifests) != 1 {
		t.Fatalf("manifests of sandbox %s: %v, %v", id, manifests, err)
	}
	data, err := os.ReadFile(manifests[0])
	if err != nil {
		t.Fatal(err)
	}
	var now struct {
		Manifest map[string]any `json:"manifest"`
	}
	if err := json.Unmarshal(data, &now); err != nil || now.Manifest["gvisor"] == nil {
		t.Fatalf("the manifest names no gVisor: %s, %v", data, err)
	}
	// As manifests were before there were digests.
	old := now.Manifest
	old["format"], old["gvisor"] = 1, "v0.0.1-"+old["gvisor"].(string)
	delete(old, "sums")
	if data, err = json.Marshal(old); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifests[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(manifests[0]), "manifest.copy.json")); err != nil {
		t.Fatal(err)
	}
}

// TestPausedSandboxOutlivesAnUpgrade finds the files of a sandbox whose memory
// cannot be brought back: changed, new, deleted and owned as they were.
func TestPausedSandboxOutlivesAnUpgrade(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Env: map[string]string{"ROLE": "worker"}})
	res := s.Bash(sb.ID, `cd ~ && mkdir -p work/deep && echo data > work/deep/file && ln -s deep work/link && ln work/deep/file work/hard
head -c 5000000 /dev/urandom > work/big && (cd work && sha256sum big > sum) && chmod 751 work/deep && echo lost > /tmp/scratch`, time.Minute)
	if res.ExitCode != 0 {
		t.Fatalf("write files: %+v", res)
	}
	root, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{User: "root", Shell: "rm /etc/motd /etc/issue; echo mine >> /etc/hosts.allow; rm -rf /usr/share/doc && mkdir /usr/share/doc && touch /usr/share/doc/only"})
	if err != nil || root.ExitCode != 0 {
		t.Fatalf("change files of the image: %+v, %v", root, err)
	}
	job, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Argv: []string{"sleep", "1000"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		otherBuild(t, s, sb.ID)
		if round == 1 {
			s.Kill() // the server that comes is another build
			s.Launch()
		}
		if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), "v0.0.1") {
			t.Errorf("resume that requires the memory = %v, want unsupported with the reason", err)
		}
		res := s.Bash(sb.ID, `cd ~/work && cat link/file && stat -c '%h' hard && stat -c '%a' deep && sha256sum -c sum && cat /etc/hosts.allow | tail -n 1
ls /etc/motd /etc/issue 2>/dev/null; ls /usr/share/doc; echo $ROLE; ls /tmp/scratch 2>/dev/null; true`, time.Minute)
		if got, want := string(res.Stdout), "data\n2\n751\nbig: OK\nmine\nonly\nworker\n"; got != want {
			t.Errorf("after the resume: %q (%s), want %q", got, res.Stderr, want)
		}
		now, err := s.Sandboxes.Get(t.Context(), sb.ID)
		if err != nil || now.State != client.Running || !strings.Contains(now.MemoryLostReason, "v0.0.1") || path.Base(now.URL) != path.Base(sb.URL) {
			t.Errorf("after the resume: %+v, %v", now, err)
		}
	}
	events, err := s.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(t.Context())
	if err != nil || !slices.ContainsFunc(events, func(e client.Event) bool { return e.Type == "resumed_from_files" }) {
		t.Errorf("events: %+v, %v", events, err)
	}
	if e, err := s.Executions.Get(t.Context(), job.ID, time.Minute); err != nil || e.State != client.ExecutionFailed || e.ExitCode != nil {
		t.Errorf("the execution whose process was lost: %+v, %v", e, err)
	}
	// And what is saved from now on has its memory.
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if now, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); err != nil || now.MemoryLostReason != "" {
		t.Errorf("resume with memory = %+v, %v", now, err)
	}
}
