package server

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/driver/fake"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestStartInAHandoverOnPostgres checks that a sandbox that is being started when the active server is ended starts, also after the requests were cut off, and that
// the create, which waits at the standby, returns it.
func TestStartInAHandoverOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	a.launch()
	host := runFakeWorker(t, stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.waits()
	b.forwards()
	buildApp(t, b.client())
	begun, goOn := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	host.SetFaults(fake.Faults{Start: func(ctx context.Context, _ sandbox.ID) error {
		begin()
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	var sb *client.Sandbox
	made := make(chan error, 1)
	go func() {
		var err error
		sb, err = b.client().Sandboxes.Create(t.Context(), client.CreateOptions{Image: "app:v1", WaitUpTo: time.Minute, Resources: client.Resources{Memory: "64Mi", Disk: "64Mi"}})
		made <- err
	}()
	<-begun
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.until("the requests are cut off", func() bool { return strings.Contains(a.logged(), "requests were cut off") })
	close(goOn)
	if err := <-made; err != nil || sb.State != client.Running {
		t.Errorf("the create returned %+v, %v", sb, err)
	}
}

// TestStartAfterACrashOnPostgres kills the active server in the middle of a start: the next server begins it again, and the create, whose key lets the standby send it again,
// returns the sandbox when it runs. The same create again returns the same sandbox.
func TestStartAfterACrashOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	a.launch()
	host := runFakeWorker(t, stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.waits()
	b.forwards()
	buildApp(t, b.client())
	begun := make(chan struct{})
	var starts atomic.Int64
	host.SetFaults(fake.Faults{Start: func(ctx context.Context, id sandbox.ID) error {
		if starts.Add(1) == 1 {
			close(begun)
			return fake.Hang(ctx, id)
		}
		return nil
	}})
	create := func() (*client.Sandbox, error) {
		return b.client().Sandboxes.Create(t.Context(), client.CreateOptions{
			Image: "app:v1", WaitUpTo: time.Minute, IdempotencyKey: "k", Env: map[string]string{"TOKEN": "s3cret"}, Resources: client.Resources{Memory: "64Mi", Disk: "64Mi"},
		})
	}
	var sb *client.Sandbox
	made := make(chan error, 1)
	go func() {
		var err error
		sb, err = create()
		made <- err
	}()
	<-begun
	a.end(syscall.SIGKILL)
	if err := <-made; err != nil || sb.State != client.Running {
		t.Fatalf("the create returned %+v, %v", sb, err)
	}
	if again, err := create(); err != nil || again.ID != sb.ID {
		t.Errorf("the same create again returned %+v, %v, want sandbox %s", again, err, sb.ID)
	}
	out, err := b.client().Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo $TOKEN"})
	if err != nil || string(out.Stdout) != "s3cret\n" {
		t.Errorf("its variable: %+v, %v", out, err)
	}
	page, err := b.client().Sandboxes.List(client.ListOptions{}).Page(t.Context(), client.PageOptions{})
	if err != nil || len(page.Items) != 1 || starts.Load() != 2 {
		t.Errorf("sandboxes %+v, %v after %d starts, want the same after 2", page.Items, err, starts.Load())
	}
}
