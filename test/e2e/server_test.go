package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

func TestServerGuardsItsState(t *testing.T) {
	s := testserver.StartSmall(t)
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
	s := testserver.StartSmall(t)
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

func TestSettingsReachTheSandboxes(t *testing.T) {
	s := testserver.StartSmall(t,
		"--sandbox-default-memory", "300Mi", "--sandbox-default-cpu", "300m", "--sandbox-default-disk", "300Mi", "--sandbox-max-memory", "400Mi",
		"--sandbox-max-processes", "123", "--sandbox-max-count", "1", "--exec-default-timeout", "1s", "--exec-max-timeout", "10m",
		"--exec-default-output", "3", "--exec-max-output", "20Mi", "--domain", "box.example.com", "--public-url", "https://modbox.example.com",
	)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	// The image asks for 512Mi, which is over the maximum.
	if want := (client.Resources{Memory: "400Mi", CPU: "300m", Disk: "300Mi"}); sb.Resources != want {
		t.Errorf("resources %+v, want %+v", sb.Resources, want)
	}
	if !strings.HasPrefix(sb.URL, "https://") || !strings.HasSuffix(sb.URL, ".box.example.com") {
		t.Errorf("URL %s", sb.URL)
	}
	if res := s.Bash(sb.ID, "ulimit -u", time.Minute); string(res.Stdout) != "123" || !res.StdoutTruncated {
		t.Errorf("process limit and what is kept of the output: %q, truncated %v; want 123 and true", res.Stdout, res.StdoutTruncated)
	}
	if res := s.Bash(sb.ID, "sleep 1000", 0); !res.TimedOut {
		t.Errorf("a command without a timeout: %+v", res)
	}
	res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "head -c 18M /dev/zero", MaxOutput: 17 << 20, Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Stdout) != 17<<20 {
		t.Errorf("%d bytes of output kept, timed out %v; want 17 MiB", len(res.Stdout), res.TimedOut)
	}
	for name, err := range map[string]error{
		"timeout": func() error {
			_, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "true", Timeout: 10*time.Minute + time.Second})
			return err
		}(),
		"memory": func() error {
			_, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: image, Resources: client.Resources{Memory: "401Mi"}})
			return err
		}(),
	} {
		if !client.IsCode(err, client.Invalid) {
			t.Errorf("%s over the limit: %v", name, err)
		}
	}
	if _, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: image}); !client.IsCode(err, client.QuotaExceeded) {
		t.Errorf("a second sandbox: %v", err)
	}
}

func TestServerPages(t *testing.T) {
	s := testserver.StartSmall(t)
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

// TestLeftoversAreSeen shows that the checks at the end of the tests look where boxes are.
func TestLeftoversAreSeen(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	if left := s.Leftovers(); len(left) != 0 {
		t.Errorf("before there is a sandbox:\n%s", strings.Join(left, "\n"))
	}
	sb := s.MustCreate(client.CreateOptions{Image: image})
	left := strings.Join(s.Leftovers(), "\n")
	kinds := []string{"process ", "file " + s.RunDir, "file " + s.StateDir}
	if os.Geteuid() == 0 { // others may have no control groups
		kinds = append(kinds, "control group ")
	}
	for _, kind := range kinds {
		if !strings.Contains(left, kind) {
			t.Errorf("what a sandbox has on the host lacks %q:\n%s", kind, left)
		}
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
}

// TestTrustedProxy guesses from one client behind a proxy until it has to wait; another one need not.
func TestTrustedProxy(t *testing.T) {
	s := testserver.StartSmall(t, "--pool-size", "0", "--http-trusted-proxies", "127.0.0.0/8")
	signIn := func(client string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/auth/refresh",
			strings.NewReader(`{"refresh_token":"mbr_`+strings.Repeat("a", 52)+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Forwarded-For", client)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	guesses := 0
	for status := 0; status != http.StatusTooManyRequests; guesses++ {
		if status = signIn("6.6.6.6, 203.0.113.7"); guesses > 1000 {
			t.Fatalf("after %d guesses: status %d", guesses, status)
		}
	}
	if got := signIn("6.6.6.6, 203.0.113.8"); got != http.StatusUnauthorized {
		t.Errorf("the first guess of another client: status %d, want 401", got)
	}
}
