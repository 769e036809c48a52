package cluster_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// timeLimit bounds steps that may hang. A machine may be slow or busy.
const timeLimit = 5 * time.Minute

// address returns the address of this machine for Pods. It skips a test where there is no cluster.
func address(t *testing.T) string {
	t.Helper()
	address := os.Getenv("MODBOX_TEST_KUBE_ADDRESS")
	if address == "" {
		t.Skip("runs on a Kubernetes cluster: make test-cluster, or scripts/with-kubernetes.sh")
	}
	return address
}

// kubectl runs kubectl and returns its output.
func kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("kubectl", args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(input), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", cmd.Args, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// apply makes objects, which are removed at the end of the test. If it fails, the logs of Pods are shown. options are for kubectl.
func apply(t *testing.T, manifest string, options ...string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			shown := []string{"get pods -A -o wide", "get events -A", "describe pods -A", "logs --prefix --ignore-errors -l modbox-test --tail 200"}
			for _, namespace := range []string{"modbox", "standbys", "clients", "podstandbys", "active", "activepods", perSandboxNamespace} {
				shown = append(shown, "logs --prefix --ignore-errors -n "+namespace+" -l app.kubernetes.io/name=modbox --tail 200")
			}
			for _, args := range shown {
				out, _ := exec.Command("kubectl", strings.Fields(args)...).CombinedOutput()
				t.Logf("kubectl %s:\n%s", args, out)
			}
		}
		kubectl(t, manifest, append(options, "delete", "--ignore-not-found", "--timeout", timeLimit.String(), "-f", "-")...)
	})
	kubectl(t, manifest, append(options, "apply", "-f", "-")...)
}

// ready waits until a Pod is ready.
func ready(t *testing.T, pod string) {
	t.Helper()
	kubectl(t, "", "wait", "--for=condition=Ready", "--timeout", timeLimit.String(), "pod/"+pod)
}

// until calls f until it reports true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(timeLimit); !f(); time.Sleep(20 * time.Millisecond) { // polling another process
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", timeLimit, what)
		}
	}
}

// process returns the directory in /proc of a process whose command line has all words, or "". Processes in Pods are among them.
func process(words ...string) string {
	if found := processes(words...); len(found) > 0 {
		return found[0]
	}
	return ""
}

// processes returns the directories in /proc of all processes whose command lines have all words.
func processes(words ...string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains("\x00"+string(text), "\x00"+word+"\x00") }) {
			found = append(found, dir)
		}
	}
	return found
}
