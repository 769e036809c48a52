package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

func TestServerGuardsItsState(t *testing.T) {
	s := testserver.Start(t)
	info, err := os.Stat(filepath.Join(s.StateDir, "token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v, want mode 0600", info.Mode(), err)
	}
	if strings.Contains(s.Log(), s.Token) {
		t.Error("the token is in the log")
	}
	second := exec.Command(testserver.Binary(t), "server", "--listen", "127.0.0.1:0", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	out, err := second.CombinedOutput()
	if second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "another server") {
		t.Errorf("second server = %v, %s, want it refused", err, out)
	}
	if _, err := s.WhoAmI(t.Context()); err != nil {
		t.Errorf("the first server after the second was refused: %v", err)
	}
}

func TestSandboxesOutliveTheServer(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	s.Bash(sb.ID, "echo kept >/tmp/f; (sleep 1000 >/dev/null 2>&1 &)", 0)
	address := s.URL
	s.Stop()
	if _, err := os.Stat(filepath.Join(s.StateDir, "address")); err == nil {
		t.Error("a server that has ended still has an address")
	}
	s.Launch()
	if s.URL == address {
		t.Log("the same port again") // possible, and no matter
	}
	res := s.Bash(sb.ID, "cat /tmp/f; pgrep -x sleep >/dev/null && echo running", 0)
	if got, want := string(res.Stdout), "kept\nrunning\n"; got != want {
		t.Errorf("after the restart: %q %q, want %q", got, res.Stderr, want)
	}
}

func TestServerPages(t *testing.T) {
	s := testserver.Start(t)
	for path, want := range map[string]string{
		"/healthz": `"ok"`, "/readyz": `"ready":true`, "/metrics": "modbox_", "/openapi.yaml": "openapi: 3.1",
	} {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 1<<20)
		n := 0
		for n < len(body) {
			m, err := resp.Body.Read(body[n:])
			if n += m; err != nil {
				break
			}
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body[:n]), want) {
			t.Errorf("GET %s = %s, want 200 and %q in:\n%.300s", path, resp.Status, want, body[:n])
		}
	}
}

func TestDoctor(t *testing.T) {
	s := testserver.Start(t)
	cmd := exec.Command(testserver.Binary(t), "doctor", "--json", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	cmd.Env = append(os.Environ(), "MODBOX_LISTEN="+strings.TrimPrefix(s.URL, "http://"))
	out, err := cmd.Output()
	var results []struct{ Name, Status, Detail string }
	if jsonErr := json.Unmarshal(out, &results); jsonErr != nil {
		t.Fatalf("doctor = %v, %q: %v", err, out, jsonErr)
	}
	found := map[string]string{}
	for _, r := range results {
		found[r.Name] = r.Status
		t.Logf("%s: %s: %s", r.Name, r.Status, r.Detail)
	}
	for _, name := range []string{"sandbox", "port", "images"} {
		if found[name] == "" || found[name] == "fail" {
			t.Errorf("doctor says of %s: %q", name, found[name])
		}
	}
}
