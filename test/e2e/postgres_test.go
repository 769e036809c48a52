package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/test/testserver"
)

// TestServerOnPostgres kills the server and restarts its database, which loses nothing; the next server adopts the sandboxes.
func TestServerOnPostgres(t *testing.T) {
	cluster := storetest.StartCluster(t)
	url := cluster.URL("postgres")
	t.Setenv("MODBOX_DATABASE_URL", url) // not a flag: other commands of the test need it, too
	s := testserver.StartSmall(t)
	running := s.MustCreate(client.CreateOptions{Name: "running"})
	if r := s.Bash(running.ID, "echo one > /tmp/file; cat /tmp/file", time.Minute); string(r.Stdout) != "one\n" {
		t.Fatalf("exec: %+v", r)
	}
	paused := s.MustCreate(client.CreateOptions{Name: "paused"})
	if r := s.Bash(paused.ID, "echo two > /tmp/file", time.Minute); r.ExitCode != 0 {
		t.Fatalf("exec: %+v", r)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}

	// The database crashes and comes back; a request made meanwhile succeeds.
	cluster.Stop("immediate")
	made := make(chan error, 1)
	go func() {
		_, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Name: "meanwhile", WaitUpTo: 3 * time.Minute}) // until it runs
		made <- err
	}()
	time.Sleep(time.Second)
	cluster.Start()
	if err := <-made; err != nil {
		t.Errorf("a create while the database was away: %v", err)
	}

	// The server is killed, and the database restarts before the next.
	s.Kill()
	cluster.Stop("fast")
	cluster.Start()
	s.Launch()
	if r := s.Bash(running.ID, "cat /tmp/file", time.Minute); string(r.Stdout) != "one\n" {
		t.Errorf("after the kill: %+v, want the file of before", r)
	}
	if r := s.Bash(paused.ID, "cat /tmp/file", time.Minute); string(r.Stdout) != "two\n" { // which resumes it
		t.Errorf("the paused sandbox: %+v, want the file of before", r)
	}
	if sb, err := s.Sandboxes.Get(t.Context(), "meanwhile"); err != nil || sb.State != "running" {
		t.Errorf("the sandbox made meanwhile: %+v, %v, want it running", sb, err)
	}
	if strings.Contains(s.Log(), url) {
		t.Error("the log has the URL of the database")
	}
}
