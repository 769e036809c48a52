package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// Cluster is a PostgreSQL server of a test, with its disk synchronized as in production. Its socket is in Dir.
type Cluster struct {
	testing.TB
	Dir string

	bin        string
	credential *syscall.Credential // nil for the user of the test
}

// StartCluster starts a server of Debian's package postgresql, which ends with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{TB: t}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // a directory may have programs of the client alone
	if len(found) == 0 {
		t.Fatal("PostgreSQL is not installed; scripts/install-deps.sh --test installs it")
	}
	slices.Sort(found)
	c.bin = filepath.Dir(found[len(found)-1])
	dir, err := os.MkdirTemp("", "pg") // a short name, for the socket
	if err != nil {
		t.Fatal(err)
	}
	c.Dir = dir
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		c.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.run("initdb", "-D", c.data(), "-U", "modbox", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"); err != nil {
		t.Fatal(err)
	}
	c.Start()
	t.Cleanup(func() { _ = c.run("pg_ctl", "-D", c.data(), "-w", "-m", "immediate", "stop") }) // it may have stopped
	return c
}

func (c *Cluster) data() string { return filepath.Join(c.Dir, "data") }

func (c *Cluster) run(program string, args ...string) error {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir = c.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.credential}
	log, err := os.OpenFile(filepath.Join(c.Dir, "commands.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log // a file, because the server keeps it open
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w\n%s", program, err, said)
	}
	return nil
}

// Start starts the server.
func (c *Cluster) Start() {
	c.Helper()
	if err := c.run("pg_ctl", "-D", c.data(), "-w", "-l", filepath.Join(c.Dir, "server.log"), "-o", "-k "+c.Dir+" -c listen_addresses=''", "start"); err != nil {
		c.Fatal(err)
	}
}

// Stop stops the server: in mode fast it ends its sessions; in mode immediate it ends as by a crash.
func (c *Cluster) Stop(mode string) {
	c.Helper()
	if err := c.run("pg_ctl", "-D", c.data(), "-w", "-m", mode, "stop"); err != nil {
		c.Fatal(err)
	}
}

// URL names a database of the server.
func (c *Cluster) URL(database string) string {
	return "postgres://modbox@/" + database + "?host=" + c.Dir
}
