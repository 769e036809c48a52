package storetest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
	c := newCluster(t)
	if err := c.run("initdb", "-D", c.data(), "-U", "modbox", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"); err != nil {
		t.Fatal(err)
	}
	c.Write("postgresql.auto.conf", "listen_addresses = ''")
	c.Start()
	return c
}

// newCluster makes the directory of a server that does not run yet.
func newCluster(t testing.TB) *Cluster {
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
	t.Cleanup(func() {
		c.Signal(syscall.SIGCONT)
		_ = c.run("pg_ctl", "-D", c.data(), "-w", "-m", "immediate", "stop") // it may have stopped
	})
	return c
}

// Standby starts a server that receives the changes of c and can be read; Promote makes it a primary.
func (c *Cluster) Standby() *Cluster {
	c.Helper()
	s := newCluster(c.TB)
	if err := s.run("pg_basebackup", "-h", c.Dir, "-U", "modbox", "-D", s.data(), "-R", "-X", "stream", "-c", "fast"); err != nil {
		c.Fatal(err)
	}
	s.Start()
	return s
}

// Promote makes a standby a primary.
func (c *Cluster) Promote() {
	c.Helper()
	if err := c.run("pg_ctl", "-D", c.data(), "-w", "promote"); err != nil {
		c.Fatal(err)
	}
}

// Write replaces a file in the data directory; the server reads its settings when it starts.
func (c *Cluster) Write(name, text string) {
	c.Helper()
	path := filepath.Join(c.data(), name)
	err := os.WriteFile(path, []byte(text+"\n"), 0o600)
	if err == nil && c.credential != nil {
		err = os.Chown(path, int(c.credential.Uid), int(c.credential.Gid))
	}
	if err != nil {
		c.Fatal(err)
	}
}

// Signal sends a signal to all processes of the server: SIGSTOP makes it silent, SIGKILL is a crash of its machine.
func (c *Cluster) Signal(signal syscall.Signal) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return // it does not run
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || !c.has(pid) {
		return // it has ended
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it makes no more processes
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		c.Error(err)
	}
	for _, child := range append(strings.Fields(string(children)), first) {
		if pid, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(pid, signal) // it may have ended
			for signal == syscall.SIGKILL && c.has(pid) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	for signal == syscall.SIGKILL && syscall.Kill(pid, 0) == nil { // until then, PostgreSQL refuses to start again
		time.Sleep(time.Millisecond)
	}
}

// has reports whether a process is one of the server.
func (c *Cluster) has(pid int) bool {
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	return err == nil && dir == c.data()
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
	if err := c.run("pg_ctl", "-D", c.data(), "-w", "-l", filepath.Join(c.Dir, "server.log"), "-o", "-k "+c.Dir, "start"); err != nil {
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
