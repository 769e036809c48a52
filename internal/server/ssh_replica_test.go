package server

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/modbox/modbox/internal/store/storetest"
)

// TestSSHOfStandbyOnPostgres checks that SSH clients reach the active server through a standby, and the standby itself when it is active.
func TestSSHOfStandbyOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	a, b := newReplica(t, "a", stateDir, url), newReplica(t, "b", stateDir, url)
	shell := freeAddress(t)
	a.environ = append(a.environ, "MODBOX_SSH_LISTEN="+freeAddress(t))
	b.environ = append(b.environ, "MODBOX_SSH_LISTEN="+shell)
	a.launch()
	runFakeWorker(t, stateDir, a.workers, b.workers)
	a.active()
	b.launch()
	b.forwards()
	greets := func(when string) {
		t.Helper()
		conn, err := net.Dial("tcp", shell)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := make([]byte, len("SSH-2.0"))
		if _, err := io.ReadFull(conn, text); err != nil || string(text) != "SSH-2.0" {
			t.Errorf("%s the server begins with %q, %v", when, text, err)
		}
	}
	greets("through a standby")
	a.end(os.Kill)
	b.active()
	greets("at the server that took over")
}
