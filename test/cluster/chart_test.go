package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestChart installs the chart, runs a sandbox, and restarts the server.
func TestChart(t *testing.T) {
	address(t)
	manifest, err := os.ReadFile(os.Getenv("MODBOX_TEST_CHART"))
	if err != nil {
		t.Fatalf("the objects of the chart: %v", err)
	}
	const pod, volume = "modbox-0", "state-modbox-0"
	// It ends with the cluster: its removal takes half a minute.
	kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: modbox}}", "apply", "-f", "-")
	apply(t, string(manifest), "--namespace", "modbox")
	ready := func() {
		t.Helper()
		kubectl(t, "", "-n", "modbox", "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox")
		kubectl(t, "", "-n", "modbox", "rollout", "status", "--timeout", timeLimit.String(), "statefulset/modbox-worker")
	}
	ready()
	claim := kubectl(t, "", "-n", "modbox", "get", "pvc", volume, "-o", "jsonpath={.spec.volumeName}")
	dir := kubectl(t, "", "get", "pv", claim, "-o", "jsonpath={.spec.hostPath.path}")
	importBase(t, "modbox", pod, dir)

	token, err := os.ReadFile(filepath.Join(dir, "state/token"))
	if err != nil {
		t.Fatal(err)
	}
	service := kubectl(t, "", "-n", "modbox", "get", "service", "modbox", "-o", "jsonpath={.spec.clusterIP}")
	c, err := client.New("http://"+service, strings.TrimSpace(string(token)))
	if err != nil {
		t.Fatal(err)
	}
	sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	bash := func(script string) string {
		t.Helper()
		out, err := c.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/bash", "-c", script}, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out.Stdout))
	}
	bash(counter)
	count := func(want int) {
		t.Helper()
		if got := bash(increment); got != fmt.Sprint(want) {
			t.Errorf("the counter is %q, want %d", got, want)
		}
	}
	count(1)
	if _, err := c.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	count(2) // resumes it
	began := time.Now()
	kubectl(t, "", "-n", "modbox", "rollout", "restart", "statefulset/modbox")
	ready()
	t.Logf("the server was restarted within %v", time.Since(began))
	count(3)
	if _, err := c.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// importBase gives the server in a Pod, whose volume is a directory, the image modbox/base.
func importBase(t *testing.T, namespace, pod, dir string) {
	t.Helper()
	file := filepath.Join(dir, "base.tar")
	state := filepath.Dir(os.Getenv("MODBOX_TEST_IMAGE_DIR"))
	if out, err := exec.Command(testserver.Binary(t), "images", "export", "--state-dir", state, "modbox/base", file).CombinedOutput(); err != nil {
		t.Fatalf("export: %v: %s", err, out)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "-n", namespace, "exec", pod, "--", "/usr/bin/modbox", "images", "import", "--state-dir", "/var/lib/modbox/state", "--run-dir", "/run/modbox/run", "/var/lib/modbox/base.tar")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
