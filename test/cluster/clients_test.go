package cluster_test

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/test/testserver"
)

const (
	// frontAddress is the address of the public URL of the installation for clients.
	frontAddress = "127.0.0.1:8080"
	// bucketPort is the port of its bucket.
	bucketPort = "9000"
)

// lacking names features that the cluster does not have: Pods do not meter the memory of each sandbox, and there is no internet.
const lacking = "sandboxes.usage,network"

// TestClients installs the chart with a bucket for backups, and runs the clients of other languages against it.
func TestClients(t *testing.T) {
	address := address(t)
	bucket := objecttest.StartAt(t, net.JoinHostPort(address, bucketPort))
	makeNamespace(t, "clients")
	apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: bucket}, stringData: {AWS_ACCESS_KEY_ID: "+objecttest.AccessKey+", AWS_SECRET_ACCESS_KEY: "+objecttest.SecretKey+"}}", "--namespace", "clients")
	i := install(t, "clients", "MODBOX_TEST_CHART_CLIENTS")
	for _, image := range []string{"modbox/base", "modbox/code-exec"} {
		importImage(t, i.namespace, "modbox-0", i.volume, image)
	}
	for _, image := range []string{"python:3.13", "node:lts"} {
		importImageOf(t, os.Getenv("MODBOX_TEST_AGENTUITY_IMAGE_DIR"), i.namespace, "modbox-0", i.volume, image)
	}
	forward(t, frontAddress, strings.TrimPrefix(i.url, "http://")+":80")
	t.Run("typescript", func(t *testing.T) {
		i.run(t, "../../sdk/typescript", "node", "--experimental-websocket", "--test", "test/real/conformance.test.mjs")
	})
	t.Run("python", func(t *testing.T) {
		i.run(t, "../../sdk/python/tests/real", "/usr/bin/python3", "-m", "unittest", "-v", "test_conformance.ConformanceTest.test_httpx")
	})
	t.Run("agentuity", func(t *testing.T) {
		i.run(t, "../agentuity", "node", "--test", "run.test.mjs", "sandbox.test.mjs", "snapshot.test.mjs", "state.test.mjs")
	})
	t.Run("backup", func(t *testing.T) { i.backups(t, bucket) })
}

// forward listens at an address, and passes connections on to a target, as an ingress controller does.
func forward(t *testing.T, address, target string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // closed
			}
			go relay(from, target)
		}
	}()
}

// relay passes a connection on.
func relay(from net.Conn, target string) {
	defer from.Close()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // it may break, as any connection
			_ = pair[0].(*net.TCPConn).CloseWrite()
		})
	}
	wg.Wait()
}

// run runs the tests of a client.
func (i *installation) run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MODBOX_URL=http://"+frontAddress, "MODBOX_API_TOKEN="+i.token,
		"PYTHONPATH=../../src", "PYTHONDONTWRITEBYTECODE=1", "MODBOX_TEST_WITHOUT="+lacking)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", cmd.Args, err, out)
		return
	}
	t.Logf("%s", regexp.MustCompile(`(?m)^(# (tests|pass|fail|skipped) .*|Ran .*)$`).FindAll(out, -1))
}

// backups backs the server up into the bucket, also after the bucket was away, and restores the backup.
func (i *installation) backups(t *testing.T, bucket *objecttest.Server) {
	config := []string{"--config", "/etc/modbox/config/modbox.yaml"}
	backup := func(args ...string) string {
		return i.modbox(append(append([]string{"backup"}, args...), config...)...)
	}
	sb, err := i.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "kept", Image: "modbox/base", WaitUpTo: timeLimit})
	if err == nil {
		_, err = i.Sandboxes.Pause(t.Context(), sb.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	backup("create")
	bucket.Kill()
	if out, err := i.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"echo", "goes on"}}); err != nil || string(out.Stdout) != "goes on\n" {
		t.Errorf("a command without the bucket: %+v, %v", out, err)
	}
	if _, err := i.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	bucket.Launch()
	t.Log(backup("create"))
	backup("verify")
	if list := strings.Split(backup("ls"), "\n"); len(list) != 3 { // with the header
		t.Errorf("the bucket has the backups %q, want two", list)
	}
	// A server of its own, with the restored state.
	dir := filepath.Join(t.TempDir(), "restored")
	cmd := exec.Command(testserver.Binary(t), "restore", "--from", bucket.URL("backups"), "--state-dir", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("restore: %v: %s", err, out)
	}
	out, err := exec.Command(testserver.Binary(t), "workers", "ls", "--local", "--state-dir", dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "modbox-worker-0") || !strings.Contains(string(out), "modbox-worker-1") {
		t.Errorf("the workers in the restored database: %v: %s", err, out)
	}
	saved, err := filepath.Glob(filepath.Join(dir, "checkpoints", "*"))
	if err == nil && len(saved) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		t.Errorf("the saved states in the restored directory: %v", err)
	}
}
