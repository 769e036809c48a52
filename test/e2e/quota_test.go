package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestQuota brings a workspace to its limits by the command line, with sandboxes that run, pause
// and are woken, across the restart of a killed server.
func TestQuota(t *testing.T) {
	s := testserver.StartSmall(t, "--quota-sandboxes", "1", "--quota-memory", "1Gi")
	must := func(want string, args ...string) string {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Fatalf("modbox %v = %d %q %q, want %q", args, code, out, errOut, want)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, errOut, code := run(t, s, "", args...)
		if code == 0 || !strings.Contains(errOut, want) || !strings.Contains(errOut, "quota_exceeded") {
			t.Errorf("modbox %v = %d %q %q, want it refused with %q", args, code, out, errOut, want)
		}
	}
	quota := func() (q client.QuotaReport) {
		t.Helper()
		if err := json.Unmarshal([]byte(must("", "workspace", "quota", "show", "--json")), &q); err != nil {
			t.Fatal(err)
		}
		return q
	}
	must("", "create", image, "--name", "first", "--memory", "256Mi")
	must("server", "workspace", "quota", "show")
	refused("quota of sandboxes is 1, of which 1 is used", "create", image, "--memory", "256Mi")

	// One that waits comes in when the first one goes to sleep.
	waits := command(t, s, "create", image, "--name", "second", "--memory", "256Mi", "--wait-for-quota", "10m")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	must("", "pause", "first")
	if err := waits.Wait(); err != nil {
		t.Fatalf("the create that waits: %v", err)
	}
	refused("quota of sandboxes", "exec", "first", "true") // which would wake it
	refused("quota of sandboxes", "fork", "second")
	q := quota()
	if q.Used.Sandboxes != 1 || q.Used.Memory != "256Mi" || q.Used.DiskBy.PausedBytes < 1<<20 || q.Limits.Memory != "1Gi" || *q.Limits.Sandboxes != 1 {
		t.Errorf("quota with one running and one paused: %+v", q)
	}

	must("workspace", "workspace", "quota", "set", q.WorkspaceID, "--sandboxes", "2", "--sandbox-memory", "300Mi")
	must("woken", "exec", "first", "echo", "woken")
	if _, errOut, code := run(t, s, "", "create", image, "--memory", "400Mi"); code == 0 || !strings.Contains(errOut, "300Mi, the maximum of a sandbox in workspace "+q.WorkspaceID) {
		t.Errorf("create beyond the maximum of one sandbox = %d %q", code, errOut)
	}
	before := quota().Used
	s.Kill()
	s.Launch()
	if after := quota().Used; after.Sandboxes != 2 || after.Memory != before.Memory || after.Disk != before.Disk {
		t.Errorf("used after a restart: %+v, before %+v", after, before)
	}
	refused("quota of sandboxes is 2", "create", image)
	must("", "rm", "first", "second")
	must("", "workspace", "quota", "set", q.WorkspaceID, "--default", "sandboxes,sandbox-memory")
	if q := quota(); q.Used.Sandboxes != 0 || q.Set != (client.Quota{}) {
		t.Errorf("in the end: %+v", q)
	}
}

// TestWaitingForQuota makes a resume and a fork wait for quota, and a create whose server is
// stopped meanwhile.
func TestWaitingForQuota(t *testing.T) {
	s := testserver.StartSmall(t, "--quota-sandboxes", "2")
	small := client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}
	for _, name := range []string{"asleep", "parent"} {
		s.MustCreate(client.CreateOptions{Name: name, Image: image, Resources: small})
	}
	if _, err := s.Sandboxes.Pause(t.Context(), "asleep"); err != nil {
		t.Fatal(err)
	}
	s.MustCreate(client.CreateOptions{Name: "filler", Image: image, Resources: small})
	// waiting returns when a request waits; requests that do not wait get an error.
	waiting := func() {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) { // polling another process
			_, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "other", Image: image, Resources: small})
			if err != nil && strings.Contains(err.Error(), "come first") {
				return
			}
			if err == nil || time.Now().After(deadline) {
				t.Fatalf("nobody waits: %v", err)
			}
		}
	}
	for _, args := range [][]string{{"resume", "asleep"}, {"fork", "parent"}} {
		cmd := command(t, s, append(args, "--wait-for-quota", "10m")...)
		var errOut strings.Builder
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waiting()
		if _, err := s.Sandboxes.Delete(t.Context(), "filler"); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v that waits: %v %s", args, err, errOut.String())
		}
		if args[0] == "resume" {
			if sb, err := s.Sandboxes.Get(t.Context(), "asleep"); err != nil || sb.State != client.Running {
				t.Errorf("what was resumed: %+v, %v", sb, err)
			}
			if _, err := s.Sandboxes.Delete(t.Context(), "asleep"); err != nil {
				t.Fatal(err)
			}
			s.MustCreate(client.CreateOptions{Name: "filler", Image: image, Resources: small})
		}
	}

	// By no client of ours: these ask again.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/sandboxes", strings.NewReader(`{"name":"late","image":"`+image+`","wait_for_quota_seconds":600}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	answered := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
				err = fmt.Errorf("status %s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
			}
		}
		answered <- err
	}()
	waiting()
	s.Stop()
	if err := <-answered; err != nil {
		t.Errorf("who waits when the server is told to stop: %v, want 503 with Retry-After", err)
	}
	s.Launch()
	if _, err := s.Sandboxes.Get(t.Context(), "late"); !client.IsCode(err, client.NotFound) {
		t.Errorf("what waited: %v, want nothing of it", err)
	}
}
