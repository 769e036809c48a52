package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/test/testserver"
)

// TestPlatform: with auto a server starts on every host, on the platform that works there. It says which and why in its
// log, in /v1/host, in its metrics and by doctor, leaves nothing of its try, and knows it at its next start. With kvm it starts
// only where that works.
func TestPlatform(t *testing.T) {
	s := testserver.StartSmall(t, "--sandbox-platform", "auto", "--pool-size", "0")
	if left := s.Leftovers(); len(left) != 0 {
		t.Errorf("left by the try:\n%s", strings.Join(left, "\n"))
	}
	var host wire.Host
	if err := json.Unmarshal(get(t, s, "/v1/host"), &host); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", host.Platform, host.PlatformReason)
	if host.Platform != "systrap" && host.Platform != "kvm" || host.PlatformReason == "" {
		t.Errorf("GET /v1/host has the platform %q, because %q", host.Platform, host.PlatformReason)
	}
	if metric := `modbox_platform{platform="` + host.Platform + `"} 1`; !strings.Contains(string(get(t, s, "/metrics")), metric) {
		t.Errorf("GET /metrics lacks %s", metric)
	}
	if n := strings.Count(s.Log(), "platform of new sandboxes"); n != 1 || !strings.Contains(s.Log(), "platform="+host.Platform) {
		t.Errorf("the log has the platform %d times, want once", n)
	}
	sb := s.MustCreate(client.CreateOptions{Image: image})
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Errorf("Pause: %v", err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Errorf("Resume: %v", err)
	}
	auto, kvm := platformRow(t, s, "auto"), platformRow(t, s, "kvm")
	if auto.Status == doctor.Fail || !strings.Contains(auto.Detail, host.Platform+": "+host.PlatformReason) {
		t.Errorf("doctor: %+v, want that it gives the reason", auto)
	}
	works := host.Platform == "kvm"
	if (kvm.Status == doctor.OK) != works || !strings.Contains(kvm.Detail, host.PlatformReason) {
		t.Errorf("doctor with the setting kvm: %+v; kvm works: %v", kvm, works)
	}
	// Only a host with the device has tried kvm.
	record := filepath.Join(s.StateDir, "platform.json")
	before, err := os.ReadFile(record)
	if _, device := os.Stat("/dev/kvm"); (err == nil) != (device == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record of the try: %v; /dev/kvm: %v", err, device)
	}
	if tried := err == nil; strings.Contains(host.PlatformReason, " in a try at ") != works || works && !tried {
		t.Errorf("the reason %q does not fit the record %s", host.PlatformReason, before)
	}
	s.Stop()
	if !works {
		cmd := exec.CommandContext(t.Context(), testserver.Binary(t), "server", "--listen", "127.0.0.1:0", "--state-dir", s.StateDir, "--run-dir", s.RunDir, "--sandbox-platform", "kvm")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "sandbox.platform is kvm: "+host.PlatformReason) {
			t.Errorf("server with the setting kvm: %v, %s; want that it does not start, and says why", err, out)
		}
	}
	s.Launch()
	if after, again := os.ReadFile(record); !bytes.Equal(after, before) || (again == nil) != (err == nil) {
		t.Errorf("the record of the try was %q, %v, is %q, %v", before, err, after, again)
	}
	s.SetArgs("--pool-size", "0")
	s.Stop()
	s.Launch()
	if err := json.Unmarshal(get(t, s, "/v1/host"), &host); err != nil || host.Platform != "systrap" {
		t.Errorf("without the setting the platform is %q, %v; want systrap", host.Platform, err)
	}
}

// get returns the answer of the server to its administrator.
func get(t *testing.T, s *testserver.Server, path string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %s, %v", path, resp.Status, err)
	}
	return body
}

// platformRow returns what doctor says of the platform with a setting.
func platformRow(t *testing.T, s *testserver.Server, setting string) doctor.Result {
	t.Helper()
	cmd := command(t, s, "doctor", "--json", "--state-dir", s.StateDir, "--run-dir", s.RunDir)
	cmd.Env = append(cmd.Env, "MODBOX_SANDBOX_PLATFORM="+setting)
	out, err := cmd.Output() // it may say that something is missing here
	var results []doctor.Result
	if jsonErr := json.Unmarshal(out, &results); jsonErr != nil {
		t.Fatalf("doctor: %v, %q, %v", err, out, jsonErr)
	}
	for _, r := range results {
		if r.Name == "platform" {
			return r
		}
	}
	t.Fatalf("doctor has no platform: %+v", results)
	return doctor.Result{}
}
