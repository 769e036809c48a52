package acme_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/modbox/modbox/test/testserver"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestServer runs the program with its settings: it obtains a certificate, is killed, and starts
// again with the stored one while the ACME server is away.
func TestServer(t *testing.T) {
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("runs the built program: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	port, err := strconv.Atoi(freePort(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newPebble(t, newNameServer(t).Address, ports{tls: port, http: closedPort}, long)
	p.Start()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	dir, err := os.MkdirTemp("/tmp", "mbx") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	start := func() (stop func()) {
		log := &lines{}
		cmd := exec.Command(testserver.Binary(t), "server", "--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"), "--listen", address,
			"--pool-size", "0", "--tls-acme-hosts", host, "--tls-acme-directory", p.Directory, "--tls-acme-ca-file", p.CAFile, "--tls-acme-http-listen", "127.0.0.1:0")
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop = sync.OnceFunc(func() {
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("log of the server:\n%s", log)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	stop := start()
	var first string
	eventually(t, "the server shows a certificate", func() bool {
		leaf, err := shown(address, host)
		if err == nil {
			first = leaf.SerialNumber.String()
		}
		return err == nil
	})
	stop()
	p.Stop()
	start()
	eventually(t, "the server shows the stored certificate", func() bool {
		leaf, err := shown(address, host)
		return err == nil && leaf.SerialNumber.String() == first
	})
}
