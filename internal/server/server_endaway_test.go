package server

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// TestEndWithoutWorkers checks that a server whose workers are away does not wait for them when SIGTERM ends it.
func TestEndWithoutWorkers(t *testing.T) {
	stateDir := t.TempDir()
	r := newReplica(t, "r", stateDir, "")
	r.environ = append(r.environ, "MODBOX_STANDBY=false", "MODBOX_POOL_SIZE=1")
	r.launch()
	_, stop := startFakeWorker(t, t.TempDir(), stateDir, r.workers)
	r.until("it is ready", func() bool { return r.status("/readyz") == http.StatusOK })
	c := r.client()
	if _, err := c.Images.Build(t.Context(), client.ImageBuildOptions{Tag: "app:v1"}, contextOf(t, map[string]string{"Dockerfile": "FROM scratch\nCOPY file /file\n", "file": "text"}), nil); err != nil {
		t.Fatal(err)
	}
	if sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: time.Minute}); err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	stop()
	r.until("the server knows that the worker is away", func() bool {
		for w, err := range c.Workers.List().All(t.Context()) {
			return err == nil && w.State == "away"
		}
		return false
	})
	began := time.Now()
	r.end(syscall.SIGTERM)
	t.Logf("it took %s", time.Since(began).Round(time.Millisecond))
	if log, err := os.ReadFile(r.log.Name()); err != nil || strings.Contains(string(log), "background work did not end in time") || strings.Contains(string(log), "not destroyed") {
		t.Errorf("the server waited for the worker: %v, its log:\n%s", err, log)
	}
}
