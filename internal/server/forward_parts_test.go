package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/storetest"
)

// TestEachServerAnswersOnPostgres checks that clients reach the sandboxes of two active servers through each server and a standby, over HTTP and SSH, and that
// requests about the sandboxes of a server that was killed wait at the other until the standby has taken over.
func TestEachServerAnswersOnPostgres(t *testing.T) {
	if !storetest.Postgres() {
		t.Skip("the suite postgres runs this test, with a server in MODBOX_TEST_POSTGRES")
	}
	url, stateDir := storetest.StartCluster(t).URL("postgres"), t.TempDir()
	var servers []*replica
	var shells []string
	for _, name := range []string{"a", "b", "c"} {
		r, shell := newPart(t, "2", name, stateDir, url), freeAddress(t)
		r.environ = append(r.environ, "MODBOX_SSH_LISTEN="+shell)
		servers, shells = append(servers, r), append(shells, shell)
	}
	a, b, c := servers[0], servers[1], servers[2]
	a.launch()
	a.until("it waits for its first worker", func() bool { return strings.Contains(a.logged(), "waiting for the workers") })
	b.launch()
	runFakeWorker(t, stateDir, a.workers, c.workers)
	startNamedWorker(t, "b", t.TempDir(), stateDir, b.workers)
	a.worksOn("01234567")
	b.worksOn("89abcdef")
	c.launch()
	c.waits()
	buildApp(t, a.client())
	ofA, ofB := a.create(), b.create()
	token, err := os.ReadFile(filepath.Join(stateDir, statedir.TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	for n, s := range servers {
		for _, id := range []string{ofA, ofB} {
			s.echoes(id)
			s.echoes(id[:18]) // no id: the server looks the sandbox up
			shellEchoes(t, shells[n], id, strings.TrimSpace(string(token)))
		}
	}
	a.end(os.Kill)
	b.echoes(ofA)
	b.echoes(ofA[:18])
	shellEchoes(t, shells[1], ofA, strings.TrimSpace(string(token)))
	c.worksOn("01234567")
	c.echoes(ofB)
}

// shellEchoes checks that a command runs over SSH in a sandbox.
func shellEchoes(t *testing.T, address, id, token string) {
	t.Helper()
	c, err := ssh.Dial("tcp", address, &ssh.ClientConfig{User: id, Auth: []ssh.AuthMethod{ssh.Password(token)}, HostKeyCallback: ssh.InsecureIgnoreHostKey()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var errs bytes.Buffer
	s.Stderr = &errs
	if out, err := s.Output("echo here"); err != nil || string(out) != "here\n" {
		t.Errorf("sandbox %s at %s over SSH: %q, %v, %s", id, address, out, err, errs.String())
	}
}
