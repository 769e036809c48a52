package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// installation is the chart in a namespace of its own, with one server.
type installation struct {
	*client.Client
	t          *testing.T
	namespace  string
	volume     string // the directory of the server's volume
	url, token string // of the Service; of an administrator
}

// install installs objects of the chart, which are in the file that an environment variable names, and waits until all Pods are ready.
func install(t *testing.T, namespace, variable string) *installation {
	t.Helper()
	manifest, err := os.ReadFile(os.Getenv(variable))
	if err != nil {
		t.Fatalf("the objects of the chart: %v", err)
	}
	i := &installation{t: t, namespace: namespace}
	apply(t, string(manifest), "--namespace", namespace)
	removeWorkersFirst(t, namespace)
	i.ready()
	i.volume = serverVolume(t, namespace, "state-modbox-0")
	token, err := os.ReadFile(filepath.Join(i.volume, "state/token"))
	if err != nil {
		t.Fatal(err)
	}
	i.token = strings.TrimSpace(string(token))
	i.url = "http://" + i.kubectl("get", "service", "modbox", "-o", "jsonpath={.spec.clusterIP}")
	if i.Client, err = client.New(i.url, i.token); err != nil {
		t.Fatal(err)
	}
	return i
}

// removeWorkersFirst removes workers at the end of the test, before their server, which they would look for for minutes.
func removeWorkersFirst(t *testing.T, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		kubectl(t, "", "-n", namespace, "delete", "statefulset", "modbox-worker", "--timeout", timeLimit.String())
		until(t, "the workers of the installation have ended", func() bool { return len(processes("worker", "--join=modbox-join:7071")) == 0 })
	})
}

// serverVolume returns the directory of the volume of a server.
func serverVolume(t *testing.T, namespace, claim string) string {
	t.Helper()
	name := kubectl(t, "", "-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	return kubectl(t, "", "get", "pv", name, "-o", "jsonpath={.spec.hostPath.path}")
}

// makeNamespace makes a namespace. It ends with the cluster: its removal takes half a minute.
func makeNamespace(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}", "apply", "-f", "-")
}

// kubectl runs kubectl in the namespace.
func (i *installation) kubectl(args ...string) string {
	i.t.Helper()
	return kubectl(i.t, "", append([]string{"-n", i.namespace}, args...)...)
}

// ready waits until all Pods are ready.
func (i *installation) ready() {
	i.t.Helper()
	for _, set := range []string{"modbox", "modbox-worker"} {
		i.kubectl("rollout", "status", "--timeout", timeLimit.String(), "statefulset/"+set)
	}
}

// modbox runs modbox in the Pod of the server.
func (i *installation) modbox(args ...string) string {
	i.t.Helper()
	return i.kubectl(append([]string{"exec", "modbox-0", "--", "/usr/bin/modbox"}, args...)...)
}

// TestChart installs the chart, runs a sandbox, and restarts the server.
func TestChart(t *testing.T) {
	address(t)
	makeNamespace(t, "modbox")
	c := install(t, "modbox", "MODBOX_TEST_CHART")
	importImage(t, c.namespace, "modbox-0", c.volume, "modbox/base")
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
	c.kubectl("rollout", "restart", "statefulset/modbox")
	c.ready()
	t.Logf("the server was restarted within %v", time.Since(began))
	count(3)
	if _, err := c.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	proveCluster(t, c.url, c.token)
}

// proveCluster runs modbox doctor --cluster, and checks that all rows hold but the rows untried.
func proveCluster(t *testing.T, url, token string, untried ...string) {
	t.Helper()
	cmd := exec.Command(testserver.Binary(t), "--url", url, "--token", token, "doctor", "--cluster", "--image", "modbox/base")
	out, err := cmd.CombinedOutput()
	t.Logf("modbox doctor --cluster:\n%s", out)
	if err != nil {
		t.Errorf("modbox doctor --cluster: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for _, line := range lines {
		if words := strings.Fields(line); words[0] != "ok" && (words[0] != "untried" || !slices.Contains(untried, words[1])) {
			t.Errorf("a row does not hold: %s", line)
		}
	}
	if len(lines) != 12 || !strings.Contains(string(out), "with its memory on another worker, ") {
		t.Errorf("%d rows, want 12, with a move", len(lines))
	}
}

// importImage gives the server in a Pod, whose volume is a directory, an image that is built here.
func importImage(t *testing.T, namespace, pod, volume, image string) {
	t.Helper()
	importImageOf(t, os.Getenv("MODBOX_TEST_IMAGE_DIR"), namespace, pod, volume, image)
}

// importImageOf is importImage with the directory of the images, whose name is images.
func importImageOf(t *testing.T, images, namespace, pod, volume, image string) {
	t.Helper()
	file, state := filepath.Join(volume, "image.tar"), filepath.Dir(images)
	if out, err := exec.Command(testserver.Binary(t), "images", "export", "--state-dir", state, image, file).CombinedOutput(); err != nil {
		t.Fatalf("export: %v: %s", err, out)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "-n", namespace, "exec", pod, "--", "/usr/bin/modbox", "images", "import", "--state-dir", "/var/lib/modbox/state", "--run-dir", "/run/modbox/run", "/var/lib/modbox/image.tar")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}
